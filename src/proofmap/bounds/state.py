"""What is known of a graph's values on some cases: intervals, relaxations, and what holds for the members of a ball.

The same serves balls and their members, and parts of balls that splits make: an interval comes from what is known
beforehand, from interval arithmetic where that counts, and from the passes that tighten it.
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
from proofmap.rounding.bound_errors import Rounding
from proofmap.rules import RULES, Interval, Linear, Nonlinear, Relaxation

_ROUNDINGS = 2**10  # of all that is summed up to a value: what two bounds of it miss each other by, where one is left


@dataclass(eq=False)
class BoundState:
    """Intervals and relaxations on the cases, by the names of the nodes."""

    graph: Graph
    cases: Cases
    budget: int
    for_members: bool  # whether bounds on the members of each ball are kept
    arithmetic: bool  # whether interval arithmetic counts as a bound of the method
    intervals: dict[str, Interval] = field(default_factory=dict)
    relaxations: dict[str, Relaxation] = field(default_factory=dict)
    tightened: dict[str, list[RowBounds]] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)  # the nodes that interval arithmetic bounds exactly
    rigorous: bool = False  # whether what is known holds with all roundings
    rounding: Rounding | None = None
    empty: Tensor = field(init=False)  # (C,) where splits contradict what is known: nothing is left of the case
    _touched: set[str] = field(default_factory=set)
    _narrowed: bool = False
    _sizes: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.exact and self.balls.norm == inf and self.cases.cut is None:
            self.exact = node_facts.exact(self.graph)
        if self.rigorous and self.rounding is None:
            self.rounding = Rounding(self)
        self.empty = torch.zeros(len(self.cases), dtype=torch.bool, device=self.balls.x.device)

    @property
    def balls(self) -> Family:
        """The balls of the cases."""
        return self.cases.balls

    def interval(self, name: str) -> Interval:
        """The node's interval on the cases; where there is none yet, from what is known by now."""
        if name not in self.intervals:
            self.intervals[name] = self._first(self.graph[name])
        return self.intervals[name]

    def _first(self, node: Node) -> Interval:
        value = self.cases.known.get(node.name)
        if value is None or self.arithmetic or node.name in self.exact or node_facts.ranges(node):
            computed = self._arithmetic(node)
            value = computed if value is None else self._both(node, computed, value)
        sides = self.cases.splits.get(node.name)
        if sides is None:
            return value
        half = Interval(*(torch.where(sides == side, 0, -side * inf).to(value.lower) for side in (1, -1)))
        return self._both(node, value, half)

    def _arithmetic(self, node: Node) -> Interval:
        if node.op == "input":
            return Interval(*self.balls.box()) if self.rounding is None else self.rounding.box()
        inputs = list(map(self.interval, node.inputs))
        if self.rounding is not None:
            return self.rounding.widened(node, inputs)
        return RULES[node.op].interval(node, *inputs)

    def relax(self, node: Node) -> None:
        """The node's relaxation, from what is known of its inputs by now."""
        rule = RULES[node.op]
        assert isinstance(rule, Nonlinear)
        inputs = map(self.interval, node.inputs)
        self.relaxations[node.name] = rule.relax(node, *inputs, slopes=self.cases.slopes.get(node.name))

    def unstable(self, node: Node) -> Iterator[tuple[str, BoundRows]]:
        """The entries of the node's inputs where relaxing loses something and a form can do better than what is known.

        Input by input: what has been learned of one by then counts for the next.
        """
        rule = RULES[node.op]
        assert isinstance(rule, Nonlinear)
        for place, name in enumerate(node.inputs):
            if self._improvable(name):
                rows = BoundRows.where(rule.unstable(node, *map(self.interval, node.inputs))[place])
                if len(rows):
                    yield name, rows

    def _improvable(self, name: str) -> bool:
        """Whether bounds of this node can be better than interval arithmetic from its inputs: not where that is exact,
        nor for f(x) entry by entry, whose range over the interval of x is exact, nor for entries of either moved.
        """
        node = self.graph[name]
        if node.op == "input" or name in self.exact:
            return False
        return self._improvable(node.inputs[0]) if node_facts.moves(node) else not node_facts.ranges(node)

    def tighten(self, name: str, bounds: RowBounds) -> None:
        """Take new bounds of some rows in: together with what is known, or, where that is only interval arithmetic
        and does not count as a bound of the method, in its place.
        """
        counts = self.arithmetic or name in self._touched or node_facts.is_nonlinear(self.graph[name])
        self._put(name, bounds.rows, bounds.full, replaces=not counts)
        self._touched.add(name)
        if self.for_members:
            self.tightened.setdefault(name, []).append(bounds)

    def narrow(self, name: str, rows: BoundRows, bounds: Interval) -> None:
        """Take in what is known of some rows on the full ball, as if interval arithmetic had found it."""
        self._put(name, rows, bounds, replaces=False)
        self._narrowed = True

    def _put(self, name: str, rows: BoundRows, bounds: Interval, *, replaces: bool) -> None:
        shape = self.intervals[name].lower.shape
        flat = self.intervals[name].like((shape[0], -1))
        if not replaces or name in self.cases.known or name in self.cases.splits:
            bounds = self._both(self.graph[name], flat.pick(rows.at), bounds, rows)
        self.intervals[name] = flat.put(rows.at, bounds).like(shape)

    def of_members(self, index: Tensor) -> BoundState:
        """What follows for single members, as cases of their own: index (n,) into the C · members, case by case."""
        case, member = index // self.balls.members, index % self.balls.members
        cases = replace(self.cases, known={}).split(index)
        inherited = replace(cases, known=MemberIntervals(self, case, member))
        single = BoundState(self.graph, inherited, self.budget, False, self.arithmetic, exact=self.exact)
        if self.rounding is not None:
            single.rounding = Rounding(single, self.rounding, case)
        return single

    def _both(self, node: Node, one: Interval, other: Interval, rows: BoundRows | None = None) -> Interval:
        """Both hold. A ball holds its centre: bounds of it miss each other by rounding alone. Of a part of one nothing
        may be left: then they miss each other by more, and the first stands for what no value is in.
        """
        meet = one & other
        if self.cases.parted:
            size = self._size(node)
            if rows is not None:
                size = size.flatten(1)[rows.at]
            crossed = meet.lower - meet.upper > _ROUNDINGS * torch.finfo(size.dtype).eps * size
            if rows is None:
                self.empty |= crossed.flatten(1).any(1)
            else:
                self.empty[rows.case[crossed]] = True
            lower, upper = torch.where(crossed, one.lower, meet.lower), torch.where(crossed, one.upper, meet.upper)
            return Interval(lower, upper).mended()
        return meet.mended()

    def _size(self, node: Node) -> Tensor:
        """What the numbers that are summed up to a value amount to, (C, *shape): size(L x + b) = |L| size(x) + |b|."""
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
    """What members (case, member) of balls have from what is known of the balls, made when it is asked for."""

    balls: BoundState
    case: Tensor
    member: Tensor

    def __getitem__(self, name: str) -> Interval:
        if name not in self:  # interval arithmetic says it exactly
            raise KeyError(name)
        interval = self.balls.intervals[name].pick(self.case)
        for bounds in self.balls.tightened.get(name, []):
            interval = bounds.for_members(interval, self.case, self.member, len(self.balls.cases))
        return interval

    def __contains__(self, name: object) -> bool:
        """What interval arithmetic says need not be known, but where sums round: radii of a ball serve parts of it."""
        if not isinstance(name, str) or name not in self.balls.intervals:
            return False
        if self.balls.rounding is not None and node_facts.sums(self.balls.graph[name]):
            return True
        return name not in self.balls.exact and not self._alone

    @property
    def _alone(self) -> bool:
        """Whether nothing but interval arithmetic has said anything: members find it again by themselves."""
        balls = self.balls
        return balls.rounding is not None and balls.arithmetic and not (balls.tightened or balls._narrowed)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.balls.intervals if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
