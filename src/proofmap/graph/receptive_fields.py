"""Receptive fields: the input positions that an output position of a map reads. Geometry only, no data.

A position of a map (C, *spatial) is an index into its spatial axes, all channels together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from proofmap.graph.ir import Node

Shapes = Sequence[tuple[int, ...]]  # shapes of a node's inputs, each with as many axes as the node itself
Ends = tuple[Tensor, Tensor]  # the first and the last position of a box, each (G, D) int64 on the CPU


@dataclass(frozen=True, eq=False)
class Window:
    """Boxes of one size, one for each group u: the positions corner[u] <= p < corner[u] + size of a map."""

    corner: Tensor  # (G, D) int64, on the CPU
    size: tuple[int, ...]

    def same(self, other: Window) -> bool:
        return self.size == other.size and torch.equal(self.corner, other.corner)


@dataclass(frozen=True)
class ReceptiveField:
    """Output position o reads, on each axis, the input positions o · stride - padding + j · dilation for j < kernel."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """The side lengths of the box that one output reads."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    def read(self, out: Window) -> Window:
        """Return the input positions that a window of outputs reads; some may lie in the padding."""
        size = tuple((n - 1) * s + e for n, s, e in zip(out.size, self.stride, self.extent, strict=True))
        return Window(out.corner * torch.tensor(self.stride) - torch.tensor(self.padding), size)

    def changed(self, low: Tensor, high: Tensor, shape: Sequence[int]) -> Ends:
        """Return the first and last outputs (G, D) that read some input from `low` to `high`.

        ⌈(low + padding - dilation (kernel - 1)) / stride⌉ <= o <= ⌊(high + padding) / stride⌋, within the output.
        """
        stride, padding = torch.tensor(self.stride), torch.tensor(self.padding)
        span = torch.tensor(self.extent, dtype=torch.int64) - 1
        end = torch.tensor(shape, dtype=torch.int64) - 1
        first = (-((span - low - padding) // stride)).clamp(min=0).minimum(end)
        last = ((high + padding) // stride).minimum(end)
        return first, last.maximum(first)  # if no output reads the box, any position is returned


def no_window(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs that may read any input: no window."""
    return None


def same_place(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs that read the entry at the same position of each input."""
    return _single_position(node) if all(shape == node.shape for shape in shapes) else None


def same_position(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs that read one channel at the same position; None for inputs joined along a spatial axis."""
    return _single_position(node) if all(shape[1:] == node.shape[1:] for shape in shapes) else None


def convolution_window(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs of a convolution."""
    assert node.weight is not None
    a = node.attributes
    return ReceptiveField(tuple(node.weight.shape[2:]), a["stride"], a["padding"], a["dilation"])


def pooling_window(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs of a pool."""
    a = node.attributes
    return ReceptiveField(a["kernel"], a["stride"], a["padding"], a.get("dilation", (1,) * len(a["kernel"])))


def padding_window(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Outputs of a zero-padded map; outputs in the padding read positions outside the input."""
    rank, pads = len(node.shape) - 1, node.attributes["pads"]
    if node.attributes["mode"] != "constant" or any(pads[2 * rank :]):
        return None
    before = [*pads[::2], *(0,) * rank][:rank]
    return ReceptiveField((1,) * rank, (1,) * rank, tuple(before[::-1]), (1,) * rank)


def _single_position(node: Node) -> ReceptiveField:
    rank = len(node.shape) - 1
    return ReceptiveField((1,) * rank, (1,) * rank, (0,) * rank, (1,) * rank)
