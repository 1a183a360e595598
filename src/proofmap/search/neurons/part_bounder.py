"""β-CROWN bounds on parts of a ball that are given by intervals of the inputs of nonlinear operations.

All operations are relaxed on the part. With multipliers γ of either sign for every hidden entry l <= z <= u,

    row <= row + γ (z - l)  for γ >= 0,      row <= row + γ (z - u)  for γ <= 0.

Any slopes in range and any multipliers give a valid bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Cases, node_facts
from proofmap.bounds.alpha.adam import Adam
from proofmap.bounds.backsubstitution import backsubstitute_with_errors
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.state import BoundState
from proofmap.graph import Graph
from proofmap.graph.ir import Node
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.rounding.float32_sums import gamma
from proofmap.rounding.search_errors import EXTRA_ERRORS, FLOAT64_UNIT, SUM_MARGIN
from proofmap.rules import RULES, Form, Interval, Nonlinear, Relaxation
from proofmap.search.ball_maxima import SampleBalls

_SLOPE_RATE, _MULTIPLIER_RATE = 0.1, 0.4  # step sizes: of slopes by their range, of multipliers by mean coefficients
_FINAL_STEP_SHARE = 0.4  # size of the last step, as a share of the first
_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999  # the usual values of Adam
_LEAST_GRADIENT = 1e-12  # gradients below it hardly move their parameters


@dataclass(frozen=True, eq=False)
class NeuronSplittingProblem:
    """Maximisation of rows (R, classes) of a network's outputs on the balls of one sample, all in float64."""

    graph: Graph
    family: Family
    rows: Tensor
    hidden: Mapping[str, Interval]  # (1, *shape) intervals of hidden nodes on B
    available: int
    rigorous: bool = False  # cover all rounding errors
    offset: Tensor | None = None  # (R,) added to the values of the rows; None: zeros


class HiddenEntries:
    """The entries (H,) of all hidden nodes: the inputs of nonlinear operations, except the network's input."""

    def __init__(self, graph: Graph) -> None:
        names = node_facts.hidden(graph) - {graph.input.name}
        self.nodes: list[Node] = [node for node in graph.nodes if node.name in names]
        sizes = [node.size for node in self.nodes]
        self.sizes: list[int] = sizes
        self.count: int = sum(sizes)
        self.kinks: list[tuple[float, ...]] = [_kinks(graph, node.name) for node in self.nodes]

    def join(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return values (C, *shape) of the hidden nodes as columns (C, H)."""
        return torch.cat([values[node.name].flatten(1) for node in self.nodes], 1)

    def split(self, columns: Tensor) -> dict[str, Tensor]:
        """Return columns (C, H) as values (C, *shape) of the hidden nodes."""
        parts = columns.split(self.sizes, 1)
        return {node.name: part.unflatten(1, node.shape) for node, part in zip(self.nodes, parts, strict=True)}

    def intervals(self, x: Interval) -> dict[str, Interval]:
        """Return intervals (C, H) as intervals of the hidden nodes."""
        lower, upper = self.split(x.lower), self.split(x.upper)
        return {name: Interval(lower[name], upper[name]) for name in lower}

    def split_points(self, x: Interval) -> Tensor:
        """Return the points (C, H) to split at: the kink nearest to the middle of the interval, or the middle."""
        middle = (x.lower + x.upper) / 2
        parts = []
        low, mid, high = (end.split(self.sizes, 1) for end in (x.lower, middle, x.upper))
        for number, kinks in enumerate(self.kinks):
            best, distance = mid[number], torch.full_like(mid[number], inf)
            for kink in kinks:
                inside = (low[number] < kink) & (kink < high[number])
                far = torch.where(inside, (mid[number] - kink).abs(), inf)
                best = torch.where(far < distance, kink, best)
                distance = torch.minimum(far, distance)
            parts.append(best)
        return torch.cat(parts, 1)


def _kinks(graph: Graph, name: str) -> tuple[float, ...]:
    """Return the kinks of the piecewise linear functions of one number that read a node."""
    found: list[float] = []
    for node in graph.nodes:
        if name in node.inputs and node_facts.is_nonlinear(node):
            rule = RULES[node.op]
            assert isinstance(rule, Nonlinear)
            kinked = rule.kink_sum(node) if len(node.inputs) == 1 else None
            found += [] if kinked is None else [float(place) for place, _ in kinked.kinks]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Parameters:
    """Free parameters of C parts: those of the relaxations (C, F, *shape) by node, and multipliers (C, H)."""

    slopes: Mapping[str, Tensor]
    multipliers: Tensor

    def pick(self, index: Tensor) -> Parameters:
        """Return the entries of some parts."""
        return Parameters({name: one[index] for name, one in self.slopes.items()}, self.multipliers[index])

    def where(self, mask: Tensor, other: Parameters) -> Parameters:
        """Return these parameters where mask (C,) is True, else the other ones."""

        def chosen(one: Tensor, another: Tensor) -> Tensor:
            return torch.where(mask.view(-1, *[1] * (one.ndim - 1)), one, another)

        return Parameters(
            {name: chosen(one, other.slopes[name]) for name, one in self.slopes.items()},
            chosen(self.multipliers, other.multipliers),
        )


@dataclass(frozen=True, eq=False)
class BoundForms:
    """Upper bounds form·δ + bias of a row on every part, (C, d) and (C,), with a target's bound and maximiser."""

    form: Tensor
    bias: Tensor
    value: Tensor  # (C,) the bound on the target member
    delta: Tensor  # (C, d) where it is reached

    def where(self, mask: Tensor, other: BoundForms) -> BoundForms:
        """Return these bounds where mask (C,) is True, else the other ones."""
        wide = mask[:, None]
        return BoundForms(
            torch.where(wide, self.form, other.form),
            torch.where(mask, self.bias, other.bias),
            torch.where(mask, self.value, other.value),
            torch.where(wide, self.delta, other.delta),
        )


class PartBounder:
    """Bounds of rows on parts of B that are given by intervals of the hidden nodes."""

    def __init__(self, problem: NeuronSplittingProblem) -> None:
        self.graph: Graph = with_pairwise_maxima(problem.graph, problem.family.x)
        self.entries: HiddenEntries = HiddenEntries(self.graph)
        self.rows: Tensor = problem.rows
        self.offset: Tensor = problem.rows.new_zeros(len(problem.rows)) if problem.offset is None else problem.offset
        self.balls: SampleBalls = SampleBalls(problem.family)
        self.ball: Family = problem.family.split(torch.zeros(1, dtype=torch.int64, device=problem.family.x.device))
        self.available: int = problem.available
        self.rigorous: bool = problem.rigorous
        self._plan = Plan(final=(BackwardPass(prefilter=False),), interval_hidden=True, rigorous=problem.rigorous)
        self._layers = LayerProgress.of(self.graph, len(self.rows), back=False)
        self._nonlinear = [node for node in self.graph.nodes if node_facts.is_nonlinear(node)]

    def state(self, known: Mapping[str, Interval], count: int) -> BoundState:
        """Return the intervals and relaxations of all nodes on parts where the hidden nodes have these intervals."""
        ball = self.ball.pick(torch.zeros(count, dtype=torch.int64, device=self.rows.device))
        return bound_nodes(self.graph, Cases(ball, known), self._plan, self.available, self._layers)[0]

    def intervals(self, state: BoundState) -> Interval:
        """Return the intervals (C, H) of the hidden nodes."""
        every = {node.name: state.interval(node.name) for node in self.entries.nodes}
        return Interval(
            *(self.entries.join({n: getattr(x, end) for n, x in every.items()}) for end in ("lower", "upper"))
        )

    def start(self, state: BoundState) -> Parameters:
        """Return the default slopes, and multipliers 0."""
        slopes = {}
        for node in self._nonlinear:
            rule = RULES[node.op]
            assert isinstance(rule, Nonlinear)
            free = rule.free(node, *map(state.interval, node.inputs))
            if free is not None:
                slopes[node.name] = free.start
        return Parameters(slopes, self.rows.new_zeros(len(state.cases), self.entries.count))

    def relaxations(self, state: BoundState, slopes: Mapping[str, Tensor]) -> dict[str, Relaxation]:
        """Return the relaxations of all nodes with these free parameters."""
        found = dict(state.relaxations)
        for node in self._nonlinear:
            if node.name in slopes:
                rule = RULES[node.op]
                assert isinstance(rule, Nonlinear)
                found[node.name] = rule.relax(node, *map(state.interval, node.inputs), slopes=slopes[node.name])
        return found

    def forms(
        self, state: BoundState, row: Tensor, slopes: Mapping[str, Tensor], multipliers: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (form (C, d), bias (C,), mean coefficients (C, H) of the hidden nodes). The biases lack γ's ends."""
        graph, sizes = self.graph, {}
        names = {node.name for node in self.entries.nodes}
        owner = torch.arange(len(row), device=row.device)

        def watch(node: Node, form: Form) -> None:
            if node.name in names:
                assert isinstance(form, Tensor)
                sizes[node.name] = form.detach().flatten(1).abs().mean(1, keepdim=True)

        ends, bias, error = backsubstitute_with_errors(
            graph,
            graph.output,
            self.rows[row].unflatten(1, graph[graph.output].shape),
            owner,
            self.relaxations(state, slopes),
            watch,
            state.rounding,
            self.entries.split(multipliers),
        )
        end = ends.get(graph.input.name, torch.zeros_like(self.ball.x).expand(len(row), *self.ball.shape))
        mean = [
            sizes.get(node.name, torch.zeros_like(bias[:, None])).expand(-1, node.size) for node in self.entries.nodes
        ]
        bias = bias + error + (end.flatten(1) @ self.ball.x.flatten()) + self.offset[row]
        return end.flatten(1), bias, torch.cat(mean, 1)

    def with_multipliers(self, bias: Tensor, x: Interval, multipliers: Tensor) -> Tensor:
        """Add to biases (C,) those of multipliers (C, H), -γ⁺ l - γ⁻ u, with the rounding errors of these sums."""
        ends = -(multipliers.clamp(min=0) * x.lower).sum(1) - (multipliers.clamp(max=0) * x.upper).sum(1)
        if self.rigorous:
            size = (multipliers.abs() * torch.maximum(x.lower.abs(), x.upper.abs())).sum(1)
            size = size + bias.abs() + 2 * self.offset.abs().max()
            ends = ends + SUM_MARGIN * gamma(multipliers.shape[1] + EXTRA_ERRORS, FLOAT64_UNIT) * size
        return bias + ends

    def bound(
        self, state: BoundState, x: Interval, row: Tensor, choice: Parameters, member: Tensor | None
    ) -> BoundForms:
        """Bound one row of each part, on a member (C,) or on B."""
        form, bias, _ = self.forms(state, row, choice.slopes, choice.multipliers)
        bias = self.with_multipliers(bias, x, choice.multipliers)
        swing, delta = self.balls.maximise(form, member)
        return BoundForms(form, bias, bias + swing, delta)

    def optimise(
        self, state: BoundState, row: Tensor, start: Parameters, member: Tensor | None, steps: int, until: float
    ) -> tuple[BoundForms, Parameters]:
        """Lower the bounds of one row of each part by gradient steps, and return the best bounds and parameters."""
        x, at, ranges = self.intervals(state), start, self._ranges(state, start)
        rules = {name: Adam(one, _MEAN_DECAY, _SQUARE_DECAY) for name, one in at.slopes.items()}
        rule = Adam(at.multipliers, _MEAN_DECAY, _SQUARE_DECAY)
        best: tuple[BoundForms, Parameters] | None = None
        rate = torch.zeros_like(at.multipliers)
        for step in range(steps + 1):
            last = step == steps or time.monotonic() > until
            leaves = {name: one.detach().requires_grad_(not last) for name, one in at.slopes.items()}
            g = at.multipliers.detach().requires_grad_(not last)
            with torch.set_grad_enabled(not last):
                form, bias, mean = self.forms(state, row, leaves, g)
            with torch.no_grad():
                swing, delta = self.balls.maximise(form.detach(), member)
                whole = self.with_multipliers(bias.detach(), x, g.detach())
            now = BoundForms(form.detach(), whole, whole + swing, delta)
            given = Parameters({name: one.detach() for name, one in leaves.items()}, g.detach())
            if best is None:
                best = now, given
            else:
                lower = now.value < best[0].value
                best = now.where(lower, best[0]), given.where(lower, best[1])
            if last:
                break
            names = list(leaves)
            with torch.enable_grad():
                total = (bias + (form * delta).sum(1)).sum()
            *gradients, at_z = torch.autograd.grad(total, [*leaves.values(), g], materialize_grads=True)
            if step == 0:
                rate = _MULTIPLIER_RATE * mean
            decay = _FINAL_STEP_SHARE ** (step / steps)
            slopes = {}
            for name, gradient in zip(names, gradients, strict=True):
                move = rules[name].direction(gradient.nan_to_num(0.0, 0.0, 0.0) * ranges[name], _LEAST_GRADIENT)
                slopes[name] = at.slopes[name] - _SLOPE_RATE * decay * ranges[name] * move
            low, high = at_z - x.lower, at_z - x.upper
            old = at.multipliers
            slack = torch.where(old > 0, low, torch.where(old < 0, high, low.clamp(max=0) + high.clamp(min=0)))
            new = old - rate * decay * rule.direction(slack, _LEAST_GRADIENT)
            at = Parameters(slopes, torch.where(old * new < 0, 0, new))
        assert best is not None
        return best

    def _ranges(self, state: BoundState, start: Parameters) -> dict[str, Tensor]:
        """Return the ranges (C, F, *shape) of the free parameters; an infinite range counts as 1."""
        found = {}
        for node in self._nonlinear:
            if node.name in start.slopes:
                rule = RULES[node.op]
                assert isinstance(rule, Nonlinear)
                free = rule.free(node, *map(state.interval, node.inputs))
                assert free is not None
                width = free.most - free.least
                found[node.name] = torch.where(width.isfinite(), width, 1)
        return found

    def scores(self, x: Interval, row: Tensor, choice: Parameters, delta: Tensor) -> Tensor:
        """Return the branching scores (C, H): how much the bound falls on both parts if an entry is split, to first
        order.

        The derivative of the bound with respect to the ends of an interval passes through all relaxations and through
        interval arithmetic. The sum of both gains counts.
        """
        lower, upper = (end.detach().requires_grad_() for end in (x.lower, x.upper))
        with torch.enable_grad():
            state = self.state(self.entries.intervals(Interval(lower, upper)), len(row))
            form, bias, _ = self.forms(state, row, choice.slopes, choice.multipliers)
            total = (bias + (form * delta).sum(1)).sum()
            low, high = torch.autograd.grad(total, [lower, upper], materialize_grads=True)
        at = self.entries.split_points(x)
        below = (high.nan_to_num(0.0, 0.0, 0.0) * (x.upper - at)).clamp(min=0)
        above = (-low.nan_to_num(0.0, 0.0, 0.0) * (at - x.lower)).clamp(min=0)
        return torch.where((x.lower < at) & (at < x.upper), below + above, 0)
