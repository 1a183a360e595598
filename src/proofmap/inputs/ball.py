"""Perturbation balls around each sample, as a user specifies them.

B = {δ : ||δ||_p <= ε, x + δ in the domain, δ in a half space}. At given inputs, a ball becomes a `Family`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor

from proofmap.errors import InputError, OutsideDomainError
from proofmap.inputs.domain import Domain
from proofmap.inputs.family import NORMS, TOLERANCE, Family, broadcasts, resolve_mask
from proofmap.settings import parse_number


@dataclass(frozen=True)
class Ball:
    """A perturbation set {δ : ||δ||_p <= ε, low <= x + δ <= high}, or one half of it.

    eps: a number, or a text such as "2/255"; a 1-D tensor with one radius per sample; for p = inf also any tensor that
        broadcasts to x, one radius per variable ((1, d) if d is also the number of samples); "auto": an explainer
        chooses the radius. A list is refused, because it may also mean several balls: a tensor states one radius per
        sample, and `pm.curve(model, x, radii)` bounds the overlap at each radius.
    norm: 1, 2 or inf.
    domain: (low, high), each a number, a 1-D tensor with one value per channel, or a tensor that broadcasts to a sample
        or to x; infinite where there is no limit. None: no limits at all. A `pm.Domain`: the limits of a table's
        columns, with its one-hot blocks.
    half: "+" keeps δ >= 0, "-" keeps δ <= 0.
    relative: for p = inf, ε is a share between 0 and 1 of the distance from x to either endpoint of the domain: {δ : ε
        (low - x) <= δ <= ε (high - x)}. For variables of different ranges.
    one_hot: the columns of each one-hot block, given by a `pm.Domain`. For p = inf: a block with some ε above 0 takes
        any of its categories, one column at 1 and the others at 0, whatever the size of ε. A block in which all ε are 0
        stays as in x. B is then a union of boxes, one for each choice of categories.

    >>> pm.Ball(2 / 255, domain=(0.0, 1.0)).at(x).sample(5).shape
    torch.Size([5, 2, 1, 28, 28])
    """

    eps: float | Tensor | str
    norm: float = inf
    domain: tuple[float | Tensor, float | Tensor] | None = None
    half: Literal["+", "-"] | None = None
    relative: bool = False
    one_hot: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Check and normalise the fields."""
        if isinstance(self.norm, bool) or not isinstance(self.norm, int | float) or self.norm not in NORMS:
            raise InputError(f"Ball got norm={self.norm!r}, expected 1, 2 or float('inf')")
        object.__setattr__(self, "norm", float(self.norm))
        if self.half is not None and (not isinstance(self.half, str) or self.half not in ("+", "-")):
            raise InputError(f"Ball got half={self.half!r}, expected '+' (δ >= 0), '-' (δ <= 0) or None (both)")
        given: Any = self.eps
        if isinstance(given, list | tuple):
            raise InputError(
                f"Ball got eps={given!r:.60}, a {type(given).__name__}, expected a number or a tensor: "
                "torch.tensor(radii) is one radius a sample, and pm.curve(model, x, radii) bounds the overlap at each"
            )
        if isinstance(self.eps, str) and self.eps != "auto":
            object.__setattr__(self, "eps", _parse_radius(self.eps))
        eps = torch.zeros(()) if isinstance(self.eps, str) else _to_float64(self.eps, "eps")
        wrong = eps[~(eps.isfinite() & (eps >= 0))].tolist()
        if wrong:
            raise InputError(f"Ball got eps={wrong[0]}, expected finite radii >= 0: nothing is proven without one")
        if isinstance(self.domain, Domain):
            object.__setattr__(self, "one_hot", self.domain.one_hot)
        if self.one_hot and (self.norm != inf or self.half is not None or isinstance(self.eps, str)):
            raise InputError(
                f"Ball got a domain with one-hot blocks, eps={self.eps}, norm={self.norm:g} and half={self.half!r}, "
                "expected a radius, norm=float('inf') and no half: categories have no order and no distance"
            )
        if self.domain is not None:
            if not isinstance(self.domain, (tuple, list)) or len(self.domain) != 2:
                raise InputError(f"Ball got domain={self.domain!r}, expected a pair (low, high) or None for no limits")
            low, high = (_to_float64(end, "domain") for end in self.domain)
            if low.dim() == 0 or high.dim() == 0 or low.shape == high.shape:
                _check_order(low, high)
            object.__setattr__(self, "domain", tuple(self.domain))
        if self.relative and (self.norm != inf or self.domain is None or isinstance(self.eps, str) or (eps > 1).any()):
            raise InputError(
                f"Ball got relative=True with eps={self.eps}, norm={self.norm:g} and domain={self.domain}, expected a "
                "share from 0 to 1, norm=float('inf') and a domain"
            )

    def at(self, x: Tensor, mask: Tensor | None = None) -> Family:
        """Build the ball's family at inputs x (N, *sample), with each group of the mask frozen in turn.

        mask: Captum's feature mask, ids 0..G-1, of x's shape (one per sample; a group may be absent in some), or of a
            shape that broadcasts to one sample ((H, W) spans the channels of (C, H, W)). None: the full ball alone.
        """
        check_input(x)
        if isinstance(self.eps, str):
            raise InputError("Ball got eps='auto', which explainers choose: give a number, or pm.certified_radius(...)")
        x = x.detach()
        radius = _resolve_eps(self.eps, self.norm, x)  # broadcasts to x
        lower, upper = -radius.expand(x.shape), radius.expand(x.shape)
        if self.domain is not None:
            low, high = self.limits(x)
            _check_order(low, high)
            _check_inside(x, low, high)
            if self.relative:
                lower, upper = radius * (low - x), radius * (high - x)
                if not bool((lower.isfinite() & upper.isfinite()).all()):
                    raise InputError("Ball got relative=True with a domain that has no end, expected finite limits")
            else:
                lower, upper = torch.maximum(lower, low - x), torch.minimum(upper, high - x)
        if any(bool(moves.any()) for moves in self._moving(x)):
            raise InputError(
                "the ball has one-hot blocks that may change, which pm.overlap and pm.EVA take and this does not yet: "
                "fix them, pm.Ball(domain.eps(share, fixed=[...]), domain=domain)"
            )
        lower = torch.zeros_like(x) if self.half == "+" else lower.clamp(max=0)
        upper = torch.zeros_like(x) if self.half == "-" else upper.clamp(min=0)
        reach = torch.maximum(-lower, upper) if self.relative else radius.expand(x.shape)
        eps = reach.flatten(1).amax(dim=1)
        if mask is None:
            return Family(x, lower, upper, self.norm, eps)
        return Family(x, lower, upper, self.norm, eps, *resolve_mask(mask, x))

    def _moving(self, x: Tensor) -> list[Tensor]:
        """Return for each one-hot block the samples of x at which it may change: (N,) bool."""
        radius = self._radii(x).flatten(1) if self.one_hot else x
        return [(radius[:, list(block)] > 0).any(dim=1) for block in self.one_hot]

    def _radii(self, x: Tensor) -> Tensor:
        assert not isinstance(self.eps, str)
        return _resolve_eps(self.eps, self.norm, x).expand(x.shape)

    def fixed(self, x: Tensor) -> tuple[Ball, list[Tensor]]:
        """Return the same ball at x (N, d) with every one-hot block fixed, and for each block the samples where it may
        change.
        """
        moving = self._moving(x)
        if not moving:
            return self, []
        radius = self._radii(x).clone()
        for block in self.one_hot:
            radius[:, list(block)] = 0.0
        return replace(self, eps=radius), moving

    def limits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the endpoints of the domain in x's shape; they are infinite without a domain."""
        low, high = (-inf, inf) if self.domain is None else self.domain
        return resolve_end(low, x), resolve_end(high, x)

    def room(self, x: Tensor, mask: Tensor) -> Family:
        """Build the family of the whole domain, low - x <= δ <= high - x within the half, in the same way as `at`.

        Where the domain is infinite, the ball's own endpoint is used; without a domain, the ball.
        """
        own = self.at(x, mask)
        if self.domain is None:
            return own
        low, high = (end - own.x for end in self.limits(own.x))
        lower = torch.where(low.isfinite() & (own.lower < 0), low, own.lower).clamp(max=0)
        upper = torch.where(high.isfinite() & (own.upper > 0), high, own.upper).clamp(min=0)
        reach = torch.maximum(-lower, upper).flatten(1).amax(dim=1)
        return Family(own.x, lower, upper, inf, reach, own.mask, own.groups)


def _parse_radius(text: str) -> float:
    """Parse a radius that is given as text."""
    try:
        return parse_number(text)
    except ValueError:
        raise InputError(
            f"Ball got eps={text!r:.60}, expected a number, a fraction such as '2/255', 'auto' or a tensor"
        ) from None


def _to_float64(value: float | Tensor | str, name: str) -> Tensor:
    """Convert a number or a tensor to float64, and refuse NaN."""
    try:
        if isinstance(value, bool):
            raise TypeError
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"Ball got {name}={value!r:.60}, expected a number or a tensor") from None
    if numbers.isnan().any():
        raise InputError(f"Ball got a NaN in {name}, expected numbers")
    return numbers


def _check_order(low: Tensor, high: Tensor) -> None:
    """Refuse low > high, and a domain in which no variable can move. A constant column may have low = high."""
    low, high = torch.broadcast_tensors(low, high)
    wrong = low >= high if bool((low >= high).all()) else low > high
    if wrong.any():
        raise InputError(
            f"Ball got a domain from {float(low[wrong][0]):g} to {float(high[wrong][0]):g}, expected low < high: a "
            "variable is fixed by eps=0, not by an empty domain"
        )


def check_input(x: Tensor) -> None:
    """Raise InputError unless x is a batch of finite samples."""
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x is {got}, expected a float32 or float64 tensor: use torch.as_tensor(x).float()")
    if x.dim() < 2 or x.numel() == 0:
        raise InputError(f"x has shape {tuple(x.shape)}, expected (N, *sample): put one sample in as x[None]")
    if not x.isfinite().all():
        raise InputError(f"x is not finite at {_first_index(~x.isfinite())}, expected numbers")


def _first_index(where: Tensor) -> tuple[int, ...]:
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
    if not broadcasts(radius, x.shape):
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


def resolve_end(end: float | Tensor, x: Tensor) -> Tensor:
    """Return one endpoint of the domain in x's shape."""
    limit = torch.as_tensor(end, dtype=x.dtype, device=x.device)
    if limit.dim() == 1 and x.dim() > 2 and limit.shape[0] == x.shape[1]:
        limit = limit.view(-1, *[1] * (x.dim() - 2))  # one value per channel
    if not broadcasts(limit, x.shape):
        raise InputError(
            f"Ball's domain has an end of shape {tuple(limit.shape)} at samples of shape {tuple(x.shape[1:])}: "
            "expected a number, one value a channel, or a shape that broadcasts to a sample"
        )
    return limit.expand(x.shape)


def _check_inside(x: Tensor, low: Tensor, high: Tensor) -> None:
    width = high - low
    slack = TOLERANCE * torch.where(width.isfinite(), width, x.abs().clamp(min=1))
    outside = torch.maximum(low - x, x - high) - slack
    if (outside > 0).any():
        worst = _first_index(outside == outside.max())
        raise OutsideDomainError(
            f"x leaves the domain: {float(x[worst]):g} at {worst} is not in [{float(low[worst]):g}, "
            f"{float(high[worst]):g}]: clamp x, or state the domain that x lives in"
        )
