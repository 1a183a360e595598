"""The record `Overlap`: upper and lower bounds of the adversarial overlap of a family of balls."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.membership import round_up
from proofmap.rounding.crossed_bounds import check_attained, check_score_bounds, estimate_stored_error
from proofmap.runtime.outward_numbers import NOT_COVERED, format_range

_NOMINAL = torch.empty(0)  # placeholder for lower bounds that are not given: the values at x itself


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Bounds of the adversarial overlap of the ball B, and of the ball B_u with each group u frozen.

    If certified, `full` and `frozen` are proven upper bounds. Otherwise they are lower bounds from samples, or
    estimates. The explanation's `guarantee` tells which. The lower bounds are values of the traced graph in float64 at
    inputs of the balls: at x itself, or at `points` if a method searched for them.

    >>> over = pm.overlap(model, x, ball, groups=cells)
    >>> over
    Overlap(2 samples, 16 groups, certified: AO(B) <= -13.39 to -10.05, below 0 for 2 of 2)
    >>> over.intervals.shape        # each interval contains the true score
    torch.Size([2, 16, 2])
    """

    full: Tensor  # (N,)   upper bound of AO(B)
    frozen: Tensor  # (N, G) upper bounds of AO(B_u)
    nominal: Tensor  # (N,)  the overlap at x itself: AO(B) and every AO(B_u) are at least this
    target: Tensor  # (N,)  the class c
    certified: bool  # whether full and frozen are upper bounds, sound by construction
    full_lower: Tensor = _NOMINAL  # (N,)   AO(B) is at least this
    frozen_lower: Tensor = _NOMINAL  # (N, G) AO(B_u) is at least this
    points: Tensor | None = None  # (N, 1 + G, *shape) inputs that attain the lower bounds; None: x itself
    drops: Tensor | None = None  # (N, G, 2) direct bounds of AO(B) - AO(B_u), if there are any
    rigorous: bool = False  # whether upper and lower bounds cover all rounding errors
    value: Tensor | None = None  # (N,) with objectives.Output: the output at x, which all changes are measured from

    def __post_init__(self) -> None:
        """Fill in the lower bounds that x attains, and check lower against upper bounds."""
        sides = {"full": self.full, "frozen": self.frozen}
        for name, upper in sides.items():
            lower = getattr(self, f"{name}_lower")
            if lower is _NOMINAL:
                reached = self.nominal.view(-1, *[1] * (upper.ndim - 1)).expand_as(upper)
                object.__setattr__(self, f"{name}_lower", reached.minimum(upper) if self.certified else reached)
            elif lower.shape != upper.shape:
                raise InputError(f"got {name}_lower of shape {tuple(lower.shape)}, expected {tuple(upper.shape)}")
            elif self.certified:
                check_attained(lower, upper, estimate_stored_error(upper))
                object.__setattr__(self, name, torch.where(lower > upper, round_up(lower, upper.dtype), upper))
        if self.drops is not None:
            if self.drops.shape != (*self.frozen.shape, 2):
                raise InputError(f"got drops of shape {tuple(self.drops.shape)}, expected {(*self.frozen.shape, 2)}")
            check_score_bounds(*self._score_bounds(), estimate_stored_error(self.full)[:, None])

    @classmethod
    def estimated(cls, value: Tensor, nominal: Tensor, target: Tensor) -> Overlap:
        """Return an uncertified overlap from values (N, 1 + G) of B and every B_u, in this order."""
        return cls(value[:, 0].clone(), value[:, 1:].contiguous(), nominal, target, certified=False)

    @property
    def drop(self) -> Tensor:
        """AO(B) - AO(B_u): (N, G)."""
        return self.full[:, None] - self.frozen

    @property
    def intervals(self) -> Tensor:
        """Intervals (N, G, 2) of the true scores AO(B) - AO(B_u). They are never below 0, since B_u is part of B.

        max(0, lower(B) - upper(B_u)) <= AO(B) - AO(B_u) <= upper(B) - lower(B_u), and within the `drops`
        """
        if not self.certified:
            return torch.tensor([0.0, inf]).to(self.frozen).expand(*self.frozen.shape, 2)
        low, high = self._score_bounds()
        # rounding errors may make them cross
        return torch.stack([torch.minimum(low, high), torch.maximum(low, high)], dim=2)

    def _score_bounds(self) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds (N, G) of the scores from all bounds together."""
        most = torch.maximum(self.frozen, self.nominal[:, None])  # rounding may put a bound below the value at x
        low = (self.full_lower.double()[:, None] - most.double()).clamp(min=0)
        high = self.full.double()[:, None] - self.frozen_lower.double()
        if self.drops is None:
            return low, high
        return torch.maximum(low, self.drops[:, :, 0].double()), torch.minimum(high, self.drops[:, :, 1].double())

    def __repr__(self) -> str:
        """Show counts and the range of bounds. "below 0" proves a decision only with some objectives."""
        count, groups = self.frozen.shape
        samples, variables = f"{count} sample{'s' * (count != 1)}", f"{groups or 'no'} group{'s' * (groups != 1)}"
        limits = (float(self.full.min()), float(self.full.max())) if count else (nan, nan)
        below = int((self.full < 0).sum())
        one = "below 0" if below else "not below 0"
        proven = f", {one}" if count == 1 else f", below 0 for {below} of {count}"
        rounding = "" if self.rigorous else f"; {NOT_COVERED}"
        if self.value is not None:
            kind, relation = ("certified", "<=") if self.certified else ("not certified", "about")
            largest = format_range(*limits, "certified" if self.certified else "none")
            return f"Overlap({samples}, {variables}, {kind}: the output changes by {relation} {largest}{rounding})"
        bounds = (
            f"certified: AO(B) <= {format_range(*limits, 'certified')}{proven}{rounding}"
            if self.certified
            else f"not certified: AO(B) about {format_range(*limits, 'none')}"
        )
        return f"Overlap({samples}, {variables}, {bounds})"
