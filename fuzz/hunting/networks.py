"""Random torch networks and balls from a seed; each network contains the next operation of the reader's table."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fuzz.hunting.draw import DEAD, Draw, Undrawn
from fuzz.hunting.sketch import Network, Ref, Sketch
from fuzz.hunting.torch_layers import LAYER_MAKERS
from fuzz.hunting.torch_rows import ROW_MAKERS
from fuzz.hunting.torch_scalars import SCALAR_MAKERS, Make
from fuzz.hunting.torch_shapes import SHAPE_MAKERS
from proofmap import Ball, Family
from proofmap.graph.torch.operators.operator_table import CONVERTERS

TORCH_MAKERS: dict[str, Make] = {**SCALAR_MAKERS, **LAYER_MAKERS, **SHAPE_MAKERS, **ROW_MAKERS}

# Networks with several results contain it automatically.
_IMPLIED = {
    "<built-in function getitem>",
    "aten.zeros_like.default",
    "aten.ones_like.default",
}  # the last two: full_like

# Refused with any settings: drawn only in their turn, not as further operations.
_ALWAYS_REFUSED = {f"aten.{op}" for op in ("mean.default", "sum.default", "_native_batch_norm_legit.no_stats")}

# The weights of further operations: bounds are loose where networks have many nonlinear operations.
_KIND_WEIGHTS = (("relu", 4), ("scalar", 6), ("layer", 5), ("shape", 4), ("join", 3))
_JOINS = [f"aten.{op}" for op in ("add.Tensor", "sub.Tensor", "maximum.default", "minimum.default", "cat.default")]


def uncovered() -> set[str]:
    """Return the operations of the reader's table that no network contains."""
    return set(CONVERTERS) - set(TORCH_MAKERS) - _IMPLIED


def turns() -> list[str]:
    """Return the operations that the reader takes and the hunt can draw; each network has the next one in turn."""
    return sorted(set(CONVERTERS) & set(TORCH_MAKERS))


@dataclass(frozen=True, eq=False)
class Drawn:
    """A network with inputs, and a ball around each input with groups to freeze."""

    network: Network
    x: Tensor  # (N, *shape) float64
    ball: Ball
    mask: Tensor
    described: str  # the ball as text
    turn: str

    def family(self, dtype: torch.dtype) -> Family:
        ball = self.ball
        eps = ball.eps.to(dtype) if isinstance(ball.eps, Tensor) else ball.eps
        return Ball(eps, ball.norm, ball.domain, ball.half, ball.relative).at(self.x.to(dtype), self.mask)


def drawn(seed: int) -> Drawn:
    """Draw the network of a seed; every call with the same seed draws the same network."""
    draw = Draw("network", seed)
    turn = turns()[seed % len(turns())]
    for _ in range(20 * DEAD):
        x, ball, described = _inputs(draw, turn)
        mask = draw.ids(x.shape[1:], draw.whole(1, 4))
        probes = _probes(draw, ball.at(x))
        try:
            network = _network(draw, probes, turn)
        except Undrawn:
            continue
        return Drawn(network, x, ball, mask, described, turn)
    raise Undrawn(f"no network with {turn} was found")


def _inputs(draw: Draw, turn: str) -> tuple[Tensor, Ball, str]:
    """Draw two or three samples, some at the edge of the domain, and a ball with random settings."""
    rank = next((int(k) for k in "123" if f"{k}d" in turn), None)
    kind = draw.whole(0, 3) if rank is None else rank
    shape = (draw.whole(2, 6),) if kind == 0 else (draw.whole(1, 4), *draw.wholes(kind, 2, 7 - kind))
    count = draw.whole(2, 3)
    low, high = draw.pick([(0.0, 1.0), (-1.0, 1.0), (-2.0, 3.0)])
    x = low + (high - low) * torch.rand(count, *shape, generator=draw.generator, dtype=torch.float64)
    x[0] = torch.where(x[0] > (low + high) / 2, high, low) if draw.chance(0.2) else x[0]
    norm = draw.pick([inf, inf, 1.0, 2.0])
    tiny = 1e-310 if draw.odd and norm == inf and draw.chance(0.3) else 1.0  # ε² must not vanish
    x, low, high = x * tiny, low * tiny, high * tiny
    domain = (low, high) if draw.chance(0.6) else None
    relative = norm == inf and domain is not None and draw.chance(0.2)
    eps = torch.tensor([draw.pick([0.01, 0.1, 0.3, 1.0]) for _ in range(count)], dtype=torch.float64)
    eps = eps.clamp(max=1.0) if relative else eps * tiny
    half = draw.pick([None, None, "+", "-"])
    described = (
        f"x {tuple(x.shape)} in [{low:g}, {high:g}], eps {eps.tolist()}, norm {norm:g}, domain {domain}, half {half}"
    )
    return x, Ball(eps, norm, domain, half, relative), described + (", relative" if relative else "")  # type: ignore[arg-type]


def _probes(draw: Draw, family: Family) -> Tensor:
    """Return points of the balls, with the corners of their boxes: the network must be defined there."""
    points = torch.cat([family.sample(14, draw.generator), torch.zeros(1, *family.x.shape), *_ends(family)])
    return (family.x + points).flatten(0, 1)


def _ends(family: Family) -> tuple[Tensor, Tensor]:
    return family.project(family.lower)[None], family.project(family.upper)[None]


def _network(draw: Draw, probes: Tensor, turn: str) -> Network:
    """Draw a few operations, the one in turn, a few more, and dense layers at the end."""
    sketch = Sketch(draw, probes)
    for _ in range(draw.whole(0, 3)):
        _step(sketch)
    with sketch.attempt():
        TORCH_MAKERS[turn](sketch, turn, sketch.last)
    for _ in range(draw.whole(0, 4)):
        _step(sketch)
    _end(sketch)
    return sketch.network()


def _step(sketch: Sketch) -> None:
    """Add one more operation, mostly of the last value; none if nothing fits."""
    draw = sketch.draw
    for _ in range(DEAD):
        kind = draw.random.choices([k for k, _ in _KIND_WEIGHTS], [n for _, n in _KIND_WEIGHTS])[0]
        x = sketch.last if draw.chance(0.85) else Ref(draw.whole(0, sketch.last.index))
        op = _of_kind(draw, kind)
        try:
            with sketch.attempt():
                TORCH_MAKERS[op](sketch, op, x)
            return
        except Undrawn:
            continue


def _of_kind(draw: Draw, kind: str) -> str:
    if kind == "relu":
        return "aten.relu.default"
    if kind == "join":
        return draw.pick(_JOINS)
    table = {"scalar": SCALAR_MAKERS, "layer": LAYER_MAKERS | ROW_MAKERS, "shape": SHAPE_MAKERS}[kind]
    return draw.pick(sorted((set(table) & set(CONVERTERS)) - _ALWAYS_REFUSED))


def _end(sketch: Sketch) -> None:
    """Concatenate all values that no step has read, add a hidden layer or none, and a few logits."""
    draw = sketch.draw
    flat = None
    for leaf in sketch.leaves():
        wide = leaf if sketch[leaf].ndim > 1 else sketch.add("aten.unsqueeze.default", leaf, 1)
        row = sketch.add("aten.flatten.using_ints", wide, 1, -1)
        flat = row if flat is None else sketch.add("aten.cat.default", [flat, row], 1)
    assert flat is not None
    size = sketch.shape(flat)[0]
    if draw.chance(0.6):
        hidden = sketch.add("aten.linear.default", flat, draw.weight(5, size), draw.tensor(5))
        flat, size = sketch.add(draw.pick(["aten.relu.default", "aten.tanh.default"]), hidden), 5
    classes = draw.whole(2, 4)
    offset = draw.pick([0.0, 0.0, 100.0])  # added to all logits: only the objective "class" may see it
    sketch.add("aten.linear.default", flat, draw.weight(classes, size), draw.tensor(classes) + offset)
