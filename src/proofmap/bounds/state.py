"""`BoundState`: the intervals and relaxations of a graph's nodes, collected during one walk.

It serves balls, their members, and the parts of balls after splits. An interval is the intersection of the intervals
given beforehand, of interval arithmetic (where the method uses it), and of the bounds from passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.cases import Cases
from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.graph.ir import Graph, Node
from proofmap.inputs.family import Family
from proofmap.rounding.bound_errors import RoundingErrors
from proofmap.rounding.exact_arithmetic import ExactArithmetic
from proofmap.rules import RULES, Interval, Linear, Nonlinear, Relaxation

_CROSSING_ULPS = 2**10  # bounds that cross by more than this, relative to the summed magnitudes, prove an empty part


@dataclass(eq=False)
class BoundState:
    """Intervals and relaxations of all nodes on the cases, keyed by node name."""

    graph: Graph
    cases: Cases
    budget: int
    for_members: bool  # whether bounds on the members of each ball are stored
    arithmetic: bool  # whether interval arithmetic counts as a bound of the method
    intervals: dict[str, Interval] = field(default_factory=dict)
    relaxations: dict[str, Relaxation] = field(default_factory=dict)
    tightened: dict[str, list[RowBounds]] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)  # nodes that interval arithmetic bounds exactly
    rigorous: bool = False  # whether intervals and relaxations cover all rounding errors
    rounding: ExactArithmetic = field(init=False)
    empty: Tensor = field(init=False)  # (C,) whether splits or a cut leave the case empty
    _touched: set[str] = field(default_factory=set)
    _narrowed: bool = False
    _sizes: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.exact and self.balls.norm == inf and self.cases.cut is None:
            self.exact = node_facts.exact(self.graph)
        self.rounding = RoundingErrors(self) if self.rigorous else ExactArithmetic()
        self.empty = torch.zeros(len(self.cases), dtype=torch.bool, device=self.balls.x.device)

    @property
    def balls(self) -> Family:
        """The balls of the cases, with their members."""
        return self.cases.balls

    def interval(self, name: str) -> Interval:
        """Return the node's interval on the cases. It is computed from the current state on the first call."""
        if name not in self.intervals:
            self.intervals[name] = self._first(self.graph[name])
        return self.intervals[name]

    def _first(self, node: Node) -> Interval:
        value = self.cases.known.get(node.name)
        if value is None or self.arithmetic or node.name in self.exact or node_facts.ranges(node):
            computed = self._arithmetic(node)
            value = computed if value is None else self._intersect(node, computed, value)
        sides = self.cases.splits.get(node.name)
        if sides is None:
            return value
        half = Interval(*(torch.where(sides == side, 0, -side * inf).to(value.lower) for side in (1, -1)))
        return self._intersect(node, value, half)

    def _arithmetic(self, node: Node) -> Interval:
        if node.op == "input":
            (low, high), error = self.balls.box(), self.rounding.input_error()
            return Interval(low - error, high + error)
        return self.rounding.interval_arithmetic(node, list(map(self.interval, node.inputs)))

    def relax(self, node: Node) -> None:
        """Relax the node on the current intervals of its inputs."""
        rule = RULES[node.op]
        assert isinstance(rule, Nonlinear)
        inputs = map(self.interval, node.inputs)
        self.relaxations[node.name] = rule.relax(node, *inputs, slopes=self.cases.slopes.get(node.name))

    def unstable(self, node: Node) -> Iterator[tuple[str, BoundRows]]:
        """Yield the input entries at which the node's relaxation is not exact and a form can tighten the interval.

        Inputs come one after the other. Bounds of one that are stored meanwhile count for the next.
        """
        rule = RULES[node.op]
        assert isinstance(rule, Nonlinear)
        for place, name in enumerate(node.inputs):
            if self._improvable(name):
                rows = BoundRows.where(rule.unstable(node, *map(self.interval, node.inputs))[place])
                if len(rows):
                    yield name, rows

    def _improvable(self, name: str) -> bool:
        """Return whether forms can bound this node more tightly than interval arithmetic from its inputs.

        They cannot if interval arithmetic is exact, or for f(x) entry by entry, whose range over the interval of x is
        exact. The same holds if the node only rearranges entries of such a node.
        """
        node = self.graph[name]
        if node.op == "input" or name in self.exact:
            return False
        return self._improvable(node.inputs[0]) if node_facts.moves(node) else not node_facts.ranges(node)

    def tighten(self, name: str, bounds: RowBounds) -> None:
        """Store new bounds of some rows.

        They are intersected with the current interval. If that is interval arithmetic that does not count as a bound of
        the method, they replace it.
        """
        counts = self.arithmetic or name in self._touched or node_facts.is_nonlinear(self.graph[name])
        self._put(name, bounds.rows, bounds.full, replaces=not counts)
        self._touched.add(name)
        if self.for_members:
            self.tightened.setdefault(name, []).append(bounds)

    def narrow(self, name: str, rows: BoundRows, bounds: Interval) -> None:
        """Store prefilter bounds of some rows on the full ball. They count like interval arithmetic."""
        self._put(name, rows, bounds, replaces=False)
        self._narrowed = True

    def _put(self, name: str, rows: BoundRows, bounds: Interval, *, replaces: bool) -> None:
        shape = self.intervals[name].lower.shape
        flat = self.intervals[name].like((shape[0], -1))
        if not replaces or name in self.cases.known or name in self.cases.splits:
            bounds = self._intersect(self.graph[name], flat.pick(rows.at), bounds, rows)
        self.intervals[name] = flat.put(rows.at, bounds).like(shape)

    def of_members(self, index: Tensor) -> BoundState:
        """Return the state of single members as cases. index (n,) counts the C · members, case by case."""
        case, member = index // self.balls.members, index % self.balls.members
        cases = replace(self.cases, known={}).split(index)
        inherited = replace(cases, known=MemberIntervals(self, case, member))
        single = BoundState(
            self.graph, inherited, self.budget, False, self.arithmetic, exact=self.exact, rigorous=self.rigorous
        )
        single.rounding = self.rounding.for_members(single, case)
        return single

    def _intersect(self, node: Node, one: Interval, other: Interval, rows: BoundRows | None = None) -> Interval:
        """Intersect two intervals that both hold.

        A whole ball is never empty, so its bounds can only cross by rounding errors. After splits or a cut, the
        intersection may be empty. The case is then marked in `empty`, and the first interval is kept as a placeholder.
        """
        meet = one & other
        if self.cases.parted:
            size = self._size(node)
            if rows is not None:
                size = size.flatten(1)[rows.at]
            crossed = meet.lower - meet.upper > _CROSSING_ULPS * torch.finfo(size.dtype).eps * size
            if rows is None:
                self.empty |= crossed.flatten(1).any(1)
            else:
                self.empty[rows.case[crossed]] = True
            lower, upper = torch.where(crossed, one.lower, meet.lower), torch.where(crossed, one.upper, meet.upper)
            return Interval(lower, upper).uncrossed()
        return meet.uncrossed()

    def _size(self, node: Node) -> Tensor:
        """Return the magnitude (C, *shape) of the terms that a value sums: size(L x + b) = |L| size(x) + |b|."""
        if node.name not in self._sizes:
            self._sizes[node.name] = self._new_size(node)
        return self._sizes[node.name]

    def _new_size(self, node: Node) -> Tensor:
        if node.op == "input":
            low, high = self.balls.box()
            return torch.maximum(low.abs(), high.abs())
        rule, sizes = RULES[node.op], [self._size(self.graph[name]) for name in node.inputs]
        if isinstance(rule, Linear):
            size = rule.magnitude(node, *sizes)
            return size if node.bias is None else size + node.bias.abs()
        reached = rule.interval(node, *(Interval(size, size) for size in sizes)).upper.abs()
        return sum((size for size in sizes if size.shape == reached.shape), reached)


@dataclass(frozen=True, eq=False)
class MemberIntervals(Mapping[str, Interval]):
    """The intervals that members (case, member) inherit from their balls, computed on access."""

    balls: BoundState
    case: Tensor
    member: Tensor

    def __getitem__(self, name: str) -> Interval:
        if name not in self:  # interval arithmetic finds it again
            raise KeyError(name)
        interval = self.balls.intervals[name].pick(self.case)
        for bounds in self.balls.tightened.get(name, []):
            interval = bounds.for_members(interval, self.case, self.member, len(self.balls.cases))
        return interval

    def __contains__(self, name: object) -> bool:
        """Return whether the members inherit this interval.

        They compute exact interval arithmetic themselves, except for sums with rounding errors: the rounding radii of
        a ball also hold on its parts.
        """
        if not isinstance(name, str) or name not in self.balls.intervals:
            return False
        if self.balls.rigorous and node_facts.sums(self.balls.graph[name]):
            return True
        return name not in self.balls.exact and not self._only_arithmetic

    @property
    def _only_arithmetic(self) -> bool:
        """True if all bounds come from rigorous interval arithmetic, which members compute again themselves."""
        balls = self.balls
        return balls.rigorous and balls.arithmetic and not (balls.tightened or balls._narrowed)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.balls.intervals if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
