"""The lowest bounds that free numbers give, as far as some steps along their gradient find them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.rules.rule import Free

_RATE, _END = 0.5, 0.05  # of a number's range, in the first step; and what of that is left in the last
_NEAR = 0.1  # of a number's range, in the first step of those that start near
_FIRST, _SECOND = 0.5, 0.9  # what Adam keeps of its means: less than usual, half of the steps go as far
_NOISE = 0.75  # the power of a rounding that, relative to a bound, is noise: numbers that change it by less hardly move
_GAIN = 1e-4  # of a bound: steps that lower it by less are no gain


@dataclass(frozen=True, eq=False)
class LowestBounds:
    """The lowest bounds (K,) that were met, the numbers that gave each, and the bounds at the start (K,)."""

    bounds: Tensor
    numbers: dict[str, Tensor]
    start: Tensor

    @property
    def gained(self) -> Tensor:
        """(K,): whether steps have lowered a bound by more than a small part."""
        return self.start - self.bounds > _GAIN * self.start.abs()

    def put(self, rows: Tensor, other: LowestBounds, row: Mapping[str, Tensor]) -> LowestBounds:
        """With others in the place of some rows (K,); number i belongs to row[name][i]."""
        numbers = dict(self.numbers)
        for name, given in other.numbers.items():
            numbers[name] = numbers[name].masked_scatter(_spread(rows, row[name], given), given)
        return replace(self, bounds=self.bounds.masked_scatter(rows, other.bounds), numbers=numbers)


def descend(
    bound: Callable[[Mapping[str, Tensor]], Tensor],
    free: Mapping[str, Free],
    steps: int,
    row: Mapping[str, Tensor] | None = None,
    first: Tensor | None = None,
    *,
    near: bool = False,
) -> LowestBounds:
    """Steps along the gradient on all rows at once, inside the ranges; the best of each row is kept.

    By Adam (Kingma and Ba 2015), whose first steps go far; or, where numbers start near the best, by signs.
    bound: numbers by names, each (n, ...) -> bounds (K,). A bound depends on its row's own numbers alone: those of
    number i belong to row[name][i], and to row i where nothing is said. A range without an end counts as 1 long.
    first: the bounds where `free` starts, if they are known, with the way to their gradient.
    """
    rows = row or {}
    at = {name: one.start for name, one in free.items()}
    kind = _Rprop if near else _Adam
    moves = {name: kind(one, rows.get(name)) for name, one in free.items()}
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
        lowest = found if lowest is None else _lower(lowest, found, rows)
        if last or not given or not value.requires_grad:
            break
        gradients = torch.autograd.grad(value, list(given.values()), torch.ones_like(value), allow_unused=True)
        noise = torch.finfo(value.dtype).eps ** _NOISE * bounds.abs() + torch.finfo(value.dtype).tiny
        for name, gradient in zip(at, gradients, strict=True):
            if gradient is not None:
                move = moves[name].move(gradient, noise, step / steps)
                at[name] = (at[name] - move).clamp(free[name].least, free[name].most)
    assert lowest is not None
    return lowest


def _lower(one: LowestBounds, other: LowestBounds, row: Mapping[str, Tensor]) -> LowestBounds:
    """The lower of two, row by row; what is no number is not lower."""
    lower = other.bounds < one.bounds
    numbers = {
        name: torch.where(_spread(lower, row.get(name), kept), other.numbers[name], kept)
        for name, kept in one.numbers.items()
    }
    return replace(one, bounds=torch.where(lower, other.bounds, one.bounds), numbers=numbers)


def _spread(values: Tensor, row: Tensor | None, like: Tensor) -> Tensor:
    """(K,) -> (n, 1, ..., 1): what each number's row has."""
    of = values if row is None else values[row]
    return of.view(-1, *(1,) * (like.ndim - 1))


class _StepRule(ABC):
    """How far numbers move, by their gradients: a share of the range, where that has an end."""

    def __init__(self, free: Free, row: Tensor | None) -> None:
        scale = free.most - free.least
        self.scale, self.row = torch.where(scale.isfinite(), scale, 1), row

    def move(self, gradient: Tensor, noise: Tensor, part: float) -> Tensor:
        """What is taken off, when so much of all steps is done; noise (K,): what of a bound's change means nothing."""
        slope = (gradient * self.scale).nan_to_num_(0.0, 0.0, 0.0)
        return self._move(slope, _spread(noise, self.row, slope), part)

    @abstractmethod
    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        """The same by the slopes in units of the ranges."""


class _Adam(_StepRule):
    """By the running means of Adam, and less from step to step."""

    def __init__(self, free: Free, row: Tensor | None) -> None:
        super().__init__(free, row)
        self.first, self.second = torch.zeros_like(self.scale), torch.zeros_like(self.scale)
        self.kept = (1.0, 1.0)  # what the means still have of where they began

    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        self.kept = self.kept[0] * _FIRST, self.kept[1] * _SECOND
        self.first.lerp_(slope, 1 - _FIRST)
        self.second.lerp_(slope.square_(), 1 - _SECOND)
        size = (self.second / (1 - self.kept[1])).sqrt_().add_(noise)
        rate: float = _RATE * _END**part
        return rate * (self.scale * self.first / size.mul_(1 - self.kept[0]))


class _Rprop(_StepRule):
    """By a step of each number's own: half as long again while its slope keeps its sign, half as long where it turns
    (Rprop, Riedmiller and Braun 1993).
    """

    def __init__(self, free: Free, row: Tensor | None) -> None:
        super().__init__(free, row)
        self.size, self.last = torch.full_like(self.scale, _NEAR), torch.zeros_like(self.scale)

    def _move(self, slope: Tensor, noise: Tensor, part: float) -> Tensor:
        sign = torch.where(slope.abs() > noise, slope.sign(), 0)
        self.size.mul_(1 + sign * self.last / 2).clamp_(max=_RATE)
        self.last = sign
        return self.scale * self.size * sign
