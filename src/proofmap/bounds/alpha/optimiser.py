"""Optimisers of α-CROWN: Adam and Rprop on the free relaxation parameters, with the best of each row kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.bounds.alpha.adam import Adam
from proofmap.rules.rule import FreeParameters

_LARGEST_STEP = 0.5  # as a share of a parameter's range: Adam's first step, and the limit of Rprop's steps
_STEP_DECAY = 0.05  # Adam's last step is the first one times this
_FIRST_RPROP_STEP = 0.1  # as a share of a parameter's range: smaller, since Rprop starts near the best parameters
_MEAN_DECAY, _SQUARE_DECAY = 0.5, 0.9  # Adam; below the usual values, so that half as many steps go as far
_NOISE_POWER = 0.75  # gradients below |bound| · eps**power are noise, and such parameters hardly move
_LEAST_GAIN = 1e-4  # as a share of a bound: steps that lower it by less are no gain


@dataclass(frozen=True, eq=False)
class LowestBounds:
    """The lowest bounds (K,) found, the parameters that give them, and the bounds (K,) at the start."""

    bounds: Tensor
    parameters: dict[str, Tensor]
    start: Tensor

    @property
    def gained(self) -> Tensor:
        """Return (K,): whether the steps lowered the bound by more than a small share of it."""
        return self.start - self.bounds > _LEAST_GAIN * self.start.abs()

    def put(self, rows: Tensor, other: LowestBounds, row: Mapping[str, Tensor]) -> LowestBounds:
        """Return a copy in which `other` replaces the rows marked in rows (K,). Parameter i belongs to row[name][i]."""
        parameters = dict(self.parameters)
        for name, given in other.parameters.items():
            parameters[name] = parameters[name].masked_scatter(_spread(rows, row[name], given), given)
        return replace(self, bounds=self.bounds.masked_scatter(rows, other.bounds), parameters=parameters)


def optimise(
    bound: Callable[[Mapping[str, Tensor]], Tensor],
    free: Mapping[str, FreeParameters],
    steps: int,
    row: Mapping[str, Tensor] | None = None,
    first: Tensor | None = None,
    *,
    near: bool = False,
) -> LowestBounds:
    """Lower the bounds of all rows at once by gradient steps within the parameters' ranges, and keep each row's best.

    Args:
        bound: maps parameters by name, each (n, ...), to bounds (K,). Only a row's own parameters change its bound.
        free: the start and the range of the parameters. The step size counts an infinite range as 1 long.
        row: parameter i belongs to row[name][i], or to row i if the name is missing.
        first: the bounds at the start, with their graph for the gradient, if they are known.
        near: use Rprop, which suits a start near the best parameters. Otherwise use Adam (Kingma and Ba 2015), whose
            first steps are large.
    """
    rows = row or {}
    at = {name: one.start for name, one in free.items()}
    rule = _Rprop if near else _DecayingAdam
    rules = {name: rule(one, rows.get(name)) for name, one in free.items()}
    lowest: LowestBounds | None = None
    for step in range(steps + 1):
        last = step == steps
        if step or first is None:
            given = {name: one.detach().requires_grad_(not last) for name, one in at.items()}
            with torch.set_grad_enabled(not last):
                value = bound(given)
        else:
            given, value = at, first
        bounds = value.detach()
        found = LowestBounds(bounds, {name: one.detach() for name, one in given.items()}, bounds)
        lowest = found if lowest is None else _best_of(lowest, found, rows)
        if last or not given or not value.requires_grad:
            break
        gradients = torch.autograd.grad(value, list(given.values()), torch.ones_like(value), allow_unused=True)
        noise = torch.finfo(value.dtype).eps ** _NOISE_POWER * bounds.abs() + torch.finfo(value.dtype).tiny
        for name, gradient in zip(at, gradients, strict=True):
            if gradient is not None:
                move = rules[name].move(gradient, noise, step / steps)
                at[name] = (at[name] - move).clamp(free[name].least, free[name].most)
    assert lowest is not None
    return lowest


def _best_of(one: LowestBounds, other: LowestBounds, row: Mapping[str, Tensor]) -> LowestBounds:
    """Return the lower of two bounds in each row. NaN is never lower."""
    lower = other.bounds < one.bounds
    parameters = {
        name: torch.where(_spread(lower, row.get(name), before), other.parameters[name], before)
        for name, before in one.parameters.items()
    }
    return replace(one, bounds=torch.where(lower, other.bounds, one.bounds), parameters=parameters)


def _spread(values: Tensor, row: Tensor | None, like: Tensor) -> Tensor:
    """Return (n, 1, ..., 1): for each parameter the value (K,) of its row."""
    of = values if row is None else values[row]
    return of.view(-1, *(1,) * (like.ndim - 1))


class _StepRule(ABC):
    """The step of parameters from their gradients. Steps are relative to the range if it is finite."""

    def __init__(self, free: FreeParameters, row: Tensor | None) -> None:
        scale = free.most - free.least
        self.scale, self.row = torch.where(scale.isfinite(), scale, 1), row

    def move(self, gradient: Tensor, noise: Tensor, part: float) -> Tensor:
        """Return the step to subtract.

        noise (K,): the change of a bound that rounding errors can cause. part: the share of all steps that is done.
        """
        slope = (gradient * self.scale).nan_to_num_(0.0, 0.0, 0.0)
        return self._move(slope, _spread(noise, self.row, slope), part)

    @abstractmethod
    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        """Return the step from slopes that are scaled by the ranges."""


class _DecayingAdam(_StepRule):
    """Adam, with step sizes that decrease from step to step."""

    def __init__(self, free: FreeParameters, row: Tensor | None) -> None:
        super().__init__(free, row)
        self.adam = Adam(self.scale, _MEAN_DECAY, _SQUARE_DECAY)

    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        rate: float = _LARGEST_STEP * _STEP_DECAY**part
        return rate * (self.scale * self.adam.direction(slope, noise))


class _Rprop(_StepRule):
    """Rprop (Riedmiller and Braun 1993): every parameter has its own step size.

    It grows by half while the gradient keeps its sign, and is halved when the sign changes.
    """

    def __init__(self, free: FreeParameters, row: Tensor | None) -> None:
        super().__init__(free, row)
        self.size, self.last = torch.full_like(self.scale, _FIRST_RPROP_STEP), torch.zeros_like(self.scale)

    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        sign = torch.where(slope.abs() > noise, slope.sign(), 0)
        self.size.mul_(1 + sign * self.last / 2).clamp_(max=_LARGEST_STEP)
        self.last = sign
        return self.scale * self.size * sign
