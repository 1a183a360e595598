"""Attacks on properties: search points that satisfy all rows of an unsafe case, and confirm them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor

from proofmap.attack.counterexample import PGD_RESTARTS, PGD_STEPS, RunModel
from proofmap.attack.pgd import Objective, gradient_step, run_pgd, run_pgd_from
from proofmap.attack.sequential_lp import deepen
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.inputs.membership import round_into_box
from proofmap.runtime.precision import full_precision
from proofmap.verify.property_bounds import RELATIVE_SLACK, OpenRegion
from proofmap.verify.unsafe_region import Region, Unsafe

Violation = tuple[Tensor, Tensor]  # a point (*shape), and the outputs (classes,) of the model as it runs there

_CASES_PER_ATTACK = 32  # cases that are attacked at once; after each batch the attack may end
_MAX_STARTS, _PRODUCTS_PER_ROUND = 128, 2**24  # starts of a case: at most, and within so many products of one step
_SAMPLES_PER_START = 16  # random points from which each start is taken, the deepest ones
_MIN_SAMPLED_STARTS = 8  # fewer starts, on large networks, are drawn only once
_SAMPLED_ROUNDS = 4  # rounds with many starts: both objectives, with steps along signs and along the gradient
_GRADIENT_SIZES = [0.3 * 0.88**k for k in range(PGD_STEPS)]  # steps along the gradient, as shares of the box
_POLISHED = 3  # points of each round that sequential programs move deeper, if a case has several rows
_DEEP = 1e-4  # a point this deep, relative to the rows, survives float32


@dataclass(frozen=True, eq=False)
class PointCheck:
    """Confirms points in the network over the reals (computed in float64), and in the model as its user runs it."""

    network: Graph  # in the model's precision
    precise: Graph
    run: RunModel
    regions: Sequence[Region]
    device: torch.device

    def violation(self, points: Tensor, number: Sequence[int], *, repair: bool = True) -> Violation | None:
        """Return the first of the points (K, *shape), of regions number (K,), that is a counterexample as it is stored.

        With `repair`, a point that is none is moved deeper into its case, and tried again.
        """
        for point, k in zip(points, number, strict=True):
            region = self.regions[k]
            ends = region.lower.to(self.device), region.upper.to(self.device)
            near = round_into_box(point[None], *ends, self.network.dtype)
            if (found := self._confirmed(near, region)) is not None:
                return found
            if repair and (found := self._confirmed(self._repaired(near, region, *ends), region)) is not None:
                return found
        return None

    def _confirmed(self, point: Tensor, region: Region) -> Violation | None:
        with full_precision(self.device), torch.no_grad():
            exact = self.precise(point).flatten().cpu()
            met = [case for case in region.unsafe if case.met(exact)]
            if not met:
                return None
            outputs = self.run(point.to(self.network.dtype)).flatten().cpu()
        return (point[0].cpu(), outputs) if any(case.met(outputs) for case in met) else None

    def _repaired(self, point: Tensor, region: Region, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the point, moved deeper into the case that it meets most nearly."""
        with full_precision(self.device), torch.no_grad():
            exact = self.precise(point).flatten().cpu()
            values = [float(-(case.weight @ exact.to(case.weight) + case.bias).max()) for case in region.unsafe]
            case = region.unsafe[max(range(len(values)), key=values.__getitem__)]
            weight, bias = case.weight.to(point), case.bias.to(point)

            def rows(x: Tensor) -> Tensor:
                return (weight @ self.precise(x).flatten(1)[0]) + bias

            deep = deepen(rows, point[0], lower, upper, _DEEP * float(1 + bias.abs().max()))
        return round_into_box(deep[None], lower, upper, self.network.dtype)


def attack_cases(check: PointCheck, left: Sequence[OpenRegion], until: float) -> Violation | None:
    """Search a point that meets one of the cases by PGD. Return it with its outputs by `check.run`, or None.

    Half of the starts maximise the smallest -(a·y + b) of a case's rows, and half the sum of its positive a·y + b.
    until: after this time of `time.monotonic`, no round of starts begins.
    """
    pairs = [(k, one.case) for k, region in enumerate(left) for one in region.cases]
    for start in range(0, len(pairs), _CASES_PER_ATTACK):
        if start and time.monotonic() > until:
            break
        some = pairs[start : start + _CASES_PER_ATTACK]
        for points, near, promising in _points(check, some):
            which = near.nonzero().flatten()
            found = check.violation(points[which], [some[k][0] for k in which.tolist()])
            late = time.monotonic() > until
            if found is None and not late:
                found = check.violation(points[promising], [some[k][0] for k in promising.tolist()])
            if found is not None:
                return found
            if late:
                break
    return None


def _points(check: PointCheck, pairs: Sequence[tuple[int, Unsafe]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the best point (N, *shape) of each case, whether it may meet the case, and the most promising ones.

    One round of starts is yielded at a time. The first start of all is the centre of the box. Small networks have
    several starts per case in a round.
    """
    graph, regions = check.network, [check.regions[k] for k, _ in pairs]
    lower, upper = (torch.stack([getattr(one, end) for one in regions]).to(check.device) for end in ("lower", "upper"))
    middle = round_into_box((lower + upper) / 2, lower, upper, graph.dtype)
    radius = torch.maximum(upper - middle, middle - lower).flatten(1).amax(1)
    x, below, above, eps = (end.to(graph.dtype) for end in (middle, lower - middle, upper - middle, radius))
    family = Family(x, below, above, inf, eps)
    generator = torch.Generator(check.device).manual_seed(0)
    copies = max(1, min(_MAX_STARTS, _PRODUCTS_PER_ROUND // (products(graph) * len(pairs))))
    many = family.pick(torch.arange(len(pairs), device=check.device).repeat_interleave(copies))
    rows = padded([case for _, case in pairs for _ in range(copies)], family.x)
    whole = partial(depth, graph, *rows)
    several = rows[1].shape[1] > 1
    for k in range(PGD_RESTARTS if copies < _MIN_SAMPLED_STARTS else _SAMPLED_ROUNDS):
        start = _deepest_samples(whole, many, generator)
        if k == 0:
            start[::copies] = 0
        aim = partial(missed_rows, graph, *rows) if several and k % 2 else whole
        if k % 4 < 2:
            value, delta = run_pgd_from(aim, many, start, PGD_STEPS)
        else:
            with full_precision(check.device), torch.no_grad():
                value, delta = run_pgd(aim, many, start, _GRADIENT_SIZES, gradient_step)
        with full_precision(check.device), torch.no_grad():
            value = whole(many.x + delta)
            best = value.view(len(pairs), copies).argmax(1) + copies * torch.arange(len(pairs), device=check.device)
        value, delta = value[best], delta[best]
        # also try points that only rounding errors may keep from 0
        near = value > -RELATIVE_SLACK * value.abs().clamp(min=1)
        promising = value.topk(min(_POLISHED, len(value)) if several and k % 2 else 0).indices
        yield round_into_box(family.x + delta, lower, upper, graph.dtype), near, promising


def _deepest_samples(value: Objective, family: Family, generator: torch.Generator) -> Tensor:
    """Return the δ (N, *shape) of the deepest of several points that are drawn from each ball."""
    with full_precision(family.x.device), torch.no_grad():
        best = family.sample(1, generator)[0]
        if len(best) < _MIN_SAMPLED_STARTS:
            return best
        depth_there = value(family.x + best)
        for _ in range(_SAMPLES_PER_START - 1):
            drawn = family.sample(1, generator)[0]
            deeper = value(family.x + drawn)
            better = deeper > depth_there
            best[better], depth_there = drawn[better], torch.maximum(deeper, depth_there)
    return best


def products(graph: Graph) -> int:
    """Estimate the number of products that the network computes for one sample."""
    weighted = (
        node.weight.numel() * max(1, node.size // max(1, node.shape[0]))
        for node in graph.nodes
        if node.op.startswith("conv") and node.weight is not None
    )
    dense = (node.weight.numel() for node in graph.nodes if not node.op.startswith("conv") and node.weight is not None)
    return sum(weighted) + sum(dense) + sum(node.size for node in graph.nodes)


def padded(cases: Sequence[Unsafe], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (N, R, classes) and biases (N, R) of all cases. Every point meets the padding rows."""
    rows = max(len(case.bias) for case in cases)
    weight = like.new_zeros(len(cases), rows, cases[0].weight.shape[1])
    bias = like.new_full((len(cases), rows), -inf)
    for k, case in enumerate(cases):
        weight[k, : len(case.bias)] = case.weight.to(like)
        bias[k, : len(case.bias)] = case.bias.to(like)
    return weight, bias


def _row_values(graph: Graph, weight: Tensor, bias: Tensor, points: Tensor) -> Tensor:
    return (weight @ graph(points).flatten(1)[:, :, None]).squeeze(2) + bias


def depth(graph: Graph, weight: Tensor, bias: Tensor, points: Tensor) -> Tensor:
    """Return (N,) how deep each point is in its case: the smallest -(a·y + b), at least 0 if the case is met."""
    return (-_row_values(graph, weight, bias, points).amax(1)).nan_to_num(nan=-inf)


def missed_rows(graph: Graph, weight: Tensor, bias: Tensor, points: Tensor) -> Tensor:
    """Return (N,) minus the sum of the rows' positive a·y + b: 0 if the case is met."""
    return (-_row_values(graph, weight, bias, points).clamp(min=0).sum(1)).nan_to_num(nan=-inf)
