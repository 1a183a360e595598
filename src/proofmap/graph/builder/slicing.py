"""Indexing, slicing, splitting, concatenation and padding along axes of one sample."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, Value, scalar

_NUMPY_PAD_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def index(b: Builder, name: str, x: str, axis: int, index: Tensor) -> str:
    """Add the entries at constant positions along an axis of one sample (negative ones count from the end)."""
    size = b.shape(x)[axis]
    if index.numel() and not -size <= int(index.min()) <= int(index.max()) < size:
        raise ModelError(f"node {name!r} reads outside an axis of size {size}")
    index = torch.where(index < 0, index + size, index)
    if torch.equal(index, torch.arange(size)):
        return x
    return b.add_node(name, "index", [x], axis=axis, index=index)


def resample(b: Builder, name: str, x: str, positions: Sequence[Tensor]) -> str:
    """Add the entries of the last axes at given positions, one tensor of positions for each axis."""
    first = len(b.shape(x)) - len(positions)
    for k, position in enumerate(positions[:-1]):
        x = index(b, f"{name}.axis{first + k}", x, first + k, position)
    return index(b, name, x, first + len(positions) - 1, positions[-1])


def slice(b: Builder, name: str, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
    """Add a Python slice along an axis of one sample."""
    whole = range(b.shape(x)[axis])
    taken = whole[start:stop:step]
    if taken == whole:
        return x
    return b.add_node(name, "slice", [x], axis=axis, range=(taken.start, taken.stop, taken.step))


def split(b: Builder, name: str, x: str, axis: int, sizes: Sequence[int]) -> list[str]:
    """Add consecutive parts of these sizes along an axis of one sample."""
    ends = list(accumulate(sizes))
    pairs = zip(ends, sizes, strict=True)
    return [slice(b, f"{name}.{k}", x, axis, end - size, end) for k, (end, size) in enumerate(pairs)]


def concat(b: Builder, name: str, op: str, xs: Sequence[Value], axis: int) -> str:
    """Add a concatenation along an axis of the batched values.

    A constant becomes a slice of a computed value times zero, plus the constant.
    """
    xs = [x for x in xs if isinstance(x, str) or tuple(x.shape) != (0,)]  # torch skips these, as in empty caches
    first = next(x for x in xs if isinstance(x, str))
    axis = b.axis(name, op, axis, b.rank(first))
    if len(xs) == 1:
        return first
    parts = []
    for k, x in enumerate(xs):
        if isinstance(x, str):
            parts.append(x)
            continue
        if x.ndim != b.rank(first):
            raise ModelError(f"concat (node {name!r}) joins a constant of shape {tuple(x.shape)} to another rank")
        constant = b.sample_constant(name, "concat", x, x.ndim)
        if constant.numel():
            zeros = torch.zeros(constant.shape[axis], dtype=torch.long)
            part = b.add_node(f"{name}.like{k}", "index", [first], axis=axis, index=zeros)
            parts.append(b.affine(f"{name}.constant{k}", part, scalar(0.0), constant))
    return b.add_node(name, "concat", parts, axis=axis)


def pad(b: Builder, name: str, x: str, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> str:
    """Add padding in torch's order: last axis first, (before, after). Negative numbers crop."""
    shape = b.shape(x)
    if any(pads[2 * len(shape) :]):
        raise MixedSamplesError(name, "pad")
    pads = tuple(pads[: 2 * len(shape)])
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    if not any(pads):
        return x
    for k, pair in enumerate(pairs):
        b.check_size(name, "pad", (sum(pair) + shape[-1 - k],))
    if mode == "constant":
        y = b.add_node(f"{name}.zeros", "pad", [x], pads=pads, mode=mode)
        if value == 0.0:
            return y
        frame = F.pad(torch.zeros(shape, dtype=torch.float64), pads, value=value)
        return b.affine(name, y, None, frame)
    if mode != "circular" and min(pads) >= 0 and len(pairs) <= 3 and len(pairs) in (len(shape) - 1, len(shape)):
        return b.add_node(name, "pad", [x], pads=pads, mode=mode)
    positions = [_padded_positions(n, pair, mode) for n, pair in zip(reversed(shape), pairs, strict=False)]
    return resample(b, name, x, positions[::-1])


def _padded_positions(size: int, pads: tuple[int, int], mode: str) -> Tensor:
    """Return, for each entry of a padded axis, the position of the entry that it copies.

    Cropped entries are not wrapped around.
    """
    before, after = pads
    entries = np.arange(size)
    if mode == "circular":
        entries, before, after = entries[max(-before, 0) : size - max(-after, 0)], max(before, 0), max(after, 0)
    padded = np.pad(entries, (max(before, 0), max(after, 0)), mode=_NUMPY_PAD_MODES[mode])
    return torch.from_numpy(padded[max(-before, 0) : len(padded) - max(-after, 0)].copy())
