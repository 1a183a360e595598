"""What is known while a graph is walked for a family of balls: intervals, relaxations, and each member's own bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.family import Family
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Interval, Linear, Nonlinear, Relaxation
from proofmap.rules.lines import Scalar

_APART = 2**32  # more than there are groups


@dataclass(frozen=True, eq=False)
class Rows:
    """Some entries of a node's value: entry (K,) of the flat value, of sample (K,)."""

    sample: Tensor
    entry: Tensor

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, piece: slice) -> Rows:
        return Rows(self.sample[piece], self.entry[piece])

    @staticmethod
    def where(mask: Tensor) -> Rows:
        """The entries marked in (N, *shape)."""
        index = mask.flatten(1).nonzero()
        return Rows(index[:, 0], index[:, 1])

    def by_place(self, shape: tuple[int, ...]) -> Rows:
        """The same entries of a (C, *map) value, sample by sample, those of one position next to each other."""
        plane = prod(shape[1:])
        channel, position = self.entry // plane, self.entry % plane
        order = ((self.sample * plane + position) * shape[0] + channel).argsort()
        return Rows(self.sample[order], self.entry[order])


@dataclass(frozen=True, eq=False)
class Tightened:
    """Bounds of some rows, in the order of their samples: (K, 1 + T), on the full ball and on some of its members.

    seen (K, T): the groups that those members freeze, -1 for none; on all others a row has its bound on the full ball.
    None: all members, in their order (or, with one column, the full ball alone).
    """

    rows: Rows
    lower: Tensor
    upper: Tensor
    seen: Tensor | None = None

    @staticmethod
    def together(parts: list[Tightened]) -> Tightened:
        """One after the other; what sees fewer groups is filled up."""
        rows = Rows(torch.cat([p.rows.sample for p in parts]), torch.cat([p.rows.entry for p in parts]))
        width = max(p.lower.shape[1] for p in parts)

        def filled(values: Tensor, to: int, with_: float) -> Tensor:
            return F.pad(values, (0, to - values.shape[1]), value=with_)

        lower, upper = (torch.cat([filled(getattr(p, side), width, 0) for p in parts]) for side in ("lower", "upper"))
        seen = [filled(p.seen, width - 1, -1) for p in parts if p.seen is not None]
        return Tightened(rows, lower, upper, torch.cat(seen) if seen else None)

    def of(self, sample: Tensor, member: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """(case, row, column) of every bound that cases (sample, member) of `count` samples have of their own."""
        if self.seen is None:
            ones = torch.ones_like(self.rows.sample)
            sizes = ones.new_zeros(count).scatter_add_(0, self.rows.sample, ones)  # bincount waits for the GPU
            case, row = _runs(sizes[sample], (sizes.cumsum(0) - sizes)[sample])
            return case, row, member[case]
        keys, order = self._keys
        key = sample * _APART + member - 1
        first, last = torch.searchsorted(keys, key), torch.searchsorted(keys, key, right=True)
        case, item = _runs(last - first, first)
        pair = order[item]
        return case, pair // self.seen.shape[1], pair % self.seen.shape[1] + 1

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """sample · 2³² + group of every pair (row, column) that has one, sorted, and the flat pairs."""
        assert self.seen is not None
        flat = self.seen.flatten()
        pairs = (flat >= 0).nonzero().flatten()
        keys, order = (self.rows.sample[pairs // self.seen.shape[1]] * _APART + flat[pairs]).sort()
        return keys, pairs[order]


def _runs(sizes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """(run, item) of all items starts[r] .. starts[r] + sizes[r] - 1 of every run r."""
    run = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    item = torch.arange(len(run), device=sizes.device) + (starts - (sizes.cumsum(0) - sizes))[run]
    return run, item


@dataclass(eq=False)
class State:
    """The knowledge of one walk. Intervals and relaxations are on the full ball, for N samples."""

    graph: Graph
    family: Family
    budget: int
    members: bool  # whether bounds on each member are kept
    keep: bool  # whether interval arithmetic itself counts as a bound of the method
    intervals: dict[str, Interval] = field(default_factory=dict)
    relaxations: dict[str, Relaxation] = field(default_factory=dict)
    tightened: dict[str, list[Tightened]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    exact: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.exact = exact_nodes(self.graph) if self.family.norm == inf else set()

    def shapes(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The shapes of a node's inputs."""
        return tuple(self.graph[i].shape for i in self.graph[name].inputs)

    def worth(self, name: str) -> bool:
        """Whether bounds of this node can be better than interval arithmetic from its inputs: not where that is exact,
        nor for f(x) entry by entry, whose range over the interval of x is exact, nor for entries of either moved.
        """
        node = self.graph[name]
        if node.op == "input" or name in self.exact:
            return False
        return self.worth(node.inputs[0]) if _moves(node) else not isinstance(RULES[node.op], Scalar)

    def tighten(self, name: str, found: Tightened) -> None:
        """Take new bounds of some rows in: together with what is known, or, where that is only interval arithmetic
        and does not count as a bound of the method, in its place.
        """
        old = self.intervals[name]
        shape = old.lower.shape
        lower, upper = old.lower.flatten(1).clone(), old.upper.flatten(1).clone()
        at = (found.rows.sample, found.rows.entry)
        new = Interval(found.lower[:, 0], found.upper[:, 0])
        if self.keep or name in self.touched:
            new = new & Interval(lower[at], upper[at])
        lower[at], upper[at] = new.lower, new.upper
        self.intervals[name] = Interval(lower.reshape(shape), upper.reshape(shape))
        self.touched.add(name)
        if self.members:
            self.tightened.setdefault(name, []).append(found)

    def narrow(self, name: str, rows: Rows, lower: Tensor, upper: Tensor) -> None:
        """Take in what is known of some rows on the full ball, as if interval arithmetic had found it."""
        old = self.intervals[name]
        ends = old.lower.flatten(1).clone(), old.upper.flatten(1).clone()
        at = (rows.sample, rows.entry)
        new = Interval(lower, upper) & Interval(ends[0][at], ends[1][at])
        ends[0][at], ends[1][at] = new.lower, new.upper
        self.intervals[name] = Interval(*(end.reshape(old.lower.shape) for end in ends))

    def member_relaxations(self, cases: Tensor, balls: Family) -> tuple[dict[str, Relaxation], dict[str, Interval]]:
        """Relaxations on single members, by flat index sample · members + member (cases,), which are `balls`, and the
        intervals of the nodes that interval arithmetic kept for them (empty where it does not count).
        """
        count = self.family.members
        sample, member = cases // count, cases % count
        arithmetic: dict[str, Interval] = {}
        settled: dict[str, Interval] = {}
        relaxations: dict[str, Relaxation] = {}
        if self.keep or self.exact:
            arithmetic[self.graph.input.name] = Interval(*balls.box())

        def interval(name: str) -> Interval:
            if name in settled:
                return settled[name]
            if name in self.exact:  # nothing is tighter
                settled[name] = arithmetic[name]
                return settled[name]
            node = self.graph[name]
            found = self.intervals[name].take(sample)
            if _moves(node) or isinstance(RULES.get(node.op), Scalar):
                found = found & RULES[node.op].interval(node, interval(node.inputs[0]))
            for one in self.tightened.get(name, []):
                found = _scatter(found, one, sample, member, self.family.count)
            settled[name] = found & arithmetic[name] if name in arithmetic else found
            return settled[name]

        for node in self.graph.nodes[1:]:
            rule = RULES[node.op]
            if isinstance(rule, Nonlinear):
                relaxations[node.name] = rule.relax(node, *(interval(name) for name in node.inputs))
            if self.keep or node.name in self.exact:
                arithmetic[node.name] = rule.interval(node, *(interval(name) for name in node.inputs))
        return relaxations, arithmetic


def _scatter(base: Interval, found: Tightened, sample: Tensor, member: Tensor, count: int) -> Interval:
    """The base interval of some cases, with each case's own bounds of the tightened rows in it."""
    lower, upper = base.lower.flatten(1).clone(), base.upper.flatten(1).clone()
    case, row, column = found.of(sample, member, count)
    at, own = (case, found.rows.entry[row]), (row, column)
    new = Interval(found.lower[own], found.upper[own]) & Interval(lower[at], upper[at])
    lower[at], upper[at] = new.lower, new.upper
    shape = base.lower.shape
    return Interval(lower.reshape(shape), upper.reshape(shape))


def _moves(node: Node) -> bool:
    """Whether every entry is one of the input's, moved and scaled: its interval follows from the other's exactly."""
    rule = RULES.get(node.op)
    return isinstance(rule, Linear) and rule.moves(node)


def exact_nodes(graph: Graph) -> set[str]:
    """The nodes that interval arithmetic bounds exactly from a box: one linear operation of the input, with nothing
    but moved and scaled entries before and after it.
    """
    apart = {graph.input.name}  # every entry its own variable
    exact = {graph.input.name}
    for node in graph.nodes[1:]:
        rule = RULES[node.op]
        if not isinstance(rule, Linear) or len(node.inputs) != 1 or node.inputs[0] not in exact:
            continue
        if rule.moves(node):
            exact.add(node.name)
            if node.inputs[0] in apart:
                apart.add(node.name)
        elif node.inputs[0] in apart:
            exact.add(node.name)
    return exact


def frontier(graph: Graph) -> set[str]:
    """Where linear operations alone lead back to from the output: the input, or outputs of nonlinear nodes."""
    reached, found = {graph.output}, set()
    for node in reversed(graph.nodes):
        if node.name in reached:
            if node.op == "input" or isinstance(RULES[node.op], Nonlinear):
                found.add(node.name)
            else:
                reached.update(node.inputs)
    return found


def everything(count: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(sample, entry) of all `size` entries of `count` samples, sample by sample."""
    sample = torch.arange(count, device=device).repeat_interleave(size)
    return sample, torch.arange(size, device=device).repeat(count)
