"""Verification of properties as in VNN-LIB: decide whether unsafe outputs are impossible over boxes of inputs.

A property lists what must not happen. Each of its regions is a box of inputs with unsafe cases of outputs:

    unsafe = {(x, y) : l <= x <= u and, for one of the cases, a_r·y + b_r <= 0 for every row r}

The property holds if no x of a box has outputs y = f(x) in a case of that box. A case is excluded on a box if *one* of
its rows is proven positive on the whole box. A point violates the property if *all* rows of a case are at most 0 there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Literal

import torch
from torch import Tensor

from proofmap.attack.counterexample import PGD_RESTARTS, PGD_STEPS, RunModel
from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.attack.pgd import run_pgd_starts
from proofmap.bounds import Cases, Exact, Method, solve
from proofmap.bounds.engine import solve_plans
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph, bounded
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.graph.rewrite.probability_head import MAX_LOGIT_GAP, SINGLE_SIGMOID, decision_margin
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import largest_below, round_into_box
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime import progress
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.search.exact import exact_bounds
from proofmap.verify.overlap import method_of

_RELATIVE_SLACK = 1e-6  # share of a row's terms at the box's centre: a bound closer to 0 may be a rounding error
_CASES_PER_ATTACK = 32  # cases that are attacked at once; after each batch the search may end


@dataclass(frozen=True, eq=False)
class Unsafe:
    """An unsafe case: outputs y with weight @ y + bias <= 0 in every row, and < 0 in strict rows."""

    weight: Tensor  # (R, classes) float64
    bias: Tensor  # (R,) float64
    strict: Tensor  # (R,) bool

    @property
    def compares(self) -> bool:
        """True if every row only compares two outputs."""
        alone = (self.weight.sum(1) == 0) & ((self.weight != 0).sum(1) == 2) & (self.bias == 0)
        return bool(alone.all())

    def met(self, outputs: Tensor) -> bool:
        """Return whether the outputs (classes,) are in this case."""
        value = self.weight @ outputs.to(self.weight) + self.bias
        return bool(torch.where(self.strict, value < 0, value <= 0).all())


@dataclass(frozen=True, eq=False)
class Region:
    """A box of inputs with its unsafe cases."""

    lower: Tensor  # (*shape) float64
    upper: Tensor
    unsafe: tuple[Unsafe, ...]

    def ball(self, device: torch.device) -> Family:
        """Return the ball around the box's centre that contains the box, in float64."""
        lower, upper = self.lower.to(device)[None], self.upper.to(device)[None]
        centre = (lower + upper) / 2
        radius = torch.maximum(upper - centre, centre - lower)
        wider = torch.nextafter(radius, torch.full_like(radius, inf))
        return Ball(torch.where(radius > 0, wider, radius)).at(centre)


@dataclass(frozen=True, eq=False)
class PropertyAnswer:
    """The verdict on a property, with its margin or a counterexample."""

    verdict: Literal["holds", "violated", "unknown"]
    margin: float  # proven distance of the closest case from being met; positive if the property holds
    left: int  # number of cases that are not excluded
    point: Tensor | None = None  # (*shape) float64 exactly in a box, with float32 values where the box contains one
    outputs: Tensor | None = None  # (classes,) of the model as it runs, at the point
    why: str | None = None  # the error that prevented bounds of a box
    rigorous: bool = False  # whether the proof covers all rounding errors


def decide(
    graph: Graph,
    regions: Sequence[Region],
    *,
    bounds: Method | None = None,
    run: RunModel | None = None,
    device: torch.device | None = None,
    memory: int | None = None,
    rigorous: bool | None = None,
) -> PropertyAnswer:
    """Decide whether no input of the regions has outputs in one of their cases.

    Bounds are computed in float64 and must exceed 0 by more than a rounding slack. With rigorous, the proof also covers
    float32 in any order of summation. That is the default if all rounding errors are known. If a case is left, an
    attack searches for a point that meets it, both in the network over the reals (computed in float64) and in `run`,
    the model as its user runs it in its own precision, by default the graph.
    """
    method = method_of(bounds)
    device = torch.device("cpu") if device is None else device
    check(graph, regions)
    rigorous = decide_rigorous(graph, rigorous) or has_extreme_weights(graph)
    return replace(_decided(graph, regions, method, run, device, memory, rigorous), rigorous=rigorous)


def _decided(
    graph: Graph,
    regions: Sequence[Region],
    method: Method,
    run: RunModel | None,
    device: torch.device,
    memory: int | None,
    rigorous: bool,
) -> PropertyAnswer:
    """Decide the property. The caller sets `rigorous` in the answer."""
    precise = graph.to(device, torch.float64)
    left: list[tuple[Region, Unsafe]] = []
    margin, why = inf, None
    for region in regions:
        try:
            proven, clear = _margins(precise, region, method, device, budget(memory, device), rigorous)
        except BoundError as error:
            why, proven, clear = str(error), [-inf] * len(region.unsafe), [False] * len(region.unsafe)
        margin = min(margin, *proven)
        left += [(region, case) for case, excluded in zip(region.unsafe, clear, strict=True) if not excluded]
    if not left:
        return PropertyAnswer("holds", margin, 0)
    network = graph.to(device, graph.dtype)
    for start in range(0, len(left), _CASES_PER_ATTACK):
        violation = _attack(network, precise, left[start : start + _CASES_PER_ATTACK], run or network, device)
        if violation is not None:
            return PropertyAnswer("violated", margin, len(left), *violation, why=why)
    if method.search is None or why is not None:
        return PropertyAnswer("unknown", margin, len(left), why=why)
    room = budget(memory, device)
    return _search(network, precise, left, method.search, run or network, device, room, margin, rigorous)


def check(graph: Graph, regions: Sequence[Region]) -> None:
    """Raise an error if the network cannot be bounded, or if the property does not fit its inputs and outputs."""
    bounded(graph)
    if not regions:
        raise InputError("got no region, expected at least one box with cases of outputs")
    for region in regions:
        shape = tuple(region.lower.shape)
        if shape != graph.input.shape:
            raise InputError(f"got a box of shape {shape}, expected {graph.input.shape}, that of the network's inputs")
        for case in region.unsafe:
            _check_outputs(graph, case)


def _check_outputs(graph: Graph, case: Unsafe) -> None:
    """Check a case against the outputs.

    If a final softmax or sigmoid was removed, the logits have the order of the outputs, but not their values.
    """
    if graph.taken_off is not None and not (graph.taken_off != SINGLE_SIGMOID and case.compares):
        raise InputError(
            f"the model ends in a {graph.taken_off}, which is taken off before bounding, expected a property that only "
            "compares outputs with each other: hand over the network before it, and a property of its logits"
        )
    outputs = case.weight.shape[1]
    if outputs != graph.classes:
        many = f"{outputs} output{'s' * (outputs != 1)}"
        raise InputError(f"got a property of {many}, expected {graph.classes}, those of the network")


def _margins(
    graph: Graph, region: Region, method: Method, device: torch.device, available: int, rigorous: bool
) -> tuple[list[float], list[bool]]:
    """Return for each case the largest lower bound of a row on the box, and whether one exceeds 0 by the slack."""
    family = region.ball(device)
    weight = torch.cat([case.weight for case in region.unsafe]).to(family.x)
    bias = torch.cat([case.bias for case in region.unsafe]).to(family.x)
    with full_precision(family.x.device), torch.no_grad():
        size = weight.abs() @ graph(family.x).flatten().abs() + bias.abs()
    above = solve(graph, Cases(family), -weight[None], method, "one-pass", available, rigorous=rigorous)
    lower = bias - above[0, 0]  # (rows of all cases,)
    rows = [len(case.bias) for case in region.unsafe]
    best = [float(part.max()) for part in lower.split(rows)]
    distinct = _distinct_probabilities(graph, family, region.unsafe, method, available, rigorous)
    cleared = lower - _RELATIVE_SLACK * size - decision_margin(graph.taken_off) * weight.abs().amax(1)
    clear = [bool((part > 0).any()) for part in torch.where(distinct, cleared, -inf).split(rows)]
    return best, clear


def _distinct_probabilities(
    graph: Graph, family: Family, cases: Sequence[Unsafe], method: Method, available: int, rigorous: bool
) -> Tensor:
    """Return (rows of all cases,): whether float32 probabilities differ wherever the logits of a row differ.

    Far behind the largest logit, all probabilities can be 0. There a row that equal outputs meet is not excluded.
    """
    weight, strict = (torch.cat(parts) for parts in zip(*((c.weight, c.strict) for c in cases), strict=True))
    if graph.taken_off is None:
        return torch.ones_like(strict).to(family.x.device)
    ahead = weight.argmax(1).to(family.x.device)
    each = torch.eye(graph.classes).to(family.x)
    forms = (each[None, :] - each[ahead.unique()][:, None]).flatten(0, 1)
    above = solve(graph, Cases(family), forms[None], method, "one-pass", available, rigorous=rigorous)
    behind = family.x.new_zeros(graph.classes)
    behind[ahead.unique()] = above[0, 0].view(-1, graph.classes).amax(1).to(behind)
    return (behind[ahead] <= MAX_LOGIT_GAP) | strict.to(ahead.device)


def _search(
    graph: Graph,
    precise: Graph,
    left: Sequence[tuple[Region, Unsafe]],
    exact: Exact,
    run: RunModel,
    device: torch.device,
    available: int,
    before: float,
    rigorous: bool,
) -> PropertyAnswer:
    """Exclude the remaining cases by branch and bound, or find a point that meets one.

    `exact.seconds` is the time limit for all cases together, and `before` is the margin known so far. A case is
    searched by the row that comes closest to exclusion, since one row has to be positive on the whole box.
    """
    until = time.monotonic() + exact.seconds
    margin, open_ = inf, 0
    for number, (region, case) in enumerate(left):
        with progress.part(number / len(left), (number + 1) / len(left), f"case {number + 1} of {len(left)}"):
            seconds = (until - time.monotonic()) / (len(left) - number)
            if seconds <= 0:
                return PropertyAnswer("unknown", min(margin, before), len(left) - number + open_)
            family = region.ball(device)
            weight, bias = case.weight.to(family.x), case.bias.to(family.x)
            bounds, hidden = solve_plans(
                precise, Cases(family), -weight[None], exact, "one-pass", available, rigorous=rigorous, keep_hidden=True
            )
            above = bounds[0, 0]
            distinct = _distinct_probabilities(precise, family, (case,), exact, available, rigorous)
            row = int(torch.where(distinct, bias - above, -inf).argmax())
            with full_precision(device), torch.no_grad():
                size = float(weight[row].abs() @ precise(family.x).flatten().abs() + bias[row].abs())
                forms = -weight[None, row : row + 1]
                room = _RELATIVE_SLACK * size + decision_margin(precise.taken_off) * float(weight[row].abs().max())
                enough = largest_below(float(bias[row]) - room, torch.float64) if bool(distinct[row]) else -inf
                met = attack_lower_bounds(precise, family, forms, available)
                known = above[None, row : row + 1].double()
                less = replace(exact, seconds=seconds)
                found = exact_bounds(precise, family, met, known, hidden, less, available, enough, rigorous=rigorous)
            upper = float(found.upper[0, 0])
            margin = min(margin, float(bias[row]) - upper)
            open_ += upper > enough
            point = round_into_box(met.points[0], region.lower.to(device), region.upper.to(device), graph.dtype)
            if case.met(precise(point).flatten().cpu()) and case.met(
                outputs := run(point.to(graph.dtype)).flatten().cpu()
            ):
                return PropertyAnswer("violated", margin, len(left) - number, point[0].cpu(), outputs)
    return PropertyAnswer("unknown" if open_ else "holds", margin, open_)


def _attack(
    graph: Graph, precise: Graph, left: Sequence[tuple[Region, Unsafe]], run: RunModel, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """Search for a point that meets one of the cases. Return it with its outputs by `run`, or None."""
    lower = torch.stack([region.lower for region, _ in left]).to(device)
    upper = torch.stack([region.upper for region, _ in left]).to(device)
    middle = round_into_box((lower + upper) / 2, lower, upper, graph.dtype)
    radius = torch.maximum(upper - middle, middle - lower).flatten(1).amax(1)
    x, below, above, eps = (end.to(graph.dtype) for end in (middle, lower - middle, upper - middle, radius))
    family = Family(x, below, above, inf, eps)
    generator = torch.Generator(device).manual_seed(0)
    for value, delta in run_pgd_starts(
        partial(_depth, graph, *_padded(left, family.x)), family, PGD_STEPS, PGD_RESTARTS, generator
    ):
        points = round_into_box(family.x + delta, lower, upper, graph.dtype)
        # also try points that only rounding errors may keep from 0
        near = value > -_RELATIVE_SLACK * value.abs().clamp(min=1)
        for k in near.nonzero().flatten().tolist():
            _, case = left[k]
            if not case.met(precise(points[k : k + 1]).flatten().cpu()):
                continue
            outputs = run(points[k : k + 1].to(graph.dtype)).flatten().cpu()
            if case.met(outputs):
                return points[k].cpu(), outputs
    return None


def _padded(left: Sequence[tuple[Region, Unsafe]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (N, R, classes) and biases (N, R) of all cases. Every point meets the padding rows."""
    rows = max(len(case.bias) for _, case in left)
    classes = left[0][1].weight.shape[1]
    weight = like.new_zeros(len(left), rows, classes)
    bias = like.new_full((len(left), rows), -inf)
    for k, (_, case) in enumerate(left):
        weight[k, : len(case.bias)] = case.weight.to(like)
        bias[k, : len(case.bias)] = case.bias.to(like)
    return weight, bias


def _depth(graph: Graph, weight: Tensor, bias: Tensor, points: Tensor) -> Tensor:
    """Return (N,) how deep each point is in its case: the smallest -(a·y + b), at least 0 if the case is met."""
    value = (weight @ graph(points).flatten(1)[:, :, None]).squeeze(2) + bias
    return (-value.amax(1)).nan_to_num(nan=-inf)
