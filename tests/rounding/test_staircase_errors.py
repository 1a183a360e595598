"""Staircases in float32: rounding errors decide at ties, and rigorous bounds hold for both sides."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph import Graph
from proofmap.graph.ir import Node
from proofmap.rounding.magnitudes import MAGNITUDES
from proofmap.rules import Interval
from proofmap.rules.rounding_steps import STEEPEST, Round

INPUTS, STAIRS = 40, 6


class Stairs(nn.Module):
    """Two dense layers with rounding to whole numbers between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, STAIRS), nn.Linear(STAIRS, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(torch.round(self.first(x)))
        return found


def at_ties(seed: int) -> tuple[Graph, Tensor, Node]:
    """Return a network whose every number is at a tie at x, and its first layer."""
    torch.manual_seed(seed)
    x = torch.rand(1, INPUTS)
    graph = pm.trace(Stairs(), x)
    first = next(node for node in graph.nodes if node.op == "linear")
    assert first.weight is not None
    weight = 300 * first.weight
    ties = torch.randint(-3, 3, (STAIRS,)) + 0.5
    bias = (ties - weight.double() @ x[0].double()).float()
    layer = replace(first, weight=weight, bias=bias)
    return replace(graph, nodes=tuple(layer if node is first else node for node in graph.nodes)), x, layer


def in_every_order(graph: Graph, x: Tensor, layer: Node, seed: int) -> Tensor:
    """Return the logits where float32 sums up the first layer in many orders."""
    random, second = np.random.default_rng(seed), graph.nodes[-1]
    assert layer.weight is not None
    assert layer.bias is not None
    assert second.weight is not None
    assert second.bias is not None
    terms = np.concatenate([(layer.weight * x).numpy(), layer.bias[:, None].numpy()], 1)
    found = []
    for _ in range(40):
        summed = np.zeros(STAIRS, np.float32)
        for column in random.permutation(terms.shape[1]):
            summed = summed + terms[:, column]
        found.append(torch.round(torch.from_numpy(summed)) @ second.weight.T + second.bias)
    return torch.stack(found)


def margins(logits: Tensor, target: int) -> Tensor:
    return logits[:, 1 - target] - logits[:, target]


@pytest.mark.parametrize("method", [pm.bounds.IBP(), pm.bounds.Backward(), pm.bounds.CrownIBP()], ids=repr)
def test_bounds_hold_in_every_order_of_summation(method: pm.bounds.Method) -> None:
    exceeded = 0
    for seed in range(12):
        graph, x, layer = at_ties(seed)
        logits = in_every_order(graph, x, layer, seed)
        assert len(logits.unique(dim=0)) > 1  # a rounding moves values by whole steps
        over = pm.overlap(graph, x, pm.Ball(1e-12), bounds=method, rigorous=True)
        found = margins(logits, int(over.target))
        assert over.rigorous
        assert bool((over.full_lower <= found).all())
        assert bool((found <= over.full).all())
        fast = pm.overlap(graph, x, pm.Ball(1e-12), bounds=method, rigorous=False)
        exceeded += bool((found > fast.full).any())
    assert exceeded > 2  # these networks show whether rounding is covered


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [None, 0.0, 1.0, 50.0])
def test_lines_are_above_and_below_all_that_float32_may_take_a_number_for(
    share: float | None, dtype: torch.dtype
) -> None:
    """u is off by up to 64 roundings of itself and of the levels. Lines hold with the payment for their rounding."""
    node = Node("r", "round", ("x",), (1,), attributes={"step": 0.1, "low": -100.0, "high": 155.0})
    generator = torch.Generator().manual_seed(0)
    centre = 0.1 * (torch.randint(-20, 20, (400,), generator=generator) + 0.5).double()
    width = 0.1 * 10 ** (-6 * torch.rand(400, generator=generator).double())
    x = Interval((centre - width * torch.rand(400, generator=generator)).to(dtype), (centre + width).to(dtype))
    slopes = None if share is None else torch.full((400, 2), share / 0.1, dtype=dtype)
    lines, interval = Round().lines(node, x, slopes), Round().interval(node, x)
    assert lines.lower_bias is not None
    assert float(torch.maximum(lines.lower_slope, lines.upper_slope).max()) <= STEEPEST / 0.1 * (1 + 1e-6)
    paid = MAGNITUDES["round"](node, x)
    for place in torch.linspace(0, 1, 9):
        at = x.lower.double() + place * (x.upper.double() - x.lower.double())
        u = at / 0.1
        for sign in (-1, 0, 1):
            off = sign * 64 * 2.0**-24 * (u.abs() + 155)
            y = torch.round(u + off).clamp(-100, 155)
            assert bool(((interval.lower <= y) & (y <= interval.upper)).all())
            room = 32 * torch.finfo(dtype).eps * (paid.slopes + paid.biases)
            below = lines.lower_slope.double() * at + lines.lower_bias.double()
            above = lines.upper_slope.double() * at + lines.upper_bias.double()
            assert bool((below - room <= y).all())
            assert bool((y <= above + room).all())


def test_magnitudes_bound_every_line() -> None:
    """The bound holds for every part of the interval and for any slopes."""
    node = Node("r", "round", ("x",), (1,), attributes={"step": 0.25, "low": -inf, "high": inf})
    generator = torch.Generator().manual_seed(1)
    ends = (8 * (torch.rand(2, 500, generator=generator).double() - 0.5)).sort(0).values
    whole = MAGNITUDES["round"](node, Interval(ends[0], ends[1]))
    for share in torch.rand(20, 2, generator=generator).double():
        low, high = (ends[0] + s * (ends[1] - ends[0]) for s in share.sort().values)
        for slopes in (None, torch.full((500, 2), 1e3).double()):
            lines = Round().lines(node, Interval(low, high), slopes)
            assert lines.lower_bias is not None
            far = torch.maximum(low.abs(), high.abs())
            for slope, bias in ((lines.lower_slope, lines.lower_bias), (lines.upper_slope, lines.upper_bias)):
                assert bool((slope * far <= whole.slopes + 1e-12).all())
                assert bool((bias.abs() <= whole.biases + 1e-12).all())
