"""The overlap by branch and bound: attacks and fast bounds first, then the search, then direct bounds of scores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import AttackBounds, attack_lower_bounds
from proofmap.bounds.differences.twin_bounds import drops
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph
from proofmap.graph.classes import logits_of
from proofmap.inputs.family import Family
from proofmap.inputs.membership import largest_below, round_up
from proofmap.rounding.crossed_bounds import check_attained, check_score_bounds
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.search_errors import enlarge_balls
from proofmap.rules import Interval
from proofmap.runtime.progress import part
from proofmap.search.exact import exact_bounds
from proofmap.verify.family_bounds import (
    OverlapSettings,
    estimated_rounding,
    probability_margin,
    rounding_room,
    upper_bounds,
)
from proofmap.verify.objective import nominal
from proofmap.verify.overlap_bounds import Overlap

_SPENT = ("time", "memory", "units")  # reasons why a search stops before it knows all scores
_DROPS_TIME_SHARE = 0.1  # further share of the search time for direct bounds of the scores that it left open
_FIRST_WORK_SHARE = 0.1  # share of the progress bar for the attack and the bounds before a search
_ATTACK_TIME_SHARE = 0.25  # largest share of the search time for lower bounds by attacks
_FIRST_TIME_SHARE = 0.8  # share of the search time after which the bounds before the search are not tightened further
_LEAST_FIRST_SECONDS = 0.5  # per sample: time for these bounds even if the search time is shorter
_LEAST_SEARCH_SECONDS = 1e-3  # per sample: a search needs a positive time
_DECISION_GAP = 1e-9  # gap of a search that only decides whether a value is below `enough`


def searched_overlap(
    graph: Graph, family: Family, logits: Tensor, classes: Tensor, forms: Tensor, how: OverlapSettings
) -> Overlap:
    """Bound the overlap from both sides by a search, and the scores that the search leaves open directly."""
    assert how.method.search is not None
    at_x = nominal(forms, logits, how.objective)
    searched = search_overlap(graph, family, logits, forms, how)
    upper, met = searched.upper, searched.met
    check_attained(searched.lower, upper, torch.zeros_like(upper) if how.rigorous else rounding_room(graph, met, upper))
    above = round_up(upper.maximum(searched.lower) + probability_margin(graph, how), at_x.dtype)
    least = -round_up(-searched.lower, at_x.dtype)
    found = Overlap(above[:, 0], above[:, 1:], at_x, classes, True, least[:, 0], least[:, 1:], met.points)
    if how.rigorous:  # the rounding errors of direct score bounds are not known
        return replace(found, rigorous=True)
    until = time.monotonic() + _DROPS_TIME_SHARE * how.method.search.seconds * len(searched.left)
    try:
        return with_drops(found, graph, family, forms, searched.left, how.available, searched.hidden, until)
    except (BoundError, KeyboardInterrupt):  # keep the result of the search
        return found


@dataclass(frozen=True, eq=False)
class SearchedOverlap:
    """The result of a search: bounds (N, members) in float64, and what later steps need."""

    upper: Tensor
    lower: Tensor  # values at the points; with `rigorous`, minus all rounding errors
    met: AttackBounds  # the points
    hidden: Mapping[str, Interval]  # intervals (N, *shape) of hidden nodes on the balls, before the search
    left: Tensor  # (n,) the samples whose search ended before both bounds met


def search_overlap(
    graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings
) -> SearchedOverlap:
    """Search for the overlap by branch and bound."""
    assert how.method.search is not None
    if how.objective == "apart":
        raise InputError(
            "got objective 'apart' with exact bounds, expected 'margin', 'class' or 'mean': 'apart' is a sum of two "
            "bounds, which nothing reaches"
        )
    begin, seconds = time.monotonic(), how.method.search.seconds
    with part(0.0, _FIRST_WORK_SHARE):
        met = attack_lower_bounds(
            graph, family, forms, how.available, begin + _ATTACK_TIME_SHARE * seconds * family.count
        )
        until = begin + max(_LEAST_FIRST_SECONDS, _FIRST_TIME_SHARE * seconds) * family.count
        upper, hidden = _bounds_before_search(graph, family, logits, forms, how, until)
    spent = (time.monotonic() - begin) / max(1, family.count)
    exact = replace(how.method.search, seconds=max(_LEAST_SEARCH_SECONDS, seconds - spent))
    enough = how.enough - probability_margin(graph, how)
    if enough != -inf:
        exact, enough = replace(exact, gap=_DECISION_GAP), largest_below(enough, family.x.dtype)
    with part(_FIRST_WORK_SHARE, 1.0):
        found = exact_bounds(graph, family, met, upper, hidden, exact, how.available, enough, rigorous=how.rigorous)
    left = [n for n, one in enumerate(found.results) if one.stopped in _SPENT]
    lower = met.value if found.lower is None else found.lower
    return SearchedOverlap(found.upper, lower, met, hidden, torch.tensor(left, dtype=torch.int64, device=upper.device))


def _bounds_before_search(
    graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings, until: float
) -> tuple[Tensor, dict[str, Interval]]:
    """Return upper bounds (N, members) in float64, and intervals (N, *shape) of hidden nodes, which the search uses.

    Rigorous bounds are computed in float64: their own rounding errors are then negligible beside those of the network.
    For a decision, this is only done for samples that bounds in the type of x leave open.
    """
    upper, left = torch.full_like(family.x.flatten(1)[:, :1], inf), torch.arange(family.count, device=family.x.device)
    if not how.rigorous or how.enough != -inf:
        upper, hidden = upper_bounds(graph, family, logits, forms, how, until)
        if not how.rigorous:
            return upper.double(), hidden
        left = (upper[:, 0] >= how.enough - probability_margin(graph, how)).nonzero().flatten()
        if not len(left):
            return upper.double().expand(-1, family.members), hidden
    precise, balls = graph.to(family.x.device, torch.float64), family.pick(left)
    if family.x.dtype != torch.float64:
        balls = enlarge_balls(balls, unit_roundoff(family.x.dtype))
    closer, hidden = upper_bounds(precise, balls, logits_of(precise, balls.x), forms[left].double(), how, until)
    upper = upper.double().expand(-1, family.members).clone()
    upper[left] = upper[left].minimum(closer)
    return upper, {name: _spread(interval, left, family.count) for name, interval in hidden.items()}


def _spread(interval: Interval, index: Tensor, count: int) -> Interval:
    """Return intervals (count, ...) with those of some cases at their index (n,), and unbounded ones elsewhere."""
    whole = interval.lower.new_full((count, *interval.lower.shape[1:]), inf)
    return Interval(-whole, whole).put(index, interval)


def with_drops(
    found: Overlap,
    graph: Graph,
    family: Family,
    forms: Tensor,
    which: Tensor,
    available: int,
    hidden: Mapping[str, Interval] | None = None,
    until: float = inf,
) -> Overlap:
    """Add direct bounds of AO(B) - AO(B_u) for some samples, which (n,).

    The overlap is the largest value of the forms (N, R, classes). Lower bounds need `points`. Groups that are not
    bounded by `until`, a time of `time.monotonic`, keep their old bounds. hidden: intervals (N, *shape) of hidden
    nodes, by `solve_plans`; None: they are computed.
    """
    if not (family.groups and len(which)):
        return found
    some = family.pick(which)
    move = None if found.points is None else found.points[which, 0].to(some.x) - some.x
    reached = torch.cat([found.full_lower[:, None], found.frozen_lower], dim=1)[which].to(forms)
    ends = torch.tensor([0.0, inf]).to(forms).repeat(*found.frozen.shape, 1)
    known = None if hidden is None else {name: interval.pick(which) for name, interval in hidden.items()}
    ends[which] = drops(graph, some, forms[which], reached, move, available, until, known)
    low, high = (end.to(ends) for end in found._score_bounds())
    crossed = ((ends[..., 0] > high) | (low > ends[..., 1])).any(1)
    if bool(crossed.any()):
        points = family.x[:, None] if found.points is None else found.points.to(family.x)
        both = estimated_rounding(graph, points, crossed[:, None].expand(points.shape[:2]))  # errors of both terms
        room = both.amax(1, keepdim=True)
        check_score_bounds(ends[..., 0], high, room)
        check_score_bounds(low, ends[..., 1], room)
    return replace(found, drops=torch.stack([ends[..., 0].minimum(high), ends[..., 1].maximum(low)], dim=2))
