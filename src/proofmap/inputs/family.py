"""The family of a ball at given inputs: the ball itself, and one member for each frozen group of variables.

B_u = {δ in B : δ_u = 0}. Every member is a box that contains 0, cut by an ℓp ball.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.concretise import CutBoxes, rows_at_once, suprema, window_suprema
from proofmap.inputs.sampling import project, sample_uniform
from proofmap.inputs.window_forms import WindowForms
from proofmap.runtime.block_sums import dot

NORMS = (1.0, 2.0, inf)
TOLERANCE = 1e-6  # rounding errors that `contains` accepts


@dataclass(frozen=True, eq=False)
class Family:
    """The balls {B, B_u for all u} of N samples; member 0 is B, member 1 + u is B_u.

    B = {δ : lower <= δ <= upper, ||δ||_p <= eps}, with lower <= 0 <= upper finite and within [-eps, eps].

    >>> family = ball.at(x, cells((1, 28, 28)))
    >>> family.members        # B, and B_u for each of the 16 cells
    17
    """

    x: Tensor  # (N, *shape)
    lower: Tensor  # (N, *shape)
    upper: Tensor  # (N, *shape)
    norm: float
    eps: Tensor  # (N,); for p = inf, the largest radius of any variable
    mask: Tensor | None = None  # (N, *shape) int64, often one sample's mask expanded
    groups: int = 0

    def __post_init__(self) -> None:
        """Check that the fields fit together."""
        assert self.lower.shape == self.upper.shape == self.x.shape
        assert self.eps.shape == self.x.shape[:1]
        assert self.norm in NORMS
        assert (self.mask is None) == (self.groups == 0)
        assert self.mask is None or self.mask.shape == self.x.shape

    @property
    def count(self) -> int:
        """N, the number of samples."""
        return len(self.x)

    @property
    def members(self) -> int:
        """1 + G, the number of balls of each sample."""
        return 1 + self.groups

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @cached_property
    def capped(self) -> bool:
        """True if, for p = 1 and 2, the box cuts the ball with an endpoint strictly between 0 and ε."""
        if self.norm == inf:
            return False
        ends = torch.stack([-self.lower, self.upper]).flatten(2)  # (2, N, d)
        return bool(((ends > 0) & (ends < self.eps[:, None])).any())

    @property
    def _sets(self) -> CutBoxes:
        """The full balls, flattened."""
        return CutBoxes(self.lower.flatten(1), self.upper.flatten(1), self.eps, self.norm, self.capped)

    @property
    def _shared(self) -> bool:
        return self.mask is not None and (self.count == 1 or self.mask.stride(0) == 0)

    @cached_property
    def _cells(self) -> Tensor:
        """The group ids plus 1, so that 0 means outside the map.

        The mask is stored once, (1 or N, ...), if the samples share it, and with one channel, (..., 1 or C, *map), if
        the channels agree.
        """
        assert self.mask is not None
        mask = self.mask[:1] if self._shared else self.mask
        alike = bool((mask == mask[:, :1]).all())
        return (mask[:, :1] if alike else mask) + 1

    def box(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest x + δ of the full ball, from which interval arithmetic starts."""
        return self.x + self.lower, self.x + self.upper

    def concretise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool = False) -> Tensor:
        """Return sup over δ of <A_k, δ> for each row k, over each member of sample owner[k]'s family: (K, 1 + G).

        coefficients (K, *shape), owner (K,) int64. `full_only` returns the first column alone, (K, 1). The result is
        exact. 0 <= out[:, 1 + u] <= out[:, 0] also holds in floats. Differentiable in the coefficients.
        """
        assert coefficients.shape[1:] == self.x.shape[1:]
        assert owner.shape == coefficients.shape[:1]
        rows = rows_at_once(self.norm, prod(self.shape))
        chunks = zip(coefficients.flatten(1).split(rows), owner.split(rows), strict=True)
        return torch.cat([self._concretise(chunk, of, full_only=full_only) for chunk, of in chunks])

    def maximise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool = False) -> Tensor:
        """Return sup over δ of <A_k, x + δ>, which is `concretise` plus <A_k, x>: (K, 1 + G).

        Over a box it is A·centre + |A|·radius, two products. If members are requested, their boxes share the terms.
        """
        if self.norm == inf and (full_only or self.mask is None):
            return self.largest(coefficients, owner)(coefficients)[:, None]
        middle = dot(coefficients, self._of(self.x, owner))
        return middle[:, None] + self.concretise(coefficients, owner, full_only=full_only)

    def largest(self, form: Tensor | WindowForms, owner: Tensor) -> Callable[[Any], Tensor]:
        """Return a function that maximises forms over the full balls, (K,), like `maximise`.

        It serves all forms with the same rows and places, and reads the balls once.
        """
        if isinstance(form, WindowForms):
            return lambda other: self.maximise_windows(other, full_only=True)[0][:, 0]
        if self.norm != inf:
            return lambda other: self.maximise(other, owner, full_only=True)[:, 0]
        low, high = (end.flatten(1) for end in self.box())
        centre, radius = self._of((low + high) / 2, owner), self._of((high - low) / 2, owner)

        def over_boxes(other: Tensor) -> Tensor:
            flat = other.flatten(1)
            return dot(flat, centre) + dot(flat.abs(), radius)

        return over_boxes

    def maximise_windows(self, form: WindowForms, *, full_only: bool = False) -> tuple[Tensor, Tensor]:
        """Maximise forms that see a window of x: (K, 1 + T), over the full ball and the members of the groups that are
        seen.

        Also returns these groups (K, T), with -1 if a window sees fewer. On all other members, a form has the same
        maximum as on B.
        """
        lower, upper, x = (end.flatten(1) for end in form.at_rows(self._ends()).chunk(3, dim=1))
        middle = dot(form.values, x)
        radius = self.eps if self.count == 1 else form.places.to_rows(self.eps[form.places.owner])
        cells = None if self.mask is None or full_only else self._cells
        swing, seen = window_suprema(form, CutBoxes(lower, upper, radius, self.norm, self.capped), cells)
        return middle[:, None] + swing, seen

    def _ends(self) -> Tensor:
        """Return (N, 3 · channels, *map): lower, upper and x, to be read together."""
        return torch.cat([self.lower, self.upper, self.x], dim=1)

    def _of(self, values: Tensor, owner: Tensor) -> Tensor:
        """Select each row's sample: (N, ...) -> (K, ...), without a copy if there is one sample."""
        return values if self.count == 1 else values[owner]

    def _concretise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool) -> Tensor:
        low, high = (self._of(end.flatten(1), owner) for end in (self.lower, self.upper))
        group = None
        if self.mask is not None and not full_only:
            group = self.mask[0].flatten().expand_as(coefficients) if self._shared else self.mask.flatten(1)[owner]
        sets = CutBoxes(low, high, self._of(self.eps, owner), self.norm, self.capped)
        return suprema(coefficients, sets, group, 0 if group is None else self.groups)

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> Family:
        """Return the family in another precision, with endpoints rounded to nearest, or on another device."""
        x, lower, upper, eps = (part.to(device, dtype) for part in (self.x, self.lower, self.upper, self.eps))
        mask = None if self.mask is None else self.mask.to(device)
        return Family(x, lower, upper, self.norm, eps, mask, self.groups)

    def pick(self, index: Tensor) -> Family:
        """Return the families of some samples: index (n,) into the N."""
        mask = self.mask
        if mask is not None:
            mask = mask[:1].expand(len(index), *self.shape) if self._shared else mask[index]
        return Family(
            self.x[index], self.lower[index], self.upper[index], self.norm, self.eps[index], mask, self.groups
        )

    def split(self, index: Tensor | None = None) -> Family:
        """Return members as balls of their own: index (n,) into the N (1 + G) members, sample by sample; None: all.

        The returned family has no groups: B_u is the box with both endpoints at 0 in u, cut by the same ℓp ball.
        """
        if index is None:
            index = torch.arange(self.count * self.members, device=self.x.device)
        owner, member = index // self.members, index % self.members
        single = self.pick(owner)
        if single.mask is None:
            return single
        frozen = single.mask == (member - 1).view(-1, *[1] * len(self.shape))
        lower, upper = (end.masked_fill(frozen, 0) for end in (single.lower, single.upper))
        return Family(single.x, lower, upper, self.norm, single.eps)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw δ exactly uniform in B: (count, N, *shape)."""
        return sample_uniform(self._sets, count, generator).to(self.x.dtype).view(count, *self.x.shape)

    def project(self, delta: Tensor) -> Tensor:
        """Return the point of B nearest to δ in the Euclidean sense: (..., N, *shape) -> the same."""
        flat = delta.detach().flatten(-len(self.shape))  # (..., N, d)
        return project(flat, self._sets).to(delta.dtype).view(delta.shape)

    def contains(self, delta: Tensor, tolerance: float = TOLERANCE) -> Tensor:
        """Return whether δ is in B, up to tolerance · ε in the norm and at the box: (..., N, *shape) -> (...,
        N) bool.
        """
        slack = tolerance * self.eps  # (N,)
        wide = slack.view(-1, *[1] * len(self.shape))
        in_box = (delta >= self.lower - wide) & (delta <= self.upper + wide)
        flat = delta.flatten(-len(self.shape))  # (..., N, d)
        norms: Tensor = torch.linalg.vector_norm(flat.double(), self.norm, dim=-1)
        return in_box.flatten(-len(self.shape)).all(dim=-1) & (norms <= self.eps + slack)


def resolve_mask(mask: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """Return the mask in x's shape, without a copy if all samples share it, and the number of groups; check
    the mask.
    """
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"the mask is {got}, expected a tensor of integer ids 0..G-1: use torch.as_tensor(mask).long()"
        )
    if not broadcasts(mask, x.shape):
        raise InputError(
            f"the mask has shape {tuple(mask.shape)} at x of shape {tuple(x.shape)}: expected x's shape, or a shape "
            f"that broadcasts to one sample {tuple(x.shape[1:])}"
        )
    ids = mask.to(device=x.device, dtype=torch.int64)
    if ids.min() < 0:
        raise InputError(f"the mask has the id {int(ids.min())}, expected ids 0..G-1: there is no id for 'in no group'")
    largest, one_for_all = int(ids.max()), mask.dim() < x.dim() or len(mask) != len(x)
    used = ids.unique() if one_for_all or largest >= ids.numel() else None  # more ids than entries imply gaps
    if used is not None and len(used) != largest + 1:
        gap = int((used != torch.arange(len(used), device=used.device)).nonzero()[0])
        raise InputError(
            f"the mask never uses the id {gap} below its largest, {largest}: number its {len(used)} groups without "
            "gaps, torch.unique(mask, return_inverse=True)[1]"
        )
    groups = largest + 1
    return ids.expand(x.shape), groups


def broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether the value can be expanded to the shape."""
    tail = shape[len(shape) - value.dim() :]
    return value.dim() <= len(shape) and all(n in (1, m) for n, m in zip(value.shape, tail, strict=True))
