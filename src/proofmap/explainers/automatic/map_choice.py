"""The choice of a map for `pm.explain`: the best one that fits the time."""

from __future__ import annotations

from typing import Any

import torch

from proofmap.explainers.automatic.request import ExplainRequest
from proofmap.explainers.baselines import FirstOrder
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.methods.blend import BlendEVA
from proofmap.explainers.methods.empirical import EmpiricalEVA
from proofmap.explainers.methods.smooth import SmoothEVA
from proofmap.explainers.objective_gradients import value_and_gradient
from proofmap.explainers.statements.proven_ranks import standing
from proofmap.graph.opaque import opaque_node
from proofmap.inputs import groups as grouping
from proofmap.inputs.ball import Ball
from proofmap.runtime.time_limit import time_limit
from proofmap.text.wording import around, capitalised

_MAP_RADIUS_SHARE = 0.35  # radius of a map's ball, as a share of the range of the values
_BLEND_DRAWS, _MIN_BLEND_DRAWS = 200, 50  # random points of BlendEVA: usual and smallest number; two gradients each
_BLEND_ATTACK_GRADIENTS = 120  # gradients that the attacks of BlendEVA take
_SMOOTH_DRAWS, _MIN_SMOOTH_DRAWS = 50, 8  # gradients of SmoothEVA: the usual number, the smallest
_MAX_SAMPLED_POINTS = 100  # points of EmpiricalEVA, for a network without gradients
_ESTIMATE = "This map is an estimate of importance, not a proof."


def map_within(request: ExplainRequest, seconds: float, until: float) -> tuple[Explanation, str]:
    """Return the best map that fits the time, and a sentence with the reason for it.

    until: a time of `time.monotonic`. A map that is not ready then is replaced by one gradient per sample.
    """
    ball = Ball(_MAP_RADIUS_SHARE * request.samples.width, domain=request.domain)
    foreign = opaque_node(request.graph)
    if foreign is not None and not foreign[1].gradients:
        return _sampled(request, ball, seconds)
    try:
        with time_limit(until):
            return _mean_map(request, ball, seconds)
    except TimeoutError:
        return _one_gradient(request, ball)


def _mean_map(request: ExplainRequest, ball: Ball, seconds: float) -> tuple[Explanation, str]:
    """Return the map from as many gradients as fit the time."""
    first, target = request.x[:1], request.target[:1]
    each = request.seconds_of(lambda: value_and_gradient(request.graph, first, target, "class")) * len(request.x)
    blended = min(_BLEND_DRAWS, 2 * int((seconds / each - _BLEND_ATTACK_GRADIENTS) / 4))
    if blended >= _MIN_BLEND_DRAWS and _is_finite(request.domain):
        return _blend(request, blended)
    draws = min(_SMOOTH_DRAWS, 2 * int(seconds / each / 2))
    if draws < _MIN_SMOOTH_DRAWS:
        return _one_gradient(request, ball)
    made = SmoothEVA(request.model, ball, groups=request.groups, samples=draws, progress=request.progress)
    found = request.explained(made)
    fit = "" if draws == _SMOOTH_DRAWS else f" (usually {_SMOOTH_DRAWS}; the time allows no more)"
    ties = standing(found, 0) if len(found) == 1 else ""
    ties = f" {capitalised(ties)}." if ties else ""
    return found, (
        f"Map: SmoothEVA, the mean of {draws} gradients{fit} over a large ball, {around(found.settings)}. It shows "
        f"which groups carry the evidence for the class. {_ESTIMATE}{ties}"
    )


def _one_gradient(request: ExplainRequest, ball: Ball) -> tuple[Explanation, str]:
    found = request.explained(FirstOrder(request.model, ball, groups=request.groups, progress=request.progress))
    return found, (
        "Map: FirstOrder, from one gradient per sample. It shows which groups change the output most, to first "
        f"order at the input. The time does not allow the {_MIN_SMOOTH_DRAWS} gradients that a mean needs. "
        f"{_ESTIMATE}"
    )


def _blend(request: ExplainRequest, draws: int) -> tuple[Explanation, str]:
    ball = Ball(1.0, domain=request.domain, relative=True)
    made = BlendEVA(request.model, ball, groups=request.groups, samples=draws, progress=request.progress)
    fit = "" if draws == _BLEND_DRAWS else f" ({draws} random points instead of {_BLEND_DRAWS}, to fit the time)"
    return request.explained(made), (
        f"Map: BlendEVA, from {2 * draws + _BLEND_ATTACK_GRADIENTS} gradients{fit}. It mixes three parts over the "
        "whole range of the values: evidence for the class, changes that attacks make, and changes that noise "
        f"makes. In our comparison on images it is first, or close to first, by most metrics. {_ESTIMATE}"
    )


def _sampled(request: ExplainRequest, ball: Ball, seconds: float) -> tuple[Explanation, str]:
    groups = request.samples.cells
    members = 1 + int(grouping.mask_of(groups, request.x).max()) + 1
    each = request.seconds_of(lambda: request.graph(request.x[:1])) * len(request.x) * members
    samples = max(2, min(_MAX_SAMPLED_POINTS, int(seconds / each)))
    found = request.explained(
        EmpiricalEVA(request.model, ball, groups=groups, samples=samples, progress=request.progress)
    )
    return found, (
        f"Map: EmpiricalEVA, from {samples} random points of the ball ({around(found.settings)}), each repeated "
        "with every single group unchanged. It needs no gradients, which this network does not have. "
        f"{_ESTIMATE}"
    )


def _is_finite(domain: tuple[Any, Any] | None) -> bool:
    """Return whether the domain has two finite endpoints."""
    return domain is not None and all(bool(torch.as_tensor(end).isfinite().all()) for end in domain)
