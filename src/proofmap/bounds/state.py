"""What is known while a graph is walked for a family of balls: intervals, relaxations, and each member's own bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from proofmap.ball import Family
from proofmap.graph.ir import Graph
from proofmap.rules import RULES, Interval, Linear, Nonlinear, Relaxation
from proofmap.rules.lines import Scalar


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


@dataclass(frozen=True, eq=False)
class Tightened:
    """Bounds of some rows on every member of the family: (K, members), the first being the full ball."""

    rows: Rows
    lower: Tensor
    upper: Tensor


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
        nor for f(x) entry by entry, whose range over the interval of x is exact.
        """
        op = self.graph[name].op
        return op != "input" and name not in self.exact and not isinstance(RULES[op], Scalar)

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

    def member_relaxations(self, cases: Tensor) -> tuple[dict[str, Relaxation], dict[str, Interval]]:
        """Relaxations on single members, by flat index sample · members + member (cases,), and the intervals of the
        nodes that interval arithmetic kept for them (empty where it does not count).
        """
        count = self.family.members
        sample, member = cases // count, cases % count
        arithmetic: dict[str, Interval] = {}
        settled: dict[str, Interval] = {}
        relaxations: dict[str, Relaxation] = {}
        if self.keep or self.exact:
            arithmetic[self.graph.input.name] = Interval(*self.family.split(cases).box())

        def interval(name: str) -> Interval:
            if name in settled:
                return settled[name]
            node = self.graph[name]
            found = self.intervals[name].take(sample)
            if isinstance(rule := RULES.get(node.op), Scalar):
                found = found & rule.interval(node, interval(node.inputs[0]))
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
    # Rows stand in the order of their samples, so a case's rows are a run: pairs (case, row).
    sizes = torch.bincount(found.rows.sample, minlength=count)
    starts = sizes.cumsum(0) - sizes
    sizes, starts = sizes[sample], starts[sample]
    case = torch.arange(len(sample), device=sample.device).repeat_interleave(sizes)
    row = torch.arange(len(case), device=sample.device) + (starts - (sizes.cumsum(0) - sizes))[case]
    at = (case, found.rows.entry[row])
    own = (row, member[case])
    new = Interval(found.lower[own], found.upper[own]) & Interval(lower[at], upper[at])
    lower[at], upper[at] = new.lower, new.upper
    shape = base.lower.shape
    return Interval(lower.reshape(shape), upper.reshape(shape))


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
