"""Entries moved within a value or over those of another, in the builder's words: with known places, that is linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder.graph_builder import Builder, MixedError, Value, scalar


def choose(b: Builder, name: str, mask: Tensor, x: Value, y: Value) -> Value:
    """x where the constant mask holds, else y. What is not chosen is not read: it may be infinite or NaN."""
    rank = max(b.rank(value) for value in (x, y) if isinstance(value, str))
    mask = b.sample_constant(name, "where", mask.bool(), rank)
    kept = [(x, mask), (y, ~mask)]
    shift = torch.zeros(mask.shape, dtype=torch.float64)
    for value, keep in kept:
        if isinstance(value, Tensor):
            shift = shift + torch.where(keep, b.sample_constant(name, "where", value.double(), rank), 0.0)
    branches = [(value, keep) for value, keep in kept if isinstance(value, str)]
    if len(branches) == 2:
        pair = b.broadcast(name, branches[0][0], branches[1][0])
        branches = [(value, keep) for value, (_, keep) in zip(pair, branches, strict=True)]
    return _sum(b, name, branches, shift)


def triangle(b: Builder, name: str, op: str, x: str, keep: Callable[[Tensor], Tensor]) -> Value:
    """What `keep` leaves of matrices, on or beyond a diagonal, with zeros elsewhere."""
    if len(b.shape(x)) < 2:
        raise MixedError(name, op)
    return choose(b, name, keep(torch.ones(b.shape(x)[-2:], dtype=torch.bool)), x, scalar(0.0))


@dataclass(frozen=True)
class Entries:
    """Entries of values by their numbers: a branch has one for each entry of a batch, and values follow each other."""

    values: tuple[Value, ...]
    positions: Tensor

    @staticmethod
    def of(b: Builder, value: Value) -> Entries:
        shape = b.batched(value)
        return Entries((value,), torch.arange(prod(shape)).reshape(shape))


def move(b: Builder, name: str, op: str, x: str, function: Callable[[Tensor], Tensor]) -> str:
    """Whatever only moves, repeats or drops entries: `function`, of batched tensors, tried on their positions."""
    y = _gathered(b, name, op, Entries((x,), function(Entries.of(b, x).positions)))
    assert isinstance(y, str)
    return y


def write(
    b: Builder, name: str, op: str, x: Value, source: Value, function: Callable[[Tensor, Tensor], Tensor]
) -> Value:
    """The same of two values: entries of the second may stand in the place of the first's."""
    return _gathered(b, name, op, merge(b, Entries.of(b, x), Entries.of(b, source), function))


def _gathered(b: Builder, name: str, op: str, entries: Entries) -> Value:
    y = gather(b, name, entries)
    if y is None:
        raise MixedError(name, op)
    return y


def merge(b: Builder, x: Entries, source: Entries, function: Callable[[Tensor, Tensor], Tensor]) -> Entries:
    """What `function` makes of the positions of both."""
    start = sum(prod(b.batched(value)) for value in x.values)
    return Entries((*x.values, *source.values), function(x.positions, source.positions + start))


def gather(b: Builder, name: str, entries: Entries) -> Value | None:
    """One sample's entries as a value; None where the samples do not come first, or one would hold those of another."""
    positions = entries.positions if b.lead else entries.positions[None]
    if positions.ndim < 1 or positions.shape[0] != b.batch:
        return None
    samples = torch.arange(b.batch).reshape(-1, *(1,) * (positions.ndim - 1))
    taken: list[tuple[str, Tensor, Tensor]] = []  # a branch, which of its entries, and where they stand
    shift = torch.zeros(positions.shape[1:], dtype=torch.float64)
    start = 0
    for value in entries.values:
        local, count = positions - start, prod(b.batched(value))
        inside = (local >= 0) & (local < count)
        start += count
        if isinstance(value, Tensor):
            placed = torch.where(inside, value.double().flatten()[torch.where(inside, local, 0)], 0.0)
            if not torch.equal(placed, placed[:1].expand_as(placed)):
                return None
            shift = shift + placed[0]
            continue
        size = prod(b.shape(value))
        local = torch.where(inside, local - samples * size, -1)
        if not torch.equal(local, local[:1].expand_as(local)) or int(local.max()) >= size:
            return None
        taken.append((value, local[0].clamp(min=0), inside[0]))
    whole = len(taken) == 1 and bool(taken[0][2].all())
    place = name if whole else f"{name}.placed"
    return _sum(b, name, [(_placed(b, place, value, index, keep), keep) for value, index, keep in taken], shift)


def _placed(b: Builder, name: str, x: str, index: Tensor, keep: Tensor) -> str:
    """The entries of x at these places, some other entry where they are not kept."""
    still = torch.arange(prod(b.shape(x)))
    if tuple(index.shape) == b.shape(x) and torch.equal(index.flatten()[keep.flatten()], still[keep.flatten()]):
        return x
    flat = b.reshape(f"{name}.flat", x, (len(still),))
    return b.reshape(name, picks.index(b, f"{name}.index", flat, 0, index.flatten()), index.shape)


def _sum(b: Builder, name: str, branches: list[tuple[str, Tensor]], shift: Tensor) -> Value:
    """Σ x · keep + shift, which reads what is kept and no more; a constant where nothing of any branch is kept."""
    used = [(x, keep) for x, keep in branches if bool(keep.any())]
    if not used:
        shape = torch.broadcast_shapes(shift.shape, *(b.shape(x) for x, _ in branches))
        return shift.expand(*(b.batch,) * b.lead, *shape)
    constant = shift if bool(shift.any()) else None
    parts, only = [], len(used) == 1
    for k, (x, keep) in enumerate(used):
        part, bias = (name, constant) if only else (f"{name}.part{k}", None)
        x = b.meet(name, x, shift, keep)
        if bool(keep.all()):
            parts.append(b.affine(part, x, None, bias))
        else:
            parts.append(b.add_node(part, "keep", [x], weight=keep.double(), bias=bias))
    if only:
        return parts[0]
    total = parts[0]
    for part in parts[1:]:
        total = b.add(f"{name}.sum", total, part)
    return b.affine(name, total, None, constant)
