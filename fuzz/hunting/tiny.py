"""Tiny networks from a seed: a handful of neurons, so that an exact search takes milliseconds.

They contain the operations that branch and bound can split, with a few unstable units each. One network of
`_CURVED_PERIOD` contains a curved function, because curves take ten times as long as kinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import torch
from torch import Tensor

from fuzz.hunting.draw import Draw
from proofmap import Ball, Family, Graph
from proofmap.graph.builder import pooling, scalar_functions, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, scalar
from proofmap.graph.sliding_windows import SlidingWindow
from proofmap.rules import RULES
from proofmap.rules.scalar_lines import Scalar

PIECEWISE_LINEAR = ("relu", "relu", "relu", "leaky", "clamp", "abs")
CURVED = (
    *("tanh", "sigmoid", "gelu", "softplus", "silu", "elu", "erf", "softsign", "mish", "hardswish", "square", "exp"),
    *("log", "sqrt", "reciprocal", "shrink", "threshold", "rsqrt", "round", "sin", "cos", "floor", "sign"),
)
_CURVED_PERIOD = 40  # networks from one curved function to the next


def searchable_operations() -> set[str]:
    """Return the nonlinear operations that a search can split: functions of one scalar, and maxima of pairs."""
    alone = {op for op, rule in RULES.items() if isinstance(rule, Scalar)}
    return alone | {"maximum", "max_pool"}


@dataclass(frozen=True, eq=False)
class Tiny:
    """A network with inputs, a ball with groups around each input, and a target class."""

    graph: Graph  # in float64
    x: Tensor  # (N, *shape) float64
    ball: Ball
    mask: Tensor
    target: Tensor  # (N,), not always the predicted class
    rival: Tensor | None

    def family(self, dtype: torch.dtype) -> Family:
        return self.ball.at(self.x.to(dtype), self.mask)

    @property
    def described(self) -> tuple[str, ...]:
        rival = None if self.rival is None else self.rival.tolist()
        asked = f"x {self.x.tolist()}, target {self.target.tolist()}, rival {rival}"
        nodes = (f"{node.name}: {node.op} {node.inputs}" for node in self.graph.nodes)
        return (f"{self.ball}, groups {self.mask.tolist()}", asked, *nodes)


def tiny(seed: int) -> Tiny:
    """Draw the network of a seed; every call with the same seed draws the same network."""
    draw = Draw("tiny", seed)
    draw.odd = False
    image = draw.chance(0.2)
    shape = (draw.whole(1, 2), 3, draw.whole(2, 3)) if image else (draw.whole(2, 5),)
    number, turn = divmod(seed, _CURVED_PERIOD)
    graph = _network(draw, shape, CURVED[number % len(CURVED)] if turn == 0 else None)
    low, high = draw.pick([(0.0, 1.0), (-1.0, 1.0)])
    count = 2 if draw.chance(0.1) else 1
    x = low + (high - low) * torch.rand(count, *shape, generator=draw.generator, dtype=torch.float64)
    x[0] = x[0].round() if draw.chance(0.1) else x[0]  # at the edge of the domain
    norm = draw.pick([*[inf] * 10, 1.0, 2.0])
    domain = (low, high) if draw.chance(0.5) else None
    relative = norm == inf and domain is not None and draw.chance(0.2)
    eps = draw.pick([0.2, 0.5, 1.0]) if norm == inf else draw.pick([0.5, 1.0, 2.0])
    half = draw.pick([None, None, "+", "-"])
    ball = Ball(eps, norm, domain, half, relative)  # type: ignore[arg-type]
    mask = draw.ids(shape, draw.whole(1, 3))
    target = graph(x).argmax(1)
    if draw.chance(0.2):
        target = torch.tensor(draw.wholes(len(x), 0, graph.classes - 1))
    rival = (target + 1) % graph.classes if draw.chance(0.25) else None
    return Tiny(graph, x, ball, mask, target, rival)


def _network(draw: Draw, shape: tuple[int, ...], curved: str | None) -> Graph:
    """Draw one or two blocks, a dense layer, and two or three logits; at most one activation is curved."""
    b = Builder(shape, 1)
    x = b.input
    for _ in range(draw.whole(0, 2)):
        x = _block(b, x, draw)
    flat = b.reshape("flat", x, (prod(b.shape(x)),))
    few = (1, 3) if curved else (4, 6)
    x = _bent(b, _dense(b, flat, draw, draw.whole(*few)), curved or draw.pick(PIECEWISE_LINEAR), draw)
    x = _dense(b, x, draw, draw.whole(2, 3))
    return b.finish(x, torch.device("cpu"), torch.float64)


def _block(b: Builder, x: str, draw: Draw) -> str:
    shape = b.shape(x)
    spatial = len(shape) == 3 and min(shape[1:]) >= 2
    match draw.pick(["layer", "layer", "residual", "maximum", *(["pool"] * 2 if spatial else [])]):
        case "layer" if spatial:
            weight, bias = draw.weight(draw.whole(1, 2), shape[0], 2, 2), draw.tensor(1)
            slide = SlidingWindow.of((2, 2), (1, draw.whole(1, 2)), [(0, 0), (0, draw.whole(0, 1))])
            layer = weighted_layers.conv(b, "c", x, weight, bias.expand(len(weight)), slide)
            return _bent(b, layer, draw.pick(PIECEWISE_LINEAR), draw)
        case "layer" if len(shape) == 1:
            return _bent(b, _dense(b, x, draw, draw.whole(2, 4)), draw.pick(PIECEWISE_LINEAR), draw)
        case "pool":
            return pooling.max_pool(b, "p", x, SlidingWindow.of((2, 2), (1, draw.whole(1, 2)), [(0, 0)] * 2))
        case kind:
            scaled = b.affine("m", x, draw.weight(*shape), draw.weight(*shape))
            other = _bent(b, scaled, draw.pick(PIECEWISE_LINEAR), draw)
            return scalar_functions.maximum(b, "l", x, other) if kind == "maximum" else b.add("s", x, other)


def _bent(b: Builder, x: str, kind: str, draw: Draw) -> str:
    match kind:
        case "leaky":
            return scalar_functions.leaky_relu(b, "a", x, torch.tensor(draw.pick([0.1, 0.5, 2.0])))
        case "clamp":
            low = draw.pick([-inf, -1.0, -1.0, 0.0])
            return scalar_functions.clamp(
                b, "a", x, low, draw.pick([0.5, 1.0, 1.0, inf]) if low < 0 else draw.pick([0.5, 1.0])
            )
        case "gelu":
            return b.add_node("a", "gelu", [x], approximate="none")
        case "softplus":
            return scalar_functions.softplus(b, "a", x, 1.0, 20.0)
        case "elu":
            return scalar_functions.elu(b, "a", x, draw.pick([0.5, 1.0]))
        case "shrink":
            return scalar_functions.shrink(b, "a", x, *draw.pick([(0.5, 0.5), (0.5, 0.0)]))
        case "threshold":
            return scalar_functions.threshold(b, "a", x, 0.2, draw.pick([0.0, 1.0]))
        case "round":
            return scalar_functions.round_steps(
                b, "a", x, draw.pick([0.25, 0.5]), *draw.pick([(-inf, inf), (-3.0, 4.0)])
            )
        case "sign":
            return scalar_functions.sign(b, "a", x, draw.pick([0.0, 1.0]))
        case "log" | "sqrt" | "reciprocal" | "rsqrt":  # defined for numbers above 0
            return b.add_node("a", kind, [b.affine("d", b.add_node("e", "abs", [x]), scalar(1.0), scalar(0.3))])
        case _:
            return b.add_node("a", kind, [x])


def _dense(b: Builder, x: str, draw: Draw, out: int) -> str:
    return weighted_layers.linear(b, "l", x, draw.weight(out, b.shape(x)[0]), draw.tensor(out, scale=0.5))
