"""Entries written over others, in the builder's words: where the places are known, the result is linear."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from proofmap.graph.build import Builder, Value


def choose(b: Builder, name: str, mask: Tensor, x: Value, y: Value) -> Value:
    """x where the constant mask holds, else y. What is not chosen of a constant may be infinite or NaN."""
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


def write(
    b: Builder, name: str, op: str, x: Value, source: Value, function: Callable[[Tensor, Tensor], Tensor]
) -> Value:
    """Whatever only moves entries of two values into one: `function`, of batched tensors, tried on their positions."""
    first, second = (
        b.positions(v) if isinstance(v, str) else torch.arange(v.numel()).reshape(v.shape) for v in (x, source)
    )
    positions = function(first, second + first.numel())
    if positions.ndim < 1 or positions.shape[0] != b.batch:
        raise b.mixed(name, op)
    samples = torch.arange(b.batch).reshape(-1, *(1,) * (positions.ndim - 1))
    branches = []
    shift = torch.zeros(positions.shape[1:], dtype=torch.float64)
    for value, start, count in ((x, 0, first.numel()), (source, first.numel(), second.numel())):
        inside = (positions >= start) & (positions < start + count)
        if isinstance(value, Tensor):
            taken = value.double().flatten()[torch.where(inside, positions - start, 0)]
            shift = shift + b.sample_constant(name, op, torch.where(inside, taken, 0.0), positions.ndim)
            continue
        size = prod(b.shape(value))
        local = torch.where(inside, positions - start - samples * size, -1)
        keep = local[0] >= 0
        same = torch.equal(local, local[:1].expand_as(local)) and torch.equal(keep, inside[0])
        if not same or int(local.max()) >= size:
            raise b.mixed(name, op)
        branches.append((_placed(b, f"{name}.placed", value, local[0].clamp(min=0), keep), keep))
    return _sum(b, name, branches, shift)


def _placed(b: Builder, name: str, x: str, index: Tensor, keep: Tensor) -> str:
    """The entries of x at these places, some other entry where they are not kept."""
    own = torch.arange(prod(b.shape(x)))
    if tuple(index.shape) == b.shape(x) and torch.equal(index.flatten()[keep.flatten()], own[keep.flatten()]):
        return x
    flat = b.reshape(f"{name}.flat", x, (len(own),))
    return b.reshape(name, b.index(f"{name}.index", flat, 0, index.flatten()), index.shape)


def _sum(b: Builder, name: str, branches: list[tuple[str, Tensor]], shift: Tensor) -> Value:
    """Σ x · keep + shift; a constant where nothing of any branch is kept."""
    used = [(x, keep) for x, keep in branches if bool(keep.any())]
    if not used:
        shape = torch.broadcast_shapes(shift.shape, *(b.shape(x) for x, _ in branches))
        return shift.expand(b.batch, *shape)
    constant = shift if bool(shift.any()) else None
    parts = []
    for k, (x, keep) in enumerate(used):
        mask = None if bool(keep.all()) else keep.double()
        only = len(used) == 1
        x = b.meet(name, x, shift, keep)
        parts.append(b.affine(name if only else f"{name}.part{k}", x, mask, constant if only else None))
    return parts[0] if len(parts) == 1 else b.affine(name, b.add(f"{name}.sum", *parts), None, constant)
