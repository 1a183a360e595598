"""Properties of a network's outputs over boxes of inputs, decided: they hold, they are violated, or nobody knows.

A property is said by what must not happen, as VNN-LIB does: regions, each a box of inputs with cases of outputs,

    unsafe = {(x, y) : l <= x <= u and, for one of the cases, a_r·y + b_r <= 0 for every row r}

and it holds where no x of a box has its outputs y = f(x) in a case of that box. A case is excluded over a box if *one*
of its rows is proven positive on the whole box; it is met by a point where *all* of its rows are at most 0.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Literal

import torch
from torch import Tensor

from proofmap.attack.counterexample import RESTARTS, STEPS, Run
from proofmap.attack.lower_bounds import reach
from proofmap.attack.pgd import climbs
from proofmap.bounds import Cases, Exact, Method, solve
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph, bounded
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.graph.rewrite.probability_head import SINGLE_SIGMOID, MAX_LOGIT_GAP, decision_margin
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import below, into_box
from proofmap.rounding.coverage import rigorous_on
from proofmap.runtime import progress
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.search import close
from proofmap.verify.overlap import method_of

__all__ = ["PropertyAnswer", "Region", "Unsafe", "check", "decide"]

_SLACK = 1e-6  # of a row's terms at the middle of the box: a bound closer to 0 may be rounding, and excludes nothing
_TOGETHER = 32  # cases that are attacked at once


@dataclass(frozen=True, eq=False)
class Unsafe:
    """A case: outputs y with weight @ y + bias <= 0 in every row, < 0 in strict ones."""

    weight: Tensor  # (R, classes) float64
    bias: Tensor  # (R,) float64
    strict: Tensor  # (R,) bool

    @property
    def compares(self) -> bool:
        """Whether every row says of two outputs which is the larger, and nothing else."""
        alone = (self.weight.sum(1) == 0) & ((self.weight != 0).sum(1) == 2) & (self.bias == 0)
        return bool(alone.all())

    def met(self, outputs: Tensor) -> bool:
        """Whether outputs (classes,) are a case of it."""
        value = self.weight @ outputs.to(self.weight) + self.bias
        return bool(torch.where(self.strict, value < 0, value <= 0).all())


@dataclass(frozen=True, eq=False)
class Region:
    """A box of inputs, and the cases that must not happen in it."""

    lower: Tensor  # (*shape) float64
    upper: Tensor
    unsafe: tuple[Unsafe, ...]

    def ball(self, device: torch.device) -> Family:
        """The ball around the middle that holds the box, in float64."""
        lower, upper = self.lower.to(device)[None], self.upper.to(device)[None]
        centre = (lower + upper) / 2
        radius = torch.maximum(upper - centre, centre - lower)
        wider = torch.nextafter(radius, torch.full_like(radius, inf))
        return Ball(torch.where(radius > 0, wider, radius)).at(centre)


@dataclass(frozen=True, eq=False)
class PropertyAnswer:
    """What is known of a property."""

    verdict: Literal["holds", "violated", "unknown"]
    margin: float  # how far the case that comes closest is from being met, proven; above 0 where the property holds
    left: int  # the number of cases that are not excluded
    point: Tensor | None = None  # (*shape) float64 in a box, exactly; a float32 wherever there is one in the box
    outputs: Tensor | None = None  # (classes,) at the point, by whoever runs the model
    why: str | None = None  # what kept a box from being bounded at all
    rigorous: bool = False  # whether what is proven holds with all roundings


def decide(
    graph: Graph,
    regions: Sequence[Region],
    *,
    bounds: Method | None = None,
    run: Run | None = None,
    device: torch.device | None = None,
    memory: int | None = None,
    rigorous: bool | None = None,
) -> PropertyAnswer:
    """Whether no input of the regions has outputs in one of their cases.

    Bounds are computed in float64; one has to clear 0 by more than rounding: rigorous: by that of float32 in any order
    of summation too, by default where all roundings are known. Where a case is left, an attack looks for a point that
    meets it: in the network over the real numbers, computed in float64, and by `run`, the model as its user runs it in
    its own precision, by default the graph.
    """
    method = method_of(bounds)
    device = torch.device("cpu") if device is None else device
    check(graph, regions)
    rigorous = rigorous_on(graph, rigorous) or has_extreme_weights(graph)
    return replace(_decided(graph, regions, method, run, device, memory, rigorous), rigorous=rigorous)


def _decided(
    graph: Graph,
    regions: Sequence[Region],
    method: Method,
    run: Run | None,
    device: torch.device,
    memory: int | None,
    rigorous: bool,
) -> PropertyAnswer:
    """The answer, but for what it says of roundings."""
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
    for start in range(0, len(left), _TOGETHER):
        violation = _attack(network, precise, left[start : start + _TOGETHER], run or network, device)
        if violation is not None:
            return PropertyAnswer("violated", margin, len(left), *violation, why=why)
    if method.search is None or why is not None:
        return PropertyAnswer("unknown", margin, len(left), why=why)
    room = budget(memory, device)
    return _search(network, precise, left, method.search, run or network, device, room, margin, rigorous)


def check(graph: Graph, regions: Sequence[Region]) -> None:
    """Refuse a network that cannot be bounded, and a property that is not of its inputs and outputs."""
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
    """What a network ends in may have been taken off: its logits have the order of its outputs, not their values."""
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
    """For each case the largest lower bound of a row on the box, and whether one clears 0 by more than rounding."""
    family = region.ball(device)
    weight = torch.cat([case.weight for case in region.unsafe]).to(family.x)
    bias = torch.cat([case.bias for case in region.unsafe]).to(family.x)
    with full_precision(family.x.device), torch.no_grad():
        size = weight.abs() @ graph(family.x).flatten().abs() + bias.abs()
    above = solve(graph, Cases(family), -weight[None], method, "one-pass", available, rigorous=rigorous)
    lower = bias - above[0, 0]  # (rows of all cases,)
    rows = [len(case.bias) for case in region.unsafe]
    best = [float(part.max()) for part in lower.split(rows)]
    kept = _kept(graph, family, region.unsafe, method, available, rigorous)
    distinct = lower - _SLACK * size - decision_margin(graph.taken_off) * weight.abs().amax(1)
    clear = [bool((part > 0).any()) for part in torch.where(kept, distinct, -inf).split(rows)]
    return best, clear


def _kept(
    graph: Graph, family: Family, cases: Sequence[Unsafe], method: Method, available: int, rigorous: bool
) -> Tensor:
    """(rows of all cases,): whether probabilities, as float32 computes them, differ where the logits of a row do.

    Far behind the largest logit they may all be 0. There a row that is met by equal outputs is not excluded.
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
    run: Run,
    device: torch.device,
    available: int,
    before: float,
    rigorous: bool,
) -> PropertyAnswer:
    """Exclude the cases that are left, or meet one, by searching; `exact.seconds` are for all of them, `before` is the
    margin that is known.

    A case is searched by its row that comes closest to being excluded: of several rows one has to be positive on the
    whole box, which no part of it need be alone.
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
            above = solve(precise, Cases(family), -weight[None], exact, "one-pass", available, rigorous=rigorous)[0, 0]
            kept = _kept(precise, family, (case,), exact, available, rigorous)
            row = int(torch.where(kept, bias - above, -inf).argmax())
            with full_precision(device), torch.no_grad():
                size = float(weight[row].abs() @ precise(family.x).flatten().abs() + bias[row].abs())
                forms = -weight[None, row : row + 1]
                room = _SLACK * size + decision_margin(precise.taken_off) * float(weight[row].abs().max())
                enough = below(float(bias[row]) - room, torch.float64) if bool(kept[row]) else -inf
                met = reach(precise, family, forms, available)
                known = above[None, row : row + 1].double()
                less = replace(exact, seconds=seconds)
                found = close(precise, family, met, known, less, available, enough, rigorous=rigorous)
            upper = float(found.upper[0, 0])
            margin = min(margin, float(bias[row]) - upper)
            open_ += upper > enough
            point = into_box(met.points[0], region.lower.to(device), region.upper.to(device), graph.dtype)
            if case.met(precise(point).flatten().cpu()) and case.met(
                outputs := run(point.to(graph.dtype)).flatten().cpu()
            ):
                return PropertyAnswer("violated", margin, len(left) - number, point[0].cpu(), outputs)
    return PropertyAnswer("unknown" if open_ else "holds", margin, open_)


def _attack(
    graph: Graph, precise: Graph, left: Sequence[tuple[Region, Unsafe]], run: Run, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """A point that meets one of the cases, and its outputs by `run`."""
    lower = torch.stack([region.lower for region, _ in left]).to(device)
    upper = torch.stack([region.upper for region, _ in left]).to(device)
    middle = into_box((lower + upper) / 2, lower, upper, graph.dtype)
    radius = torch.maximum(upper - middle, middle - lower).flatten(1).amax(1)
    x, below, above, eps = (end.to(graph.dtype) for end in (middle, lower - middle, upper - middle, radius))
    family = Family(x, below, above, inf, eps)
    generator = torch.Generator(device).manual_seed(0)
    for value, delta in climbs(partial(_depth, graph, *_padded(left, family.x)), family, STEPS, RESTARTS, generator):
        points = into_box(family.x + delta, lower, upper, graph.dtype)
        near = value > -_SLACK * value.abs().clamp(min=1)  # what rounding may have kept from 0 is tried as well
        for k in near.nonzero().flatten().tolist():
            _, case = left[k]
            if not case.met(precise(points[k : k + 1]).flatten().cpu()):
                continue
            outputs = run(points[k : k + 1].to(graph.dtype)).flatten().cpu()
            if case.met(outputs):
                return points[k].cpu(), outputs
    return None


def _padded(left: Sequence[tuple[Region, Unsafe]], like: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of every case, (N, R, classes) and (N, R); what fills them up is met by everything."""
    rows = max(len(case.bias) for _, case in left)
    classes = left[0][1].weight.shape[1]
    weight = like.new_zeros(len(left), rows, classes)
    bias = like.new_full((len(left), rows), -inf)
    for k, (_, case) in enumerate(left):
        weight[k, : len(case.bias)] = case.weight.to(like)
        bias[k, : len(case.bias)] = case.bias.to(like)
    return weight, bias


def _depth(graph: Graph, weight: Tensor, bias: Tensor, points: Tensor) -> Tensor:
    """How deep each point is in its case, (N,): the smallest -(a·y + b) of its rows; at least 0 where it is met."""
    value = (weight @ graph(points).flatten(1)[:, :, None]).squeeze(2) + bias
    return (-value.amax(1)).nan_to_num(nan=-inf)
