"""The inputs a proof is about: a ball around each sample, and the family of its members with one group frozen.

B = {δ : ||δ||_p <= ε, x + δ in the domain, δ in a half space} and B_u = {δ in B : δ_u = 0}. `Ball` is what a user
states; `Family` is what it means at given inputs: every member is a box with 0 in it, cut by an ℓp ball.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import Literal

import torch
from torch import Tensor

from proofmap.concretise import suprema
from proofmap.errors import InputError
from proofmap.sampling import nearest, uniform
from proofmap.windows import Windows

__all__ = ["Ball", "Family"]

_NORMS = (1.0, 2.0, inf)
_ELEMENTS = {1.0: 2**22, 2.0: 2**22, inf: 2**25}  # coefficients concretised at a time; p = 1 and 2 sort them in float64
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Ball:
    """A perturbation set {δ : ||δ||_p <= ε, low <= x + δ <= high}, or one half of it.

    eps: a number; a 1-D tensor with one radius a sample; for p = inf also any tensor that broadcasts to x, one radius a
        variable ((1, d) where d is also the number of samples); "auto": for an explainer to choose.
    norm: 1, 2 or inf.
    domain: (low, high), each a number, a 1-D tensor with one value a channel, or a tensor that broadcasts to a sample
        or to x; infinite where there is no limit. None: no limits at all.
    half: "+" keeps δ >= 0, "-" keeps δ <= 0.
    relative: for p = inf, ε is the share of the way from x to either end of the domain that a variable may go, from 0
        to 1: {δ : ε (low - x) <= δ <= ε (high - x)}. For variables of different ranges.
    """

    eps: float | Tensor | Literal["auto"]
    norm: float = inf
    domain: tuple[float | Tensor, float | Tensor] | None = None
    half: Literal["+", "-"] | None = None
    relative: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no ball."""
        if isinstance(self.norm, bool) or not isinstance(self.norm, int | float) or self.norm not in _NORMS:
            raise InputError(f"Ball got norm={self.norm!r}, expected 1, 2 or float('inf')")
        object.__setattr__(self, "norm", float(self.norm))
        if self.half is not None and (not isinstance(self.half, str) or self.half not in ("+", "-")):
            raise InputError(f"Ball got half={self.half!r}, expected '+' (δ >= 0), '-' (δ <= 0) or None (both)")
        eps = torch.zeros(()) if isinstance(self.eps, str) and self.eps == "auto" else _numbers(self.eps, "eps")
        if not (eps.isfinite() & (eps >= 0)).all():
            raise InputError(f"Ball got eps={_worst(eps)}, expected finite radii >= 0: nothing is proven without one")
        if self.domain is not None:
            if not isinstance(self.domain, (tuple, list)) or len(self.domain) != 2:
                raise InputError(f"Ball got domain={self.domain!r}, expected a pair (low, high) or None for no limits")
            low, high = (_numbers(end, "domain") for end in self.domain)
            if low.dim() == 0 or high.dim() == 0 or low.shape == high.shape:
                _check_order(low, high)
            object.__setattr__(self, "domain", tuple(self.domain))
        if self.relative and (self.norm != inf or self.domain is None or isinstance(self.eps, str) or (eps > 1).any()):
            raise InputError(
                f"Ball got relative=True with eps={self.eps}, norm={self.norm:g} and domain={self.domain}, expected a "
                "share from 0 to 1, norm=float('inf') and a domain"
            )

    def at(self, x: Tensor, mask: Tensor | None = None) -> Family:
        """Resolve the ball at inputs x (N, *sample), each group of the mask frozen in turn.

        mask: Captum's feature mask, ids 0..G-1, of x's shape (one a sample; a group may be absent in some), or of
        a shape that broadcasts to one sample ((H, W) spans the channels of (C, H, W)). None: the full ball alone.
        """
        check_input(x)
        if isinstance(self.eps, str):
            raise InputError("Ball got eps='auto', which explainers choose: give a number, or pm.certified_radius(...)")
        x = x.detach()
        radius = _resolve_eps(self.eps, self.norm, x)  # broadcasts to x
        lower, upper = -radius.expand(x.shape), radius.expand(x.shape)
        if self.domain is not None:
            low, high = (_resolve_end(end, x) for end in self.domain)
            _check_order(low, high)
            _check_inside(x, low, high)
            if self.relative:
                lower, upper = radius * (low - x), radius * (high - x)
                _check_finite(lower, upper)
            else:
                lower, upper = torch.maximum(lower, low - x), torch.minimum(upper, high - x)
        lower = torch.zeros_like(x) if self.half == "+" else lower.clamp(max=0)
        upper = torch.zeros_like(x) if self.half == "-" else upper.clamp(min=0)
        reach = torch.maximum(-lower, upper) if self.relative else radius.expand(x.shape)
        eps = reach.flatten(1).amax(dim=1)
        if mask is None:
            return Family(x, lower, upper, self.norm, eps)
        return Family(x, lower, upper, self.norm, eps, *resolve_mask(mask, x))


@dataclass(frozen=True, eq=False)
class Family:
    """The balls {B, B_u for all u} of N samples; member 0 is B, member 1 + u is B_u.

    B = {δ : lower <= δ <= upper, ||δ||_p <= eps}, with lower <= 0 <= upper finite and within [-eps, eps].
    """

    x: Tensor  # (N, *shape)
    lower: Tensor  # (N, *shape)
    upper: Tensor  # (N, *shape)
    norm: float
    eps: Tensor  # (N,) for p = inf the largest of the variables' radii
    mask: Tensor | None = None  # (N, *shape) int64, often one sample's mask expanded
    groups: int = 0

    def __post_init__(self) -> None:
        """Hold together what belongs together."""
        assert self.lower.shape == self.upper.shape == self.x.shape
        assert self.eps.shape == self.x.shape[:1]
        assert self.norm in _NORMS
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
        """Whether, for p = 1 and 2, the box cuts the ball at more than closed sides: some end is within (0, ε)."""
        if self.norm == inf:
            return False
        ends = torch.stack([-self.lower, self.upper]).flatten(2)  # (2, N, d)
        return bool(((ends > 0) & (ends < self.eps[:, None])).any())

    @property
    def _shared(self) -> bool:
        return self.mask is not None and (self.count == 1 or self.mask.stride(0) == 0)

    @cached_property
    def _cells(self) -> Tensor:
        """The ids plus 1, to be read with 0 outside the map: one mask where the samples share it, (1 or N, ...), and
        one channel of it where the channels do, (..., 1 or C, *map).
        """
        assert self.mask is not None
        mask = self.mask[:1] if self._shared else self.mask
        alike = bool((mask == mask[:, :1]).all())
        return (mask[:, :1] if alike else mask) + 1

    def box(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest x + δ of the full ball: the hull that interval arithmetic starts from."""
        return self.x + self.lower, self.x + self.upper

    def concretise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool = False) -> Tensor:
        """Return sup over δ of <A_k, δ> for each row k, over each member of sample owner[k]'s family: (K, 1 + G).

        coefficients (K, *shape), owner (K,) int64. `full_only` gives the first column alone, (K, 1).
        Exact; 0 <= out[:, 1 + u] <= out[:, 0] holds in floats too. Differentiable in the coefficients.
        """
        assert coefficients.shape[1:] == self.x.shape[1:]
        assert owner.shape == coefficients.shape[:1]
        rows = max(1, _ELEMENTS[self.norm] // prod(self.shape))
        chunks = zip(coefficients.flatten(1).split(rows), owner.split(rows), strict=True)
        return torch.cat([self._concretise(chunk, of, full_only=full_only) for chunk, of in chunks])

    def maximise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool = False) -> Tensor:
        """Return sup over δ of <A_k, x + δ>, as `concretise` does without x: (K, 1 + G).

        Over one box it is A·centre + |A|·radius, two products; where members are wanted, their boxes share the terms.
        """
        flat = coefficients.flatten(1)
        if self.norm == inf and (full_only or self.mask is None):
            low, high = (end.flatten(1) for end in self.box())
            centre, radius = self._of((low + high) / 2, owner), self._of((high - low) / 2, owner)
            largest: Tensor = torch.linalg.vecdot(flat, centre) + torch.linalg.vecdot(flat.abs(), radius)
            return largest[:, None]
        middle: Tensor = torch.linalg.vecdot(flat, self._of(self.x.flatten(1), owner))
        return middle[:, None] + self.concretise(coefficients, owner, full_only=full_only)

    def maximise_windows(self, form: Windows, *, full_only: bool = False) -> tuple[Tensor, Tensor]:
        """`maximise` for forms that see a window of x: (K, 1 + T), the full ball and the members of the groups that
        are seen, which (K, T) names; -1 where a window sees fewer. On all other members a form has its value on B.
        """
        flat = form.values.flatten(1)
        local, seen = None, torch.empty(len(form), 0, dtype=torch.int64, device=flat.device)
        if self.mask is not None and not full_only:
            places, at = form.places.fewest(len(self._cells))
            local, named = _renumbered(replace(form, places=places).read(self._cells).flatten(1).sub_(1))
            local, seen = local[at], named[at]
            local = local.unsqueeze(1).expand(-1, flat.shape[1] // local.shape[1], -1).flatten(1)
        lower, upper, x = (end.flatten(1) for end in form.at_rows(self._ends()).chunk(3, dim=1))
        middle: Tensor = torch.linalg.vecdot(flat, x)
        radius = self.eps if self.count == 1 else form.places.spread(self.eps[form.places.owner])
        rows = max(1, _ELEMENTS[self.norm] // flat.shape[1])
        pieces = [
            suprema(
                flat[piece],
                lower[piece],
                upper[piece],
                radius if len(radius) == 1 else radius[piece],
                self.norm,
                capped=self.capped,
                group=None if local is None else local[piece],
                groups=seen.shape[1],
            )
            for piece in (slice(start, start + rows) for start in range(0, len(flat), rows))
        ]
        return middle[:, None] + torch.cat(pieces), seen

    def _ends(self) -> Tensor:
        """(N, 3 · channels, *map): lower, upper and x, to be read together."""
        return torch.cat([self.lower, self.upper, self.x], dim=1)

    def _of(self, values: Tensor, owner: Tensor) -> Tensor:
        """Each row's sample: (N, d) -> (K, d), without a copy where there is one sample."""
        return values if self.count == 1 else values[owner]

    def _concretise(self, coefficients: Tensor, owner: Tensor, *, full_only: bool) -> Tensor:
        lower, upper, radius = self.lower.flatten(1), self.upper.flatten(1), self.eps
        if self.count > 1:
            lower, upper, radius = lower[owner], upper[owner], radius[owner]  # (K, d), (K,)
        group = None
        if self.mask is not None and not full_only:
            group = self.mask[0].flatten().expand_as(coefficients) if self._shared else self.mask.flatten(1)[owner]
        return suprema(
            coefficients,
            lower,
            upper,
            radius,
            self.norm,
            capped=self.capped,
            group=group,
            groups=0 if group is None else self.groups,
        )

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

        The family that comes back has no groups: B_u is the box with both ends at 0 in u, cut by the same ℓp ball.
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
        lower, upper = self.lower.flatten(1), self.upper.flatten(1)
        drawn = uniform(lower, upper, self.eps, self.norm, count, capped=self.capped, generator=generator)
        return drawn.to(self.x.dtype).view(count, *self.x.shape)

    def project(self, delta: Tensor) -> Tensor:
        """Return the point of B nearest to δ in the Euclidean sense: (..., N, *shape) -> the same."""
        lower, upper = self.lower.flatten(1), self.upper.flatten(1)
        flat = delta.detach().flatten(-len(self.shape))  # (..., N, d)
        found = nearest(flat, lower, upper, self.eps, self.norm, capped=self.capped)
        return found.to(delta.dtype).view(delta.shape)

    def contains(self, delta: Tensor, tolerance: float = _TOLERANCE) -> Tensor:
        """Say whether δ is in B, up to tolerance · ε in the norm and at the box: (..., N, *shape) -> (..., N) bool."""
        slack = tolerance * self.eps  # (N,)
        wide = slack.view(-1, *[1] * len(self.shape))
        in_box = (delta >= self.lower - wide) & (delta <= self.upper + wide)
        flat = delta.flatten(-len(self.shape))  # (..., N, d)
        norms: Tensor = torch.linalg.vector_norm(flat.double(), self.norm, dim=-1)
        return in_box.flatten(-len(self.shape)).all(dim=-1) & (norms <= self.eps + slack)


def _renumbered(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's ids (U, d) by their rank among the row's own, and the names (U, T) of the ranks, -1 for none."""
    rising, order = ids.sort(dim=1)
    rank = torch.nn.functional.pad(rising[:, 1:] != rising[:, :-1], (1, 0)).cumsum(1)
    names = ids.new_full((len(ids), int(rank.max()) + 1), -1).scatter_(1, rank, rising)
    return torch.empty_like(ids).scatter_(1, order, rank), names


def _numbers(value: float | Tensor | str, name: str) -> Tensor:
    """Read a number or a tensor as float64 without NaN."""
    try:
        if isinstance(value, bool):
            raise TypeError
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"Ball got {name}={value!r:.60}, expected a number or a tensor") from None
    if numbers.isnan().any():
        raise InputError(f"Ball got a NaN in {name}, expected numbers")
    return numbers


def _worst(eps: Tensor) -> float:
    return float(eps[~(eps.isfinite() & (eps >= 0))][0])


def _check_order(low: Tensor, high: Tensor) -> None:
    low, high = torch.broadcast_tensors(low, high)
    wrong = low >= high
    if wrong.any():
        raise InputError(
            f"Ball got a domain from {float(low[wrong][0]):g} to {float(high[wrong][0]):g}, expected low < high "
            "everywhere: a variable is fixed by eps=0, not by an empty domain"
        )


def _check_finite(lower: Tensor, upper: Tensor) -> None:
    if not bool((lower.isfinite() & upper.isfinite()).all()):
        raise InputError("Ball got relative=True with a domain that has no end, expected finite limits")


def check_input(x: Tensor) -> None:
    """Refuse what is no batch of finite samples."""
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x is {got}, expected a float32 or float64 tensor: use torch.as_tensor(x).float()")
    if x.dim() < 2 or x.numel() == 0:
        raise InputError(f"x has shape {tuple(x.shape)}, expected (N, *sample): put one sample in as x[None]")
    if not x.isfinite().all():
        raise InputError(f"x is not finite at {_first(~x.isfinite())}, expected numbers")


def _first(where: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in where.nonzero()[0])


def _resolve_eps(eps: float | Tensor, norm: float, x: Tensor) -> Tensor:
    """Return radii that broadcast to x: (), (N, 1, ..., 1) or, for p = inf alone, anything."""
    radius = torch.as_tensor(eps, dtype=x.dtype, device=x.device)
    if not radius.isfinite().all():
        raise InputError(f"Ball's eps is too large for x's {x.dtype}: use a smaller one, or x.double()")
    if radius.numel() == 1:
        return radius.reshape([1] * x.dim())
    if radius.shape == x.shape[:1]:
        return radius.view(-1, *[1] * (x.dim() - 1))
    if not _broadcasts(radius, x.shape):
        raise InputError(
            f"Ball's eps has shape {tuple(radius.shape)} at x of shape {tuple(x.shape)}: expected a number, "
            f"({len(x)},) for one radius a sample, or a shape that broadcasts to x for one radius a variable"
        )
    if norm != inf and radius.shape != (len(x), *[1] * (x.dim() - 1)):
        raise InputError(
            f"Ball's eps has shape {tuple(radius.shape)}, a radius for each variable, which norm={norm:g} cannot have: "
            f"use norm=float('inf'), or ({len(x)},) for one radius a sample"
        )
    return radius


def _resolve_end(end: float | Tensor, x: Tensor) -> Tensor:
    """Return one end of the domain in x's shape."""
    limit = torch.as_tensor(end, dtype=x.dtype, device=x.device)
    if limit.dim() == 1 and x.dim() > 2 and limit.shape[0] == x.shape[1]:
        limit = limit.view(-1, *[1] * (x.dim() - 2))  # one value a channel
    if not _broadcasts(limit, x.shape):
        raise InputError(
            f"Ball's domain has an end of shape {tuple(limit.shape)} at samples of shape {tuple(x.shape[1:])}: "
            "expected a number, one value a channel, or a shape that broadcasts to a sample"
        )
    return limit.expand(x.shape)


def _broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    tail = shape[len(shape) - value.dim() :]
    return value.dim() <= len(shape) and all(n in (1, m) for n, m in zip(value.shape, tail, strict=True))


def _check_inside(x: Tensor, low: Tensor, high: Tensor) -> None:
    width = high - low
    slack = _TOLERANCE * torch.where(width.isfinite(), width, x.abs().clamp(min=1))
    outside = torch.maximum(low - x, x - high) - slack
    if (outside > 0).any():
        worst = _first(outside == outside.max())
        raise InputError(
            f"x leaves the domain: {float(x[worst]):g} at {worst} is not in [{float(low[worst]):g}, "
            f"{float(high[worst]):g}]: clamp x, or state the domain that x lives in"
        )


def resolve_mask(mask: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """Return the mask in x's shape, without copying one for all, and the number of groups; refuse what is none."""
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"the mask is {got}, expected a tensor of integer ids 0..G-1: use torch.as_tensor(mask).long()"
        )
    if not _broadcasts(mask, x.shape):
        raise InputError(
            f"the mask has shape {tuple(mask.shape)} at x of shape {tuple(x.shape)}: expected x's shape, or a shape "
            f"that broadcasts to one sample {tuple(x.shape[1:])}"
        )
    ids = mask.to(device=x.device, dtype=torch.int64)
    if ids.min() < 0:
        raise InputError(f"the mask has the id {int(ids.min())}, expected ids 0..G-1: there is no id for 'in no group'")
    largest, one_for_all = int(ids.max()), mask.dim() < x.dim() or len(mask) != len(x)
    used = ids.unique() if one_for_all or largest >= ids.numel() else None  # more ids than entries: there are gaps
    if used is not None and len(used) != largest + 1:
        gap = int((used != torch.arange(len(used), device=used.device)).nonzero()[0])
        raise InputError(
            f"the mask never uses the id {gap} below its largest, {largest}: number its {len(used)} groups without "
            "gaps, torch.unique(mask, return_inverse=True)[1]"
        )
    groups = largest + 1
    return ids.expand(x.shape), groups
