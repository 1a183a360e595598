"""A network on a ball as its open units: what bends there, and nothing else.

Where the interval of a value shows on which side of every kink it lies, an operation is linear. What is left are units,
each a function of one number, u_k = σ_k(z_k), and everything between them is linear:

    z = A δ + b + M u,        row r of the specification = a_r·δ + c_r + m_r·u,        δ in the ball.

Kinks are ReLUs: max(x, y) = x + max(y - x, 0), |x| = 2 max(x, 0) - x, and so on (`Kinked`). Other functions of one
number are units as they are. M is strictly lower triangular by levels, one for each operation. Where all roundings
count, every row has a radius (`rounded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofmap.bounds import node_facts
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.graph.ir import Graph, Node
from proofmap.inputs.family import Family
from proofmap.rounding.search_errors import Apart, charged, size_of, solved_for, swing_of
from proofmap.rules import RULES, Interval, Nonlinear
from proofmap.rules.rule import Pulled
from proofmap.rules.scalar_lines import Scalar

_ROWS = 2**24  # numbers of forms that are sent back together
_WIDER = 1 + 2.0**-50  # more than one rounding


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
    radius: Tensor | None = None  # (R,) what they, and bounds made of them, are off by; None: roundings do not count

    def __len__(self) -> int:
        return len(self.bias)

    def pick(self, index: Any) -> Rows:
        """Some of them."""
        radius = None if self.radius is None else self.radius[index]
        return Rows(self.weight[index], self.bias[index], self.mix[index], radius)

    def to(self, dtype: torch.dtype) -> Rows:
        """In another precision, without roundings."""
        return Rows(self.weight.to(dtype), self.bias.to(dtype), self.mix.to(dtype))

    @staticmethod
    def together(parts: Sequence[Rows], units: int) -> Rows:
        """One after the other, as rows of so many units; those that are missing have no part in them."""
        mix = torch.cat([pad(part.mix, (0, units - part.mix.shape[1])) for part in parts])
        radii = [part.radius for part in parts if part.radius is not None]
        radius = torch.cat(radii) if len(radii) == len(parts) else None
        return Rows(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]), mix, radius)

    def negative(self) -> Rows:
        """Their negatives."""
        return Rows(-self.weight, -self.bias, -self.mix, self.radius)


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one sample's ball, and the rows of its specification."""

    inputs: Rows  # z, (K, ...)
    interval: Interval  # (K,) of z on the ball
    levels: tuple[Level, ...]
    rows: Rows  # of the specification, (R, ...)
    swing: Tensor | None = None  # (d,) the largest |δ|, where roundings count

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def deep(self) -> bool:
        """Whether units stand on others."""
        return len(self.levels) > 1

    @property
    def looseness(self) -> float:
        """By how much lines miss those units that stand on others, altogether: u l / (u - l) of a ReLU on [l, u] is
        what the line above it has at its kink; of other functions the width of [l, u].
        """
        low, high = self.interval.lower, self.interval.upper
        missed = high.clamp(min=0) * low.clamp(max=0).neg() / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
        for level in self.levels:
            if level.node is not None:
                missed[level.columns] = (high - low)[level.columns]
        return float(missed[self.levels[0].stop :].sum()) if self.levels else 0.0

    def settled(self, interval: Interval) -> Units:
        """With closer intervals (K,): ReLUs that have one sign there are no longer units.

        u = z where it is above 0. With D = 1 there, else 0: z = (1 - M D)⁻¹ (A δ + b + M u), u of the others. Where
        roundings leave too little of that, all stay units.
        """
        smooth = torch.zeros_like(interval.lower, dtype=torch.bool)
        for level in self.levels:
            smooth[level.columns] = level.node is not None
        left = smooth | ((interval.lower < 0) & (interval.upper > 0))
        above = ((interval.lower >= 0) & ~left).to(interval.lower)
        z, kept = self.inputs, left.nonzero().flatten()
        known = torch.cat([z.weight, z.bias[:, None], z.mix[:, kept]], 1)
        lower = torch.eye(len(z), dtype=z.bias.dtype, device=z.bias.device) - z.mix * above
        solved = torch.linalg.solve_triangular(lower, known, upper=False, unitriangular=True)
        d = z.weight.shape[1]
        every = Rows(solved[:, :d], solved[:, d], solved[:, d + 1 :])
        r, mix = self.rows, self.rows.mix * above
        rows = Rows(r.weight + mix @ every.weight, r.bias + mix @ every.bias, r.mix[:, kept] + mix @ every.mix)
        if self.swing is not None:
            size = size_of(interval)[kept]
            off = solved_for(self, lower, known, solved, size)
            if off is None:
                return replace(self, interval=interval)
            every = charged(replace(every, radius=off), size, self.swing, len(self))
            assert r.radius is not None
            assert every.radius is not None
            rows = charged(replace(rows, radius=r.radius + mix.abs() @ every.radius), size, self.swing)
        place = [0, *left.cumsum(0).tolist()]
        levels = [Level(place[level.start], place[level.stop], level.node) for level in self.levels]
        return Units(
            every.pick(kept),
            Interval(interval.lower[kept], interval.upper[kept]),
            tuple(level for level in levels if level.stop > level.start),
            rows,
            self.swing,
        )

    def before(self, level: Level, k: Tensor) -> Units:
        """What the inputs of units k of a level stand on: its rows are they and their negatives."""
        z, stop = self.inputs, level.start
        rows, below = (replace(part, mix=part.mix[:, :stop]) for part in (z.pick(k), z.pick(slice(0, stop))))
        return Units(
            below,
            Interval(self.interval.lower[:stop], self.interval.upper[:stop]),
            tuple(one for one in self.levels if one.start < stop),
            Rows.together([rows, rows.negative()], stop),
            self.swing,
        )

    def single(self) -> Units:
        """In float32; intervals are rounded outward."""
        dtype = torch.float32
        return replace(self, inputs=self.inputs.to(dtype), interval=outward(self.interval), rows=self.rows.to(dtype))


def has_units(graph: Graph) -> bool:
    """Whether every operation that bends is a function of one number, or made of kinks: a product is not."""
    return all(map(_taken, filter(node_facts.is_nonlinear, graph.nodes)))


def _taken(node: Node) -> bool:
    rule = RULES[node.op]
    assert isinstance(rule, Nonlinear)
    scalar = isinstance(rule, Scalar) and node.weight is None and node.bias is None
    return scalar or rule.kinked(node) is not None


def units_of(
    graph: Graph,
    intervals: Mapping[str, Interval],
    family: Family,
    specification: Tensor,
    rounding: Apart | None = None,
) -> Units | None:
    """The units of one ball; None where an operation is no function of one number.

    intervals: (1, *shape) of the inputs of every nonlinear operation. specification (R, classes). rounding: so that
    all roundings count; then kinks alone can be units.
    """
    pieces: dict[str, Pieces] = {}
    levels: list[Level] = []
    inputs: list[Rows] = []
    ends: list[Interval] = []
    count = 0
    for node in filter(node_facts.is_nonlinear, graph.nodes):
        piece = _pieces(node, [intervals[name] for name in node.inputs], count)
        if piece is None or (piece.smooth and rounding is not None):
            return None
        if len(piece.entries):
            value = graph[node.inputs[0]]
            for at, place in zip(
                *(part.split(_rows_at_once(graph)) for part in (piece.entries, piece.places)), strict=True
            ):
                unit = family.x.new_zeros(len(at), value.size).scatter_(1, at[:, None], 1.0)
                rows = _send(graph, value.name, unit.view(-1, *value.shape), pieces, family, rounding)
                inputs.append(replace(rows, bias=rows.bias - place))
            z = intervals[value.name].like((-1,)).pick(piece.entries)
            z = Interval(z.lower - piece.places, z.upper - piece.places)
            ends.append(z if rounding is None else Interval(_WIDER * z.lower, _WIDER * z.upper))  # 0 is between
            levels.append(Level(count, count + len(piece.entries), node if piece.smooth else None))
            count += len(piece.entries)
        pieces[node.name] = piece
    rows = _send(graph, graph.output, specification.unflatten(1, graph[graph.output].shape), pieces, family, rounding)
    none = rows.pick(slice(0, 0))
    found = Units(
        Rows.together([none, *inputs], count),
        Interval(*(torch.cat([none.bias, *(getattr(end, side) for end in ends)]) for side in ("lower", "upper"))),
        tuple(levels),
        Rows.together([rows], count),
    )
    return found if rounding is None else _charged(found, family)


def _charged(units: Units, family: Family) -> Units | None:
    """With radii of rows for whatever is made of them; None where roundings have no bound."""
    size, swing = size_of(units.interval), swing_of(family)
    inputs, rows = (charged(part, size, swing) for part in (units.inputs, units.rows))
    if not all(part.radius is not None and bool(part.radius.isfinite().all()) for part in (inputs, rows)):
        return None
    return replace(units, inputs=inputs, rows=rows, swing=swing)


def _rows_at_once(graph: Graph) -> int:
    return max(1, _ROWS // max(node.size for node in graph.nodes))


@dataclass(frozen=True, eq=False)
class Pieces(Pulled):
    """A nonlinear operation where it is linear, and its units: y = Σ base_i x_i + offset + Σ jump_k u_k, exactly."""

    base: tuple[Tensor, ...]  # (1, *shape) each
    offset: Tensor
    entries: Tensor  # (n,) of the first input, flat, that units are of
    places: Tensor  # (n,) where they bend
    jumps: Tensor  # (n,)
    start: int  # the column of the first
    smooth: bool  # whether the units are the operation itself
    seen: list[Tensor] = field(default_factory=list)  # the units' coefficients (rows, n) of what was pulled

    def pull(self, form: Any, owner: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        self.seen.append(form.flatten(1)[:, self.entries] * self.jumps)
        parts = tuple(form * base if bool((base != 0).any()) else None for base in self.base)
        return parts, (form * self.offset).flatten(1).sum(1)


def _pieces(node: Node, inputs: Sequence[Interval], start: int) -> Pieces | None:
    rule, x = RULES[node.op], inputs[0]
    assert isinstance(rule, Nonlinear)
    zero, kinked = torch.zeros_like(x.lower), rule.kinked(node)
    if not _taken(node):
        return None
    if kinked is None:
        moves = x.lower < x.upper
        entries = moves.flatten().nonzero().flatten()
        still = torch.where(moves, zero, rule.interval(node, x).lower)
        ones = zero.new_ones(len(entries))
        return Pieces((zero,) * len(inputs), still, entries, 0 * ones, ones, start, smooth=True)
    base = [torch.as_tensor(b).to(zero).expand_as(zero) for b in kinked.base]
    offset = torch.full_like(zero, kinked.offset)
    kinks = []
    for place, jump in kinked.kinks:
        height = torch.as_tensor(jump).to(zero).expand_as(zero)
        above, bent = x.lower >= place, (x.lower < place) & (x.upper > place)
        base[0] = base[0] + torch.where(above, height, 0)
        offset = offset - torch.where(above, height * place, 0)
        at = bent.flatten().nonzero().flatten()
        kinks.append((at, zero.new_full((len(at),), place), height.flatten()[at]))
    entries, places, jumps = (torch.cat(parts) for parts in zip(*kinks, strict=True))
    return Pieces(tuple(base), offset, entries, places, jumps, start, smooth=False)


def _send(
    graph: Graph,
    name: str,
    form: Tensor,
    pieces: Mapping[str, Pieces],
    family: Family,
    rounding: Apart | None,
) -> Rows:
    """Forms of a node's value as rows of δ and of the units before it."""
    owner = torch.zeros(len(form), dtype=torch.int64, device=form.device)
    ends, bias = backsubstitute(graph, name, form, owner, pieces, rounding=rounding)
    mix = form.new_zeros(len(form), sum(len(piece.entries) for piece in pieces.values()))
    for piece in pieces.values():
        for part in piece.seen:
            mix[:, piece.start : piece.start + len(piece.entries)] = part
        piece.seen.clear()
    end = ends.get(graph.input.name)
    weight = form.new_zeros(len(form), family.x[0].numel()) if end is None else end.flatten(1)
    radius = None if rounding is None else rounding.paid()
    return Rows(weight, bias + weight @ family.x.flatten(), mix, radius)


def wide(x: Interval, count: int) -> Interval:
    """One interval for so many parts."""
    return Interval(x.lower.expand(count, -1), x.upper.expand(count, -1))


def precise(x: Interval) -> Interval:
    """In float64."""
    return Interval(x.lower.double(), x.upper.double())


def outward(x: Interval) -> Interval:
    """In float32, no closer."""
    low, high = x.lower.float(), x.upper.float()
    return Interval(
        torch.where(low.double() > x.lower, torch.nextafter(low, torch.full_like(low, -inf)), low),
        torch.where(high.double() < x.upper, torch.nextafter(high, torch.full_like(high, inf)), high),
    )
