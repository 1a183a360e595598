"""`UnsafeRows`: the rows of the unsafe cases of several boxes of inputs, and the network over its moving inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node


@dataclass(frozen=True, eq=False)
class UnsafeRows:
    """Rows of the cases of G regions, in float64.

    An input of region g is unsafe if, for one case k, weight[g, t]·y + bias[g, t] <= 0 in all rows t with case[g, t] =
    k. Biases are lowered by all slack, so that a bound above 0 excludes a row.
    """

    weight: Tensor  # (G, T, classes)
    bias: Tensor  # (G, T); -inf if the row cannot be excluded
    case: Tensor  # (G, T) int64; -1 pads the rows of a region
    cases: int  # the largest number of cases of a region
    height: int  # the largest number of rows of a case

    @staticmethod
    def of(cases: list[list[tuple[Tensor, Tensor]]]) -> UnsafeRows:
        """Join the (weight (R, classes), bias (R,)) of each case of each region."""
        count = max(sum(len(bias) for _, bias in region) for region in cases)
        like = cases[0][0][0]
        weight = like.new_zeros(len(cases), count, like.shape[1])
        bias = like.new_zeros(len(cases), count)
        number = torch.full_like(bias, -1, dtype=torch.int64)
        for g, region in enumerate(cases):
            rows = sum(len(one) for _, one in region)
            weight[g, :rows] = torch.cat([one for one, _ in region])
            bias[g, :rows] = torch.cat([one for _, one in region])
            number[g, :rows] = torch.cat(
                [torch.full_like(one, k, dtype=torch.int64) for k, (_, one) in enumerate(region)]
            )
        height = max(len(one) for region in cases for _, one in region)
        return UnsafeRows(weight, bias, number, max(map(len, cases)), height)

    def place(self) -> Tensor:
        """Return (G, cases, height): the rows of each case, -1 for none."""
        groups, count = self.case.shape
        place = torch.full((groups, self.cases, self.height), -1, dtype=torch.int64, device=self.case.device)
        within = torch.zeros_like(self.case)
        for t in range(1, count):
            within[:, t] = torch.where(self.case[:, t] == self.case[:, t - 1], within[:, t - 1] + 1, 0)
        region, row = (self.case >= 0).nonzero(as_tuple=True)
        place[region, self.case[region, row], within[region, row]] = row
        return place

    def depth(self, outputs: Tensor, region: Tensor) -> Tensor:
        """Return (K,) how deep outputs (K, classes) of regions (K,) are in a case: at least 0 if a case is met.

        The depth in a case is the smallest -(a·y + b) of its rows, and the largest depth in a case counts.
        """
        value = -((self.weight[region] @ outputs[:, :, None]).squeeze(2) + self.bias[region])
        value = value.nan_to_num(nan=-torch.inf, posinf=torch.finfo(value.dtype).max)
        case = self.case[region]
        least = value.new_full((len(value), self.cases), torch.inf)
        least = least.scatter_reduce(1, case.clamp(min=0), torch.where(case >= 0, value, torch.inf), "amin")
        return torch.where(least == torch.inf, -torch.inf, least).amax(1)

    def of_region(self, number: int) -> UnsafeRows:
        """Return the rows of one region."""
        some = slice(number, number + 1)
        return replace(self, weight=self.weight[some], bias=self.bias[some], case=self.case[some])

    def to(self, device: torch.device) -> UnsafeRows:
        """Return the rows on a device."""
        return replace(self, weight=self.weight.to(device), bias=self.bias.to(device), case=self.case.to(device))


@dataclass(frozen=True, eq=False)
class MovingInputs:
    """The m inputs that differ within the regions or between them. All others have one value."""

    base: Tensor  # (*shape) float64
    index: Tensor  # (m,) flat indices of the moving inputs

    @staticmethod
    def of(lower: Tensor, upper: Tensor) -> MovingInputs:
        """Find the moving inputs of boxes (G, *shape)."""
        low, high = lower.flatten(1).amin(0), upper.flatten(1).amax(0)
        return MovingInputs(lower[0], (low < high).nonzero().flatten())

    def pick(self, points: Tensor) -> Tensor:
        """Return the moving inputs (N, m) of points (N, *shape)."""
        return points.flatten(1)[:, self.index]

    def points(self, moving: Tensor) -> Tensor:
        """Return the points (N, *shape) with these moving inputs (N, m)."""
        flat = self.base.flatten().to(moving).repeat(len(moving), 1)
        flat[:, self.index] = moving
        return flat.view(-1, *self.base.shape)

    def graph(self, graph: Graph) -> Graph:
        """Return the network as a function of its moving inputs.

        The values of the inputs are those of one more linear layer. Its rounding errors are at least those of
        rounding an input to float32.
        """
        start, count = graph.input, len(self.index)
        weight = torch.zeros(self.base.numel(), count, dtype=self.base.dtype, device=self.index.device)
        weight[self.index, torch.arange(count, device=self.index.device)] = 1
        bias = self.base.flatten().to(weight).clone()
        bias[self.index] = 0
        flat, moving = f"{start.name}.flat", f"{start.name}.moving"
        shape: dict[str, Any] = {"shape": start.shape}
        nodes = (
            Node(moving, "input", (), (count,)),
            Node(flat, "linear", (moving,), (start.size,), weight, bias),
            Node(start.name, "reshape", (flat,), start.shape, attributes=shape),
        )
        return replace(graph, nodes=(*nodes, *graph.nodes[1:]), file=None, parts=())
