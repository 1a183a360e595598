"""Several inputs of one network, joined to one flat vector: shapes, balls and groups.

The joined input z = (x_1, ..., x_m) is flat. Its ball is the product of the inputs' balls, which is a box cut by the
domain (all norms ∞), or the ball of the only input that moves. A fixed input has radius 0. So bounds, searches and
certificates see an ordinary network with one input, which starts with slices and reshapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs import groups as grouping
from proofmap.inputs.ball import Ball

Balls: TypeAlias = Ball | tuple[Ball | None, ...]  # one, or one for each input (None: the input stays fixed)
GroupsOfInputs: TypeAlias = grouping.Groups | tuple[grouping.Groups, ...]

Limits: TypeAlias = tuple[float | Tensor, float | Tensor] | Literal["auto", "fixed"] | None
Domains: TypeAlias = Limits | tuple[Limits, ...]  # the range of the values, or one for each input

MOVES, FIXED, CONSTANT = "moves", "fixed", "constant"  # the roles of an input: a constant has integers
_ABSENT = {  # the entries of a tuple that give an input no ball, groups, limits or map
    "balls": "None for an input that stays fixed",
    "groups": "None for an input that has the usual groups",
    "domains": "None for an input without limits, or 'fixed' for one that stays fixed",
    "maps": "None for an input without a map",
}


@dataclass(frozen=True, eq=False)
class InputPart:
    """One of several inputs of a network.

    constant: the value (1, *shape) of an input of integers or booleans, such as token ids or a mask. It is the same for
    all samples, stays fixed, and is no part of the joined vector.
    """

    name: str
    shape: tuple[int, ...]  # without the samples
    constant: Tensor | None = None

    @property
    def size(self) -> int:
        """The number of entries in the joined vector."""
        return prod(self.shape) if self.constant is None else 0


def is_several(x: object) -> bool:
    """Return whether x is a tuple or a dictionary of inputs."""
    return isinstance(x, tuple | Mapping)


def join_tensors(values: Sequence[Tensor]) -> Tensor:
    """Return the joined vectors (N, d) of inputs (N, *shape)."""
    return torch.cat([value.flatten(1) for value in values], dim=1)


def split_tensor(z: Tensor, parts: Sequence[InputPart]) -> list[Tensor]:
    """Return the inputs (..., *shape) of joined vectors (..., d), without constants."""
    moving = [part for part in parts if part.constant is None]
    pieces = z.split([part.size for part in moving], dim=-1)
    return [piece.unflatten(-1, part.shape) for piece, part in zip(pieces, moving, strict=True)]


def inputs_at(z: Tensor, parts: Sequence[InputPart]) -> tuple[Tensor, ...]:
    """Return all inputs (N, *shape) at joined vectors (N, d), with the values of constants."""
    found = iter(split_tensor(z, parts))
    return tuple(
        next(found) if part.constant is None else part.constant.to(z.device).expand(len(z), *part.shape)
        for part in parts
    )


def of_parts(given: Any, parts: Sequence[InputPart], what: str) -> list[Any]:
    """Return the entries of a tuple for the parts of the joined vector; those of constants must be None."""
    if not isinstance(given, tuple | list) or len(given) != len(parts):
        got = f"{len(given)} {what}" if isinstance(given, tuple | list) else f"one of the {what}"
        names = ", ".join(repr(part.name) for part in parts)
        raise InputError(
            f"got {got} for {len(parts)} input{'s' * (len(parts) > 1)} ({names}), expected a tuple with one entry for "
            f"each, {_ABSENT[what]}"
        )
    for entry, part in zip(given, parts, strict=True):
        if part.constant is not None and entry is not None and not _is_fixed(entry):
            raise InputError(
                f"got {what} for the input {part.name!r} of {part.constant.dtype}, expected None: integers stay fixed; "
                "to move token ids, give the rows of their embedding instead"
            )
    return [entry for entry, part in zip(given, parts, strict=True) if part.constant is None]


def join_balls(balls: Any, values: Sequence[Tensor], parts: Sequence[InputPart]) -> Ball:
    """Return the ball around joined vectors that is the product of the inputs' balls."""
    given = of_parts(balls, parts, "balls")
    moving = [ball for ball in given if ball is not None]
    _check_balls(moving)
    for ball, value in zip(given, values, strict=True):
        if ball is not None:
            if ball.one_hot and value.ndim != 2:
                raise InputError(f"got a table's domain for an input of shape {tuple(value.shape)}, expected (N, d)")
            replace(ball, eps=0.0).at(value)  # raises InputError for values outside the domain
    first, auto = moving[0], isinstance(moving[0].eps, str)
    alone = auto or first.norm != inf
    pinned = alone or first.relative  # the domain holds fixed inputs, otherwise the radius 0
    lows, highs, radii, blocks, start = [], [], [], [], 0
    for ball, value in zip(given, values, strict=True):
        free = torch.full_like(value, inf)
        low, high = ball.limits(value) if ball is not None else (value, value) if pinned else (-free, free)
        lows.append(low)
        highs.append(high)
        radii.append(torch.zeros_like(value) if ball is None or alone else ball._radii(value))
        if ball is not None:
            blocks += [tuple(start + column for column in block) for block in ball.one_hot]
        start += value[0].numel()
    domain = None
    if pinned or any(ball.domain is not None for ball in moving):
        domain = (_shared(join_tensors(lows)), _shared(join_tensors(highs)))
    eps = first.eps if alone else _shared(join_tensors(radii))
    if alone and isinstance(eps, Tensor) and eps.ndim > 1:
        eps = eps.reshape(-1)
    return Ball(eps, first.norm, domain, first.half, first.relative, tuple(blocks))


def check_values(balls: Sequence[Ball | None], z: Tensor, parts: Sequence[InputPart]) -> None:
    """Raise InputError for joined vectors with values outside the domain of an input."""
    values = iter(split_tensor(z, parts))
    for part, ball in zip(parts, balls, strict=True):
        value = None if part.constant is not None else next(values)
        if value is not None:
            try:
                replace(ball or Ball(0.0), eps=0.0).at(value)
            except InputError as error:
                raise InputError(f"input {part.name!r}: {error}") from error


def _check_balls(moving: Sequence[Any]) -> None:
    """Raise InputError unless the product of the balls is a ball."""
    if not moving or not all(isinstance(ball, Ball) for ball in moving):
        raise InputError(
            f"got the balls {tuple(moving)!r:.80}, expected a pm.Ball for at least one input, and None for those that "
            "stay fixed"
        )
    norms = [f"{ball.norm:g}" for ball in moving]
    if len(moving) > 1 and set(norms) != {"inf"}:
        raise InputError(
            f"got balls of the norms {', '.join(norms)}, expected norm=float('inf') for all inputs that move, or one "
            "ball and None for the other inputs: the product of other balls is no ball"
        )
    for name in ("half", "relative"):
        if len({getattr(ball, name) for ball in moving}) > 1:
            raise InputError(f"got balls with different {name}, expected the same for all inputs that move")
    if len({ball.eps == "auto" if isinstance(ball.eps, str) else False for ball in moving}) > 1:
        raise InputError("got eps='auto' for some inputs, expected numbers for all inputs that move, or 'auto' for all")


def _is_fixed(entry: object) -> bool:
    return isinstance(entry, str) and entry == FIXED


def _shared(each: Tensor) -> Tensor:
    """Return values (N, d) as (1, d) if all samples share them."""
    return each[:1].contiguous() if bool((each == each[:1]).all()) else each


def join_domains(domains: Any, norm: float, values: Sequence[Tensor], parts: Sequence[InputPart]) -> Ball:
    """Return the ball of radius 1 around joined vectors, in the domain that is the product of the inputs' domains.

    The entry "fixed" keeps an input at its values; None is no limit. Without any domain, all inputs move.
    """
    given = of_parts((None,) * len(parts) if domains is None else domains, parts, "domains")
    for entry in given:
        if not (entry is None or _is_fixed(entry) or isinstance(entry, tuple)):
            raise InputError(f"got the domain {entry!r:.60} of an input, expected (low, high), None, or 'fixed'")
    balls = iter(None if _is_fixed(entry) else Ball("auto", domain=entry) for entry in given)
    every = tuple(next(balls) if part.constant is None else None for part in parts)
    return replace(join_balls(every, values, parts), eps=1.0, norm=norm)


def join_groups(
    groups: Any,
    moves: Sequence[bool],
    values: Sequence[Tensor],
    parts: Sequence[InputPart],
    usual: Callable[[Tensor], grouping.Groups] = lambda value: grouping.pixels(),
) -> Tensor:
    """Return the groups of joined vectors, (1, d) or (N, d) int64: those of the first input come first.

    By default, an input that moves has its pixels or columns, or its `usual` groups, and a fixed input is one group.
    moves: whether each input of floats moves.
    """
    given = of_parts((None,) * len(parts) if groups is None else groups, parts, "groups")
    masks, first = [], 0
    for own, moving, value in zip(given, moves, values, strict=True):
        if isinstance(own, grouping.Grid) and own.smooth:
            raise InputError("got a smooth grid for one of several inputs, expected grid(n): draw found.inputs instead")
        if own is None and not moving:
            mask = torch.zeros(1, *value.shape[1:], dtype=torch.int64, device=value.device)
        else:
            mask = grouping.mask_of(usual(value) if own is None else own, value)
        masks.append(mask.flatten(1) + first)
        first = int(masks[-1].max()) + 1
    count = max(map(len, masks))
    return torch.cat([mask.expand(count, -1) for mask in masks], dim=1)
