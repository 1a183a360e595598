"""Networks of a handful of neurons, from a seed: small enough to be searched whole, a hundred thousand times over."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import torch
from torch import Tensor

from proofmap import Ball, Family, Graph
from proofmap.graph import layers, pools, scalars
from proofmap.graph.build import Builder
from proofmap.graph.slide import Slide
from tests.hunting.draw import Draw

STRAIGHT = ("relu", "relu", "relu", "leaky", "clamp", "abs")
CURVED = ("tanh", "sigmoid", "gelu", "softplus", "silu")


@dataclass(frozen=True, eq=False)
class Tiny:
    """A network, inputs, a ball with groups around each, and a question about them."""

    graph: Graph  # in float64
    x: Tensor  # (N, *shape) float64
    ball: Ball
    mask: Tensor
    target: Tensor  # (N,) not always the class that is predicted
    rival: Tensor | None
    described: tuple[str, ...]

    def family(self, dtype: torch.dtype) -> Family:
        return self.ball.at(self.x.to(dtype), self.mask)


def tiny(seed: int) -> Tiny:
    """The network of a seed; the same one at every call."""
    draw = Draw("tiny", seed)
    draw.odd = False
    image = draw.chance(0.35)
    shape = (draw.whole(1, 2), 3, draw.whole(2, 3)) if image else (draw.whole(1, 4),)
    graph = _network(draw, shape)
    low, high = draw.pick([(0.0, 1.0), (-1.0, 1.0)])
    x = low + (high - low) * torch.rand(draw.pick([1, 1, 2]), *shape, generator=draw.generator, dtype=torch.float64)
    x[0] = x[0].round() if draw.chance(0.2) else x[0]  # at the edge of the domain
    norm = draw.pick([inf, inf, 1.0, 2.0])
    domain = (low, high) if draw.chance(0.6) else None
    relative = norm == inf and domain is not None and draw.chance(0.2)
    eps = draw.pick([0.05, 0.2, 0.5, 1.0])
    half = draw.pick([None, None, "+", "-"])
    ball = Ball(eps, norm, domain, half, relative)  # type: ignore[arg-type]
    mask = draw.ids(shape, draw.whole(1, 3))
    target = graph(x).argmax(1)
    if draw.chance(0.2):
        target = torch.tensor(draw.wholes(len(x), 0, graph.classes - 1))
    rival = (target + 1) % graph.classes if draw.chance(0.25) else None
    asked = f"x {x.tolist()}, target {target.tolist()}, rival {None if rival is None else rival.tolist()}"
    described = (f"{ball}, groups {mask.tolist()}", asked, *(f"{n.name}: {n.op} {n.inputs}" for n in graph.nodes))
    return Tiny(graph, x, ball, mask, target, rival, described)


def _network(draw: Draw, shape: tuple[int, ...]) -> Graph:
    """One or two blocks, a dense layer, and two or three logits; all pieces straight, or some curved."""
    kinds = STRAIGHT if draw.chance(0.75) else (*STRAIGHT, *CURVED)
    b = Builder(shape, 1)
    x = b.input
    for _ in range(draw.whole(0, 2)):
        x = _block(b, x, draw, kinds)
    flat = b.reshape("flat", x, (prod(b.shape(x)),))
    x = _bent(b, _dense(b, flat, draw, draw.whole(1, 4)), draw.pick(kinds), draw)
    x = _dense(b, x, draw, draw.whole(2, 3))
    return b.finish(x, torch.device("cpu"), torch.float64)


def _block(b: Builder, x: str, draw: Draw, kinds: tuple[str, ...]) -> str:
    shape = b.shape(x)
    spatial = len(shape) == 3 and min(shape[1:]) >= 2
    match draw.pick(["layer", "layer", "residual", "maximum", *(["pool"] if spatial else [])]):
        case "layer" if spatial:
            weight, bias = draw.weight(draw.whole(1, 2), shape[0], 2, 2), draw.tensor(1)
            slide = Slide.of((2, 2), (1, draw.whole(1, 2)), [(0, 0), (0, draw.whole(0, 1))])
            return _bent(b, layers.conv(b, "c", x, weight, bias.expand(len(weight)), slide), draw.pick(kinds), draw)
        case "layer" if len(shape) == 1:
            return _bent(b, _dense(b, x, draw, draw.whole(2, 4)), draw.pick(kinds), draw)
        case "pool":
            return pools.max_pool(b, "p", x, Slide.of((2, 2), (1, draw.whole(1, 2)), [(0, 0)] * 2))
        case kind:
            other = _bent(b, b.affine("m", x, draw.weight(*shape), draw.weight(*shape)), draw.pick(kinds), draw)
            return scalars.maximum(b, "l", x, other) if kind == "maximum" else b.add("s", x, other)


def _bent(b: Builder, x: str, kind: str, draw: Draw) -> str:
    match kind:
        case "leaky":
            return scalars.leaky_relu(b, "a", x, torch.tensor(draw.pick([0.1, 0.5, 2.0])))
        case "clamp":
            return scalars.clamp(b, "a", x, draw.pick([-1.0, 0.0]), draw.pick([0.5, 1.0]))
        case "gelu":
            return b.add_node("a", "gelu", [x], approximate="none")
        case "softplus":
            return scalars.softplus(b, "a", x, 1.0, 20.0)
        case _:
            return b.add_node("a", kind, [x])


def _dense(b: Builder, x: str, draw: Draw, out: int) -> str:
    return layers.linear(b, "l", x, draw.weight(out, b.shape(x)[0]), draw.weight(out))
