"""Verification of properties as in VNN-LIB: decide whether unsafe outputs are impossible over boxes of inputs.

A property lists what must not happen. Each of its regions is a box of inputs with unsafe cases of outputs:

    unsafe = {(x, y) : l <= x <= u and, for one of the cases, a_r·y + b_r <= 0 for every row r}

The property holds if no x of a box has outputs y = f(x) in a case of that box. A case is excluded on a box if *one* of
its rows is proven positive on the whole box. A point violates the property if *all* rows of a case are at most 0 there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import torch
from torch import Tensor

from proofmap.attack.counterexample import RunModel
from proofmap.bounds import Method
from proofmap.errors import InputError
from proofmap.graph import Graph, bounded
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.graph.rewrite.probability_head import SINGLE_SIGMOID
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime.memory import budget
from proofmap.verify.overlap import method_of
from proofmap.verify.property_attack import PointCheck, attack_cases
from proofmap.verify.property_bounds import OpenRegion, bound_regions
from proofmap.verify.property_search import search_cases
from proofmap.verify.unsafe_region import Region, Unsafe

__all__ = ["PropertyAnswer", "Region", "Unsafe", "check", "decide"]

_ATTACK_TIME_SHARE = 0.1  # after this share of the search time, no further start of an attack begins before the search


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
    begin = time.monotonic()
    precise = graph.to(device, torch.float64)
    left: list[OpenRegion] = []
    margin, excluded, why = inf, inf, None
    for one in bound_regions(precise, regions, method, device, budget(memory, device), rigorous):
        margin, excluded, why = min(margin, one.margin), min(excluded, one.excluded_margin), one.why or why
        some = one.left()
        left += [] if some is None else [some]
    count = sum(len(some.cases) for some in left)
    if not left:
        return PropertyAnswer("holds", margin, 0)
    network = graph.to(device, graph.dtype)
    check_point = PointCheck(network, precise, run or network, [one.region for one in left], device)
    until = inf if method.search is None else begin + _ATTACK_TIME_SHARE * method.search.seconds
    violation = attack_cases(check_point, left, until)
    if violation is not None:
        return PropertyAnswer("violated", margin, count, *violation, why=why)
    if method.search is None or why is not None:
        return PropertyAnswer("unknown", margin, count, why=why)
    deadline = begin + method.search.seconds
    found = search_cases(precise, left, check_point, method.search, deadline, budget(memory, device), rigorous)
    if found.violation is not None:
        return PropertyAnswer("violated", margin, count, *found.violation)
    return PropertyAnswer("unknown" if found.left else "holds", min(excluded, max(margin, found.margin)), found.left)


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
