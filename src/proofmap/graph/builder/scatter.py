"""Scatter, gather and selection by masks: with constant positions these operations are linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, Value, scalar
from proofmap.graph.builder.output_shapes import broadcast_shapes


def select(b: Builder, name: str, mask: Tensor, x: Value, y: Value) -> Value:
    """Add x where the constant mask is True, else y. Entries that are not selected may be infinite or NaN."""
    rank = max(b.rank(value) for value in (x, y) if isinstance(value, str))
    mask = b.sample_constant(name, "where", mask.bool(), rank)
    kept = [(x, mask), (y, ~mask)]
    shift = torch.zeros(mask.shape, dtype=torch.float64)
    for value, keep in kept:
        if isinstance(value, Tensor):
            shift = shift + torch.where(keep, b.sample_constant(name, "where", value.double(), rank), 0.0)
    computed = [(value, keep) for value, keep in kept if isinstance(value, str)]
    if len(computed) == 2:
        pair = b.broadcast(name, computed[0][0], computed[1][0])
        computed = [(value, keep) for value, (_, keep) in zip(pair, computed, strict=True)]
    return _masked_sum(b, name, computed, shift)


def keep_triangle(b: Builder, name: str, op: str, x: str, keep: Callable[[Tensor], Tensor]) -> Value:
    """Add a triangle of matrices (tril or triu, chosen by `keep`), with zeros elsewhere."""
    if len(b.shape(x)) < 2:
        raise MixedSamplesError(name, op)
    return select(b, name, keep(torch.ones(b.shape(x)[-2:], dtype=torch.bool)), x, scalar(0.0))


@dataclass(frozen=True)
class EntryPositions:
    """Entries of several values, by position numbers.

    Each value has one number for each entry of a batch; the numbers of successive values follow each other.
    """

    values: tuple[Value, ...]
    positions: Tensor

    @staticmethod
    def of(b: Builder, value: Value) -> EntryPositions:
        shape = b.batched_shape(value)
        return EntryPositions((value,), torch.arange(prod(shape)).reshape(shape))


def rearrange(b: Builder, name: str, op: str, x: str, function: Callable[[Tensor], Tensor]) -> str:
    """Add an operation that only moves, repeats or drops entries of x.

    `function` maps batched tensors; it is applied to the positions of the entries.
    """
    y = _gather_or_refuse(b, name, op, EntryPositions((x,), function(EntryPositions.of(b, x).positions)))
    assert isinstance(y, str)
    return y


def overwrite(
    b: Builder, name: str, op: str, x: Value, source: Value, function: Callable[[Tensor, Tensor], Tensor]
) -> Value:
    """Add an operation that writes entries of `source` over entries of x."""
    return _gather_or_refuse(
        b, name, op, merge_entries(b, EntryPositions.of(b, x), EntryPositions.of(b, source), function)
    )


def _gather_or_refuse(b: Builder, name: str, op: str, entries: EntryPositions) -> Value:
    y = gather_entries(b, name, entries)
    if y is None:
        raise MixedSamplesError(name, op)
    return y


def merge_entries(
    b: Builder, x: EntryPositions, source: EntryPositions, function: Callable[[Tensor, Tensor], Tensor]
) -> EntryPositions:
    """Return the entries after `function` has combined the positions of both."""
    start = sum(prod(b.batched_shape(value)) for value in x.values)
    return EntryPositions((*x.values, *source.values), function(x.positions, source.positions + start))


def gather_entries(b: Builder, name: str, entries: EntryPositions) -> Value | None:
    """Add a value with these entries for one sample.

    None if the samples are not on the first axis, or if a sample would contain entries of another one.
    """
    positions = entries.positions if b.batch_axes else entries.positions[None]
    if positions.ndim < 1 or positions.shape[0] != b.batch:
        return None
    samples = torch.arange(b.batch).reshape(-1, *(1,) * (positions.ndim - 1))
    taken: list[tuple[str, Tensor, Tensor]] = []  # a computed value, the entries to read, and a mask of their places
    shift = torch.zeros(positions.shape[1:], dtype=torch.float64)
    start = 0
    for value in entries.values:
        local, count = positions - start, prod(b.batched_shape(value))
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
    return _masked_sum(
        b, name, [(_read_entries(b, place, value, index, keep), keep) for value, index, keep in taken], shift
    )


def _read_entries(b: Builder, name: str, x: str, index: Tensor, keep: Tensor) -> str:
    """Add the entries of x at these positions; where `keep` is False, any entry may stand."""
    still = torch.arange(prod(b.shape(x)))
    if tuple(index.shape) == b.shape(x) and torch.equal(index.flatten()[keep.flatten()], still[keep.flatten()]):
        return x
    flat = b.reshape(f"{name}.flat", x, (len(still),))
    return b.reshape(name, slicing.index(b, f"{name}.index", flat, 0, index.flatten()), index.shape)


def _masked_sum(b: Builder, name: str, computed: list[tuple[str, Tensor]], shift: Tensor) -> Value:
    """Add Σ x · keep + shift, which reads only kept entries; a constant if no entry is kept."""
    used = [(x, keep) for x, keep in computed if bool(keep.any())]
    if not used:
        shape = broadcast_shapes(shift.shape, *(b.shape(x) for x, _ in computed))
        return shift.expand(*(b.batch,) * b.batch_axes, *shape)
    constant = shift if bool(shift.any()) else None
    parts, only = [], len(used) == 1
    for k, (x, keep) in enumerate(used):
        part, bias = (name, constant) if only else (f"{name}.part{k}", None)
        x = b.broadcast_to(name, x, shift, keep)
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
