"""Neuron splitting (GenBaB, Shi et al. 2024): branch and bound on the inputs of any nonlinear operation.

An entry z of a hidden node is restricted to z <= p or to z >= p. On both parts, interval arithmetic carries the
narrower interval on, all operations are relaxed again, and the new constraint enters with a multiplier
(`part_bounder`). So products, softmax and smooth functions are split like ReLUs.

The bound of a part is one affine function of δ. It holds on the part of B, and so on the same part of every member:
one tree serves the family.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from proofmap.bounds.state import BoundState
from proofmap.errors import RoomError
from proofmap.rules import Interval
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_needed, is_out_of_memory
from proofmap.runtime.time_limit import time_limit
from proofmap.search.frontier import Frontier, Offer, Report, SearchResult, StoppingRule
from proofmap.search.neurons.part_bounder import NeuronSplittingProblem, Parameters, PartBounder
from proofmap.search.unstable_units import round_outward, to_float64

_ROOT_STEPS, _PART_STEPS = 20, 4  # Adam's steps at the root, and at a part
_CANDIDATES = 6  # splits of a part that are bounded before one is chosen
_OFFERED_POINTS = 8  # points tried as adversaries at a time
_BATCHES_PER_OFFER = 8  # batches between two tries
_REPORT_SECONDS = 0.5  # seconds between two progress reports
_BATCH_VALUES = {"cpu": 2**19, "cuda": 2**27}  # values of the network on all parts of a batch
_BATCH_PARTS = {"cpu": 64, "cuda": 2048}  # parts that are split at once


def split_neurons(
    problem: NeuronSplittingProblem, known: Tensor, reached: Tensor, rule: StoppingRule, offer: Offer, report: Report
) -> SearchResult:
    """Tighten the upper bounds `known` (1 + G,) of all members towards the lower bounds `reached`."""
    same = torch.zeros_like(known, dtype=torch.bool)
    same[0] = True
    frontier = Frontier(known, reached, same, rule, offer)
    stopped = ""
    try:
        with time_limit(rule.deadline), progress.unreported():
            tree = NeuronTree(problem, frontier, rule)
            tree.bound_root()
        heard = time.monotonic()
        while len(frontier.leaves) and not (stopped := frontier.stop_reason()):
            with time_limit(rule.deadline), progress.unreported():
                tree.split_leaves()
            if time.monotonic() > heard + _REPORT_SECONDS:
                report(float(frontier.reached[0]), float(frontier.upper[0]), frontier.parts)
                heard = time.monotonic()
        if not stopped and bool((frontier.upper > frontier.thresholds).any()):
            stopped = "units"
    except KeyboardInterrupt:
        stopped = "interrupted"
    except TimeoutError:
        stopped = "time"
    except (MemoryError, RuntimeError, RoomError) as error:
        if not (isinstance(error, RoomError) or is_out_of_memory(error)):
            raise
        stopped = "memory"
    return SearchResult(frontier.upper, frontier.parts, stopped)


class NeuronTree:
    """The tree of one search over entries of hidden nodes."""

    def __init__(self, problem: NeuronSplittingProblem, frontier: Frontier, rule: StoppingRule) -> None:
        self.problem = problem
        self.bounder: PartBounder = PartBounder(problem)
        self.frontier = frontier
        self.rule = rule
        self.batches: int = 0
        kind = problem.rows.device.type
        values = sum(node.size for node in self.bounder.graph.nodes)
        fit = problem.available // (16 * bytes_needed("walk", values, problem.rows.element_size()))
        self.batch: int = max(1, min(_BATCH_PARTS[kind], fit, _BATCH_VALUES[kind] // values))

    def bound_root(self) -> None:
        """Bound every row on the whole ball."""
        bounder, count = self.bounder, len(self.problem.rows)
        known = {
            node.name: self.problem.hidden[node.name]
            for node in bounder.entries.nodes
            if node.name in self.problem.hidden
        }
        x = bounder.intervals(bounder.state(known, 1))
        for row in torch.arange(count, device=x.lower.device).split(self.batch):
            part = Interval(x.lower.expand(len(row), -1), x.upper.expand(len(row), -1))
            state = bounder.state(bounder.entries.intervals(part), len(row))
            self._add_parts(
                state, row, bounder.start(state), None, self.frontier.known.expand(len(row), -1), _ROOT_STEPS
            )

    def split_leaves(self) -> None:
        """Split the most urgent parts at an entry each."""
        part = self.frontier.pop(self.batch)
        row = part["row"]
        if not len(row):
            return
        x = to_float64(Interval(part["lower"], part["upper"]))
        choice = self._parameters(part)
        lower, upper, both = self.halves(x, self._chosen(part, x, choice))
        state = self.bounder.state(self.bounder.entries.intervals(Interval(lower, upper)), len(both))
        member = self._targets(part["value"])[both]
        self._add_parts(state, row[both], choice.pick(both), member, part["value"][both], _PART_STEPS)

    def _parameters(self, part: Mapping[str, Tensor]) -> Parameters:
        slopes = {name[7:]: column.double() for name, column in part.items() if name.startswith("slopes:")}
        return Parameters(slopes, part["multipliers"].double())

    def _targets(self, value: Tensor) -> Tensor:
        """Return the member (C,) on which each part is bounded: B if open, else the one with the largest excess."""
        excess = value - self.frontier.thresholds
        return torch.where(excess[:, 0] > 0, 0, excess.argmax(1))

    def halves(self, x: Interval, entry: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split each part at an entry (C,): (lower, upper, part) of the halves below, then above the split point."""
        count = len(entry)
        row = torch.arange(count, device=entry.device)
        at = self.bounder.entries.split_points(x)[row, entry]
        lower, upper = x.lower.repeat(2, 1), x.upper.repeat(2, 1)
        upper[row, entry] = lower[row + count, entry] = at
        return lower, upper, row.repeat(2)

    def _chosen(self, part: Mapping[str, Tensor], x: Interval, choice: Parameters) -> Tensor:
        """Return the candidate (C,) of each part whose halves have the smallest sum of bounds without further steps."""
        ahead, bounder = part["candidates"].long(), self.bounder
        member, least = self._targets(part["value"]), self.frontier.thresholds
        known = part["value"].gather(1, member[:, None])[:, 0]
        totals = []
        for column in ahead.unbind(1):
            lower, upper, both = self.halves(x, column.clamp(min=0))
            state = bounder.state(bounder.entries.intervals(Interval(lower, upper)), len(both))
            here = bounder.intervals(state)
            value = bounder.bound(state, here, part["row"][both], choice.pick(both), member[both]).value
            value = torch.maximum(value.minimum(known[both]), least[member[both]])
            totals.append(value.view(2, -1).sum(0).masked_fill(column < 0, inf))
        return ahead.gather(1, torch.stack(totals, 1).argmin(1, keepdim=True)).squeeze(1)

    def _add_parts(
        self, state: BoundState, row: Tensor, choice: Parameters, member: Tensor | None, above: Tensor, steps: int
    ) -> None:
        """Bound parts with known bounds `above` (C, 1 + G), and push them to the frontier."""
        bounder = self.bounder
        found, choice = bounder.optimise(state, row, choice, member, steps, self.rule.deadline)
        value = found.bias[:, None] + bounder.balls.member_suprema(found.form)
        value = torch.fmin(value, above)
        self._offer_points(found.delta, value)
        x = bounder.intervals(state)
        scores = bounder.scores(x, row, choice, found.delta)
        top = scores.topk(min(_CANDIDATES, scores.shape[1]), dim=1)
        candidates = torch.where(top.values > 0, top.indices, -1)
        near = round_outward(x)
        columns = {
            "lower": near.lower,
            "upper": near.upper,
            "multipliers": choice.multipliers.float(),
            "candidates": candidates,
            "row": row,
            "value": value,
            **{f"slopes:{name}": one.float() for name, one in choice.slopes.items()},
        }
        self.frontier.push(columns, (candidates < 0).all(1))

    def _offer_points(self, delta: Tensor, value: Tensor) -> None:
        """Try the maximisers δ of the most urgent parts as adversaries, once in several batches."""
        self.batches += 1
        if self.batches % _BATCHES_PER_OFFER != 1:
            return
        excess, member = (value - self.frontier.thresholds).max(1)
        high = excess.topk(min(_OFFERED_POINTS, len(value))).indices
        self.frontier.offer(self._in_member(delta[high], member[high]), member[high])

    def _in_member(self, delta: Tensor, member: Tensor) -> Tensor:
        mask = self.problem.family.mask
        if mask is None:
            return delta
        return delta.masked_fill(mask.flatten() == (member - 1)[:, None], 0)
