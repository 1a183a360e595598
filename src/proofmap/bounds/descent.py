"""The lowest bounds that free numbers give, as far as some steps along their gradient find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.rules.rule import Free

_RATE, _END = 0.5, 0.05  # of a number's range, in the first step; and what of that is left in the last
_FIRST, _SECOND = 0.5, 0.9  # what Adam keeps of its means: less than usual, half of the steps go as far
_NOISE = 0.75  # the power of a rounding that, relative to a bound, is noise: numbers that change it by less hardly move


@dataclass(frozen=True, eq=False)
class Lowest:
    """The lowest bounds (K,) that were met, and the numbers that gave each."""

    bounds: Tensor
    numbers: dict[str, Tensor]


def descend(
    bound: Callable[[Mapping[str, Tensor]], Tensor],
    free: Mapping[str, Free],
    steps: int,
    row: Mapping[str, Tensor] | None = None,
    first: Tensor | None = None,
) -> Lowest:
    """Adam (Kingma and Ba 2015) on all rows at once, inside the ranges; the best of each row is kept.

    bound: numbers by names, each (n, ...) -> bounds (K,). A bound depends on its row's own numbers alone: those of
    number i belong to row[name][i], and to row i where nothing is said. A range without an end counts as 1 long.
    first: the bounds where `free` starts, if they are known, with the way to their gradient.
    """
    rows = row or {}
    at = {name: one.start for name, one in free.items()}
    means = {name: _Means.of(one, rows.get(name)) for name, one in free.items()}
    lowest: Lowest | None = None
    for step in range(steps + 1):
        last = step == steps
        if step or first is None:
            given = {name: one.detach().requires_grad_(not last) for name, one in at.items()}
            with torch.set_grad_enabled(not last):
                value = bound(given)
        else:
            given, value = at, first
        found = Lowest(value.detach(), {name: one.detach() for name, one in given.items()})
        lowest = found if lowest is None else _lower(lowest, found, rows)
        if last or not given or not value.requires_grad:
            break
        gradients = torch.autograd.grad(value, list(given.values()), torch.ones_like(value), allow_unused=True)
        noise = torch.finfo(value.dtype).eps ** _NOISE * found.bounds.abs() + torch.finfo(value.dtype).tiny
        for name, gradient in zip(at, gradients, strict=True):
            if gradient is not None:
                move = means[name].move(gradient, noise, step)
                at[name] = (at[name] - _RATE * _END ** (step / steps) * move).clamp(free[name].least, free[name].most)
    assert lowest is not None
    return lowest


def _lower(one: Lowest, other: Lowest, row: Mapping[str, Tensor]) -> Lowest:
    """The lower of two, row by row; what is no number is not lower."""
    lower = other.bounds < one.bounds
    numbers = {
        name: torch.where(_spread(lower, row.get(name), kept), other.numbers[name], kept)
        for name, kept in one.numbers.items()
    }
    return Lowest(torch.where(lower, other.bounds, one.bounds), numbers)


def _spread(values: Tensor, row: Tensor | None, like: Tensor) -> Tensor:
    """(K,) -> (n, 1, ..., 1): what each number's row has."""
    of = values if row is None else values[row]
    return of.view(-1, *(1,) * (like.ndim - 1))


@dataclass(eq=False)
class _Means:
    """The running means of Adam, of gradients in units of the range."""

    scale: Tensor
    row: Tensor | None
    first: Tensor
    second: Tensor

    @staticmethod
    def of(free: Free, row: Tensor | None) -> _Means:
        scale = free.most - free.least
        zero = torch.zeros_like(scale)
        return _Means(torch.where(scale.isfinite(), scale, 1), row, zero, zero.clone())

    def move(self, gradient: Tensor, noise: Tensor, step: int) -> Tensor:
        """A whole range at most, in units of the numbers."""
        gradient = (gradient * self.scale).nan_to_num_(0.0, 0.0, 0.0)
        self.first.lerp_(gradient, 1 - _FIRST)
        self.second.lerp_(gradient.square_(), 1 - _SECOND)
        size = (self.second / (1 - _SECOND ** (step + 1))).sqrt_().add_(_spread(noise, self.row, gradient))
        return self.scale * self.first / size.mul_(1 - _FIRST ** (step + 1))
