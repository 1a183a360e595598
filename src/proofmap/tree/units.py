"""A network on a ball as its open units: what bends there, and nothing else.

Where the interval of a value shows on which side of every kink it lies, an operation is linear. What is left are units,
each a function of one number, u_k = σ_k(z_k), and everything between them is linear:

    z = A δ + b + M u,        row r of the specification = a_r·δ + c_r + m_r·u,        δ in the ball.

Kinks are ReLUs: max(x, y) = x + max(y - x, 0), |x| = 2 max(x, 0) - x, and so on (`Bends`). Other functions of one number
are units as they are. M is strictly lower triangular by levels, one for each operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds import facts
from proofmap.bounds.linear import rewrite
from proofmap.family import Family
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Forms, Interval, Nonlinear, Relaxation
from proofmap.rules.lines import Scalar

_ROWS = 2**24  # numbers of forms that are sent back together


@dataclass(frozen=True, eq=False)
class Level:
    """The units of one operation: columns start to stop. node: None for ReLUs, else the function they are."""

    start: int
    stop: int
    node: Node | None

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, eq=False)
class Rows:
    """Affine functions of δ and the units: weight·δ + bias + mix·u, (R, d), (R,) and (R, K)."""

    weight: Tensor
    bias: Tensor
    mix: Tensor

    def __len__(self) -> int:
        return len(self.bias)

    def pick(self, index: Any) -> Rows:
        """Some of them."""
        return Rows(self.weight[index], self.bias[index], self.mix[index])

    def to(self, dtype: torch.dtype) -> Rows:
        """In another precision."""
        return Rows(self.weight.to(dtype), self.bias.to(dtype), self.mix.to(dtype))

    def negative(self) -> Rows:
        """Their negatives."""
        return Rows(-self.weight, -self.bias, -self.mix)


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one sample's ball, and the rows of its specification."""

    inputs: Rows  # z, (K, ...)
    interval: Interval  # (K,) of z on the ball
    levels: tuple[Level, ...]
    rows: Rows  # of the specification, (R, ...)

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, dtype: torch.dtype) -> Units:
        """In another precision; intervals are rounded outward."""
        lower, upper = self.interval.lower, self.interval.upper
        low, high = lower.to(dtype), upper.to(dtype)
        low = torch.where(low.double() > lower, torch.nextafter(low, torch.full_like(low, -torch.inf)), low)
        high = torch.where(high.double() < upper, torch.nextafter(high, torch.full_like(high, torch.inf)), high)
        return replace(self, inputs=self.inputs.to(dtype), interval=Interval(low, high), rows=self.rows.to(dtype))


def units_of(graph: Graph, intervals: dict[str, Interval], family: Family, specification: Tensor) -> Units | None:
    """The units of one ball; None where an operation is no function of one number.

    intervals: (1, *shape) of the inputs of every nonlinear operation. specification (R, classes).
    """
    pieces: dict[str, Pieces] = {}
    levels: list[Level] = []
    parts: list[tuple[list[Rows], Interval]] = []
    count = 0
    for node in filter(facts.is_nonlinear, graph.nodes):
        piece = _pieces(node, [intervals[name] for name in node.inputs], count)
        if piece is None:
            return None
        pieces[node.name] = piece
        if not len(piece.entries):
            continue
        value = graph[node.inputs[0]]
        sent = []
        for at in piece.entries.split(max(1, _ROWS // max(n.size for n in graph.nodes))):
            unit = family.x.new_zeros(len(at), value.size).scatter_(1, at[:, None], 1.0)
            sent.append(_send(graph, value.name, unit.view(-1, *value.shape), pieces, family))
        levels.append(Level(count, count + len(piece.entries), node if piece.smooth else None))
        shift = piece.places
        z = intervals[value.name].like((-1,)).pick(piece.entries)
        parts.append(
            (
                [replace(r, bias=r.bias - p) for r, p in zip(sent, shift.split([len(r) for r in sent]), strict=True)],
                Interval(z.lower - shift, z.upper - shift),
            )
        )
        count += len(piece.entries)
    rows = _send(graph, graph.output, specification.unflatten(1, graph[graph.output].shape), pieces, family)
    every = [r for sent, _ in parts for r in sent]
    return Units(
        _together([_wide(r, count) for r in every], rows.weight, count),
        Interval(*(torch.cat([getattr(i, side) for _, i in parts] or [rows.bias[:0]]) for side in ("lower", "upper"))),
        tuple(levels),
        _wide(rows, count),
    )


def _wide(rows: Rows, count: int) -> Rows:
    return replace(rows, mix=torch.nn.functional.pad(rows.mix, (0, count - rows.mix.shape[1])))


def _together(parts: list[Rows], like: Tensor, count: int) -> Rows:
    if not parts:
        return Rows(like[:0], like.new_zeros(0), like.new_zeros(0, count))
    return Rows(*(torch.cat([getattr(p, name) for p in parts]) for name in ("weight", "bias", "mix")))


@dataclass(eq=False)
class Pieces(Relaxation):
    """A nonlinear operation where it is linear, and its units: y = Σ base_i x_i + offset + Σ jump_k u_k."""

    base: tuple[Tensor, ...]  # (1, *shape) each
    offset: Tensor
    entries: Tensor  # (n,) of the first input, flat, that units are of
    places: Tensor  # (n,) where they bend
    jumps: Tensor  # (n,)
    start: int  # column of the first
    smooth: bool
    seen: list[Tensor]  # the columns' coefficients of what was pulled last

    def pull(self, form: Any, owner: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        flat = form.flatten(1)
        self.seen.append(flat[:, self.entries] * self.jumps)
        parts = tuple(form * base if bool((base != 0).any()) else None for base in self.base)
        return parts, (form * self.offset).flatten(1).sum(1)

    def push(self, *inputs: Forms) -> Forms:
        raise NotImplementedError


def _pieces(node: Node, inputs: list[Interval], start: int) -> Pieces | None:
    rule = RULES[node.op]
    assert isinstance(rule, Nonlinear)
    x = inputs[0]
    zero = torch.zeros_like(x.lower)
    bends = rule.bends(node)
    if bends is None:
        if not isinstance(rule, Scalar) or node.weight is not None or node.bias is not None:
            return None
        entries = (x.lower < x.upper).flatten().nonzero().flatten()
        point = torch.where(x.lower < x.upper, zero, rule.interval(node, x).lower)
        ones = torch.ones_like(x.lower.flatten()[entries])
        return Pieces((zero,), point, entries, torch.zeros_like(ones), ones, start, True, [])
    base = [torch.as_tensor(b).to(zero).expand_as(zero).clone() for b in bends.base]
    offset = torch.full_like(zero, bends.offset)
    entries, places, jumps = [], [], []
    for place, jump in bends.kinks:
        height = torch.as_tensor(jump).to(zero).expand_as(zero)
        above, bent = x.lower >= place, (x.lower < place) & (x.upper > place)
        base[0] = base[0] + torch.where(above, height, zero)
        offset = offset - torch.where(above, height * place, zero)
        at = bent.flatten().nonzero().flatten()
        entries.append(at)
        places.append(torch.full_like(height.flatten()[at], place))
        jumps.append(height.flatten()[at])
    return Pieces(tuple(base), offset, *map(torch.cat, (entries, places, jumps)), start, False, [])


def _send(graph: Graph, name: str, form: Tensor, pieces: dict[str, Pieces], family: Family) -> Rows:
    """Forms of a node's value as rows."""
    for piece in pieces.values():
        piece.seen.clear()
    owner = torch.zeros(len(form), dtype=torch.int64, device=form.device)
    ends, bias = rewrite(graph, name, form, owner, pieces)
    count = max((p.start + len(p.entries) for p in pieces.values()), default=0)
    mix = form.new_zeros(len(form), count)
    for piece in pieces.values():
        for part in piece.seen:
            mix[:, piece.start : piece.start + len(piece.entries)] = part
    end = ends.get(graph.input.name)
    weight = form.new_zeros(len(form), family.x[0].numel()) if end is None else end.flatten(1)
    return Rows(weight, bias + weight @ family.x.flatten(), mix)
