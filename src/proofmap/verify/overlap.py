"""Adversarial overlap AO: upper and lower bounds of the largest margin of another class over a ball.

    AO(x, B) = max over δ in B and c' != c of f_c'(x + δ) - f_c(x + δ)

Upper bounds are proven. AO < 0 is a certificate that no input of the ball has another class. AO = 0 is none, since
another class may have the same logit. Lower bounds are values at inputs of the ball.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import AttackBounds, attack_lower_bounds
from proofmap.bounds import IBP, Backward, Cases, CrownIBP, Method, Sharing
from proofmap.bounds.differences.twin_bounds import drops
from proofmap.bounds.engine import solve_plans
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs, of_one_input
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.graph.rewrite.probability_head import decision_margin, saturation_margin
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.family import Family
from proofmap.inputs.membership import largest_below, round_up
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.inputs.several_inputs import Balls, GroupsOfInputs, is_several
from proofmap.rounding.crossed_bounds import check_attained, check_score_bounds, estimate_error, estimate_stored_error
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.point_bounds import lower_bounds_at_points
from proofmap.rounding.rigorous_support import MIXING, decide_rigorous, or_fast
from proofmap.rounding.search_errors import enlarge_balls
from proofmap.rules import Interval
from proofmap.runtime.memory import budget
from proofmap.runtime.outward_numbers import NOT_COVERED, format_range
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.search.exact import exact_bounds
from proofmap.settings import check_choice, check_flag, check_number
from proofmap.verify.objective import Objective, decides, forms_of, join, nominal
from proofmap.verify.objectives import Output, check_objective, objective_graph, refuse_target

_NOMINAL = torch.empty(0)  # placeholder for lower bounds that are not given: the values at x itself
_SPENT = ("time", "memory", "units")  # reasons why a search stops before it knows all scores
_DROPS_TIME_SHARE = 0.1  # further share of the search time for direct bounds of the scores that it left open
_FIRST_WORK_SHARE = 0.1  # share of the progress bar for the attack and the bounds before a search
_ATTACK_TIME_SHARE = 0.25  # largest share of the search time for lower bounds by attacks
_FIRST_TIME_SHARE = 0.8  # share of the search time after which the bounds before the search are not tightened further
_LEAST_FIRST_SECONDS = 0.5  # per sample: time for these bounds even if the search time is shorter
_LEAST_SEARCH_SECONDS = 1e-3  # per sample: a search needs a positive time
_DECISION_GAP = 1e-9  # gap of a search that only decides whether a value is below `enough`


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Bounds of the adversarial overlap of the ball B, and of the ball B_u with each group u frozen.

    If certified, `full` and `frozen` are proven upper bounds. Otherwise they are lower bounds from samples, or
    estimates. The explanation's `guarantee` tells which. The lower bounds are values of the traced graph in float64 at
    inputs of the balls: at x itself, or at `points` if a method searched for them.

    >>> over = pm.overlap(model, x, ball, groups=cells)
    >>> over
    Overlap(2 samples, 16 groups, certified: AO(B) <= -13.39 to -10.05, below 0 for 2 of 2)
    >>> over.intervals.shape        # each interval contains the true score
    torch.Size([2, 16, 2])
    """

    full: Tensor  # (N,)   upper bound of AO(B)
    frozen: Tensor  # (N, G) upper bounds of AO(B_u)
    nominal: Tensor  # (N,)  the overlap at x itself: AO(B) and every AO(B_u) are at least this
    target: Tensor  # (N,)  the class c
    certified: bool  # whether full and frozen are upper bounds, sound by construction
    full_lower: Tensor = _NOMINAL  # (N,)   AO(B) is at least this
    frozen_lower: Tensor = _NOMINAL  # (N, G) AO(B_u) is at least this
    points: Tensor | None = None  # (N, 1 + G, *shape) inputs that attain the lower bounds; None: x itself
    drops: Tensor | None = None  # (N, G, 2) direct bounds of AO(B) - AO(B_u), if there are any
    rigorous: bool = False  # whether upper and lower bounds cover all rounding errors
    value: Tensor | None = None  # (N,) with objectives.Output: the output at x, which all changes are measured from

    def __post_init__(self) -> None:
        """Fill in the lower bounds that x attains, and check lower against upper bounds."""
        sides = {"full": self.full, "frozen": self.frozen}
        for name, upper in sides.items():
            lower = getattr(self, f"{name}_lower")
            if lower is _NOMINAL:
                reached = self.nominal.view(-1, *[1] * (upper.ndim - 1)).expand_as(upper)
                object.__setattr__(self, f"{name}_lower", reached.minimum(upper) if self.certified else reached)
            elif lower.shape != upper.shape:
                raise InputError(f"got {name}_lower of shape {tuple(lower.shape)}, expected {tuple(upper.shape)}")
            elif self.certified:
                check_attained(lower, upper, estimate_stored_error(upper))
                object.__setattr__(self, name, torch.where(lower > upper, round_up(lower, upper.dtype), upper))
        if self.drops is not None:
            if self.drops.shape != (*self.frozen.shape, 2):
                raise InputError(f"got drops of shape {tuple(self.drops.shape)}, expected {(*self.frozen.shape, 2)}")
            check_score_bounds(*self._score_bounds(), estimate_stored_error(self.full)[:, None])

    @classmethod
    def estimated(cls, value: Tensor, nominal: Tensor, target: Tensor) -> Overlap:
        """Return an uncertified overlap from values (N, 1 + G) of B and every B_u, in this order."""
        return cls(value[:, 0].clone(), value[:, 1:].contiguous(), nominal, target, certified=False)

    @property
    def drop(self) -> Tensor:
        """AO(B) - AO(B_u): (N, G)."""
        return self.full[:, None] - self.frozen

    @property
    def intervals(self) -> Tensor:
        """Intervals (N, G, 2) of the true scores AO(B) - AO(B_u). They are never below 0, since B_u is part of B.

        max(0, lower(B) - upper(B_u)) <= AO(B) - AO(B_u) <= upper(B) - lower(B_u), and within the `drops`
        """
        if not self.certified:
            return torch.tensor([0.0, inf]).to(self.frozen).expand(*self.frozen.shape, 2)
        low, high = self._score_bounds()
        # rounding errors may make them cross
        return torch.stack([torch.minimum(low, high), torch.maximum(low, high)], dim=2)

    def _score_bounds(self) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds (N, G) of the scores from all bounds together."""
        most = torch.maximum(self.frozen, self.nominal[:, None])  # rounding may put a bound below the value at x
        low = (self.full_lower.double()[:, None] - most.double()).clamp(min=0)
        high = self.full.double()[:, None] - self.frozen_lower.double()
        if self.drops is None:
            return low, high
        return torch.maximum(low, self.drops[:, :, 0].double()), torch.minimum(high, self.drops[:, :, 1].double())

    def __repr__(self) -> str:
        """Show counts and the range of bounds. "below 0" proves a decision only with some objectives."""
        count, groups = self.frozen.shape
        samples, variables = f"{count} sample{'s' * (count != 1)}", f"{groups or 'no'} group{'s' * (groups != 1)}"
        limits = (float(self.full.min()), float(self.full.max())) if count else (nan, nan)
        below = int((self.full < 0).sum())
        one = "below 0" if below else "not below 0"
        proven = f", {one}" if count == 1 else f", below 0 for {below} of {count}"
        rounding = "" if self.rigorous else f"; {NOT_COVERED}"
        if self.value is not None:
            kind, relation = ("certified", "<=") if self.certified else ("not certified", "about")
            largest = format_range(*limits, "certified" if self.certified else "none")
            return f"Overlap({samples}, {variables}, {kind}: the output changes by {relation} {largest}{rounding})"
        bounds = (
            f"certified: AO(B) <= {format_range(*limits, 'certified')}{proven}{rounding}"
            if self.certified
            else f"not certified: AO(B) about {format_range(*limits, 'none')}"
        )
        return f"Overlap({samples}, {variables}, {bounds})"


@dataclass(frozen=True)
class OverlapSettings:
    """The method, the memory budget and the other settings of `overlap`."""

    method: Method
    available: int
    sharing: Sharing = "one-pass"
    objective: Objective = "margin"
    enough: float = -inf  # a search stops as soon as a value is proven to be below this
    rigorous: bool = False  # whether bounds cover all rounding errors


def overlap(
    model: Network,
    x: Inputs,
    ball: Balls,
    *,
    groups: GroupsOfInputs = None,
    bounds: Method | None = None,
    sharing: Sharing = "shared",
    target: Target = None,
    rival: Target = None,
    objective: Objective = "margin",
    enough: float = -inf,
    memory: int | None = None,
    rigorous: bool | None = None,
) -> Overlap:
    """Bound AO(B) and every AO(B_u) from above.

    x: samples (N, *shape), or several inputs: a tuple in the order of the model's arguments, or a dictionary by
    keyword. Then `ball` and `groups` are tuples with an entry for each input; None as a ball keeps the input fixed.
    target: the class c, one for all samples or one for each, by default the predicted class. rival: a single class c'
    instead of the maximum over all. bounds: Backward() by default. memory: the bytes that the computation may use, by
    default half of the free memory. objective: the form of the logits whose maximum over the ball is the overlap,

        "margin"  max over c' of f_c' - f_c, bounded together      "class"  -f_c alone
        "apart"   the paper's upper(f_c') - lower(f_c), looser     "mean"   mean over c' of f_c' - f_c

    A final softmax, or a sigmoid of one output, is removed. Then 2⁻¹⁶ is added to the bounds of "margin" and "apart": a
    class must be ahead by this much so that its probability is larger in float32.

    `pm.objectives.Output` asks for the change of one output instead, as of a regression model, and
    `pm.objectives.Label` for one label. A model with one output z is otherwise read as the logits (0, z): z < 0 is
    class 0, and z > 0 is class 1.

    An overlap below 0 proves the decision only with "margin" and "apart" and without a rival. At 0, another class may
    have the same logit.

    rigorous: the bounds hold for the network over the reals, and for float32 with any order of summation on any device.
    They do not cover TF32, bfloat16, Winograd or FFT convolutions. A-priori rounding errors widen the bounds. The
    default is True if the rounding errors of all operations are known, and False with a warning where they leave no
    bound. True raises an error for any other network.
    False is the fast mode: bounds for the network over the reals, computed in floating point. `Overlap.rigorous` tells
    which mode was used.

    enough: a search stops as soon as a value is proven to be below this. With 0 it only decides.

    >>> pm.overlap(model, x, ball).full < 0         # proven
    tensor([True, True])
    """
    check_objective("got objective", objective)
    refuse_target(objective, target)
    refuse_target(objective, rival, "rival")
    check_choice("got sharing", sharing, Sharing)
    if enough != -inf:
        check_number("got enough", enough)
    if rigorous is not None:
        check_flag("got rigorous", rigorous)
    method = method_of(bounds)
    if is_several(x):
        joined = join_inputs(model, x)
        groups = None if groups is None else joined.mask(groups, ball)
        model, x, ball = joined.model, joined.x, joined.ball(ball)
    ball, groups = of_one_input(ball, groups)

    x = as_samples(x, model)
    boxes = OneHotBoxes.of(ball, x, grouping.resolve(groups, x))
    graph = bounded(objective_graph(as_graph(model, x), objective)).to(x.device, x.dtype)
    if rival is not None:
        _check_rival(graph, x, target, rival)

    from proofmap.verify.onehot_overlap import boxes_overlap  # imports this module

    def bound(asked: bool | None) -> Overlap:
        covered = decide_rigorous(graph, asked, method)
        how = OverlapSettings(method, budget(memory, x.device), sharing, objective, enough, covered)
        return boxes_overlap(graph, boxes, target, how, rival)

    return or_fast(rigorous, bound)


def family_overlap(
    graph: Graph,
    family: Family,
    target: Target,
    how: OverlapSettings,
    rival: Target = None,
    start: Tensor | None = None,
) -> Overlap:
    """Bound the overlap of a given family of balls. A rival that is the target itself has the overlap 0.

    graph: that of the objective. start: (N,) the value that an output's change is measured from, by default its value
    at the centres of the balls.
    """
    bounded(graph)
    if has_extreme_weights(graph):  # only rigorous bounds know the range of float32
        how = replace(how, rigorous=True)
    with full_precision(family.x.device), torch.no_grad():
        logits = logits_of(graph, family.x)
        classes = target_of(target, logits)
        other = None if rival is None else target_of(rival, logits, "rival")
        overlap_of = _bounded_overlap if how.method.search is None else _searched_overlap
        if not isinstance(how.objective, Output):
            return overlap_of(graph, family, logits, classes, forms_of(logits, classes, other, how.objective), how)
        start = logits[:, 0] if start is None else start
        forms = forms_of(logits, classes, other, how.objective, start)
        return replace(overlap_of(graph, family, logits, torch.zeros_like(classes), forms, how), value=start)


def two_sided_overlap(graph: Graph, family: Family, target: Tensor, how: OverlapSettings) -> Overlap:
    """Bound the overlap of a family without groups from both sides; without a search, an attack gives the lower side.

    If the upper bound is rigorous, the value at the attacked point is lowered by all rounding errors.
    """
    over = family_overlap(graph, family, target, how)
    if how.method.search is not None:
        return over
    with full_precision(family.x.device), torch.no_grad():
        forms = forms_of(logits_of(graph, family.x), target, None, how.objective)
        met = attack_lower_bounds(graph, family, forms, how.available)
        room = torch.zeros_like(met.value) if over.rigorous else _room(graph, met, over.full[:, None])
    reached = over.full_lower.maximum(attained_value(graph, met.points[:, 0], target, how, over.rigorous))
    check_attained(reached, over.full, room[:, 0])
    return replace(over, full_lower=reached.minimum(over.full), points=met.points)


def attained_value(graph: Graph, points: Tensor, target: Tensor, how: OverlapSettings, rigorous: bool) -> Tensor:
    """Return a lower bound (N,) of the overlap of every ball that contains the points (N, *shape), in their type.

    It is the value there in float64, rounded down; with `rigorous`, also minus all rounding errors.
    """
    with full_precision(points.device), torch.no_grad():
        forms = forms_of(logits_of(graph, points), target, None, how.objective)
        exact = graph.to(points.device, torch.float64)
        value = nominal(forms.double(), exact(points.double()).flatten(1), how.objective)
        if rigorous:
            value = value.minimum(_rigorous_value_at(graph, points, forms, how).double())
        return -round_up(-value, points.dtype)


def _bounded_overlap(
    graph: Graph, family: Family, logits: Tensor, classes: Tensor, forms: Tensor, how: OverlapSettings
) -> Overlap:
    """Bound the overlap from above by a method without search. The lower bounds are those of x itself."""
    at_x = nominal(forms, logits, how.objective)
    value = upper_bounds(graph, family, logits, forms, how)[0].double() + probability_margin(graph, how)
    value = round_up(value, at_x.dtype)
    if not how.rigorous:
        return Overlap(value[:, 0], value[:, 1:], at_x, classes, certified=True)
    least = _rigorous_value_at(graph, family.x, forms, how).minimum(at_x)[:, None].minimum(value)
    return Overlap(value[:, 0], value[:, 1:], at_x, classes, True, least[:, 0], least[:, 1:], rigorous=True)


def _searched_overlap(
    graph: Graph, family: Family, logits: Tensor, classes: Tensor, forms: Tensor, how: OverlapSettings
) -> Overlap:
    """Bound the overlap from both sides by a search, and the scores that the search leaves open directly."""
    assert how.method.search is not None
    at_x = nominal(forms, logits, how.objective)
    searched = search_overlap(graph, family, logits, forms, how)
    upper, met = searched.upper, searched.met
    check_attained(searched.lower, upper, torch.zeros_like(upper) if how.rigorous else _room(graph, met, upper))
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


def probability_margin(graph: Graph, how: OverlapSettings) -> float:
    """Return what upper bounds are raised by, so that one below 0 also decides by the model's own probabilities."""
    if not decides(how.objective):
        return 0.0
    saturated = 0.0 if how.rigorous else saturation_margin(graph[graph.output].op)  # rigorous bounds already include it
    return max(decision_margin(graph.taken_off), saturated)


def _rigorous_value_at(graph: Graph, points: Tensor, forms: Tensor, how: OverlapSettings) -> Tensor:
    """Return a rigorous lower bound (N,) of the overlap at a point of each ball (N, *shape), such as x itself.

    It uses the same kind of bounds as the upper bounds. CROWN-IBP is tight at a point, except where products enlarge
    the rounding errors before them.
    """
    method: Method = CrownIBP() if any(plan.final for plan in how.method.plans) else IBP()
    if any(node.op in MIXING for node in graph.nodes) and any(plan.hidden for plan in how.method.plans):
        method = Backward()
    value = lower_bounds_at_points(graph, points, forms, method, how.available)
    below = join(value.masked_fill(~forms.any(2), 0)[:, None], how.objective)[:, 0]
    return torch.nextafter(below, torch.full_like(below, -inf)) if how.objective == "apart" else below


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
        both = _rounding(graph, points, crossed[:, None].expand(points.shape[:2]))  # errors of both terms
        room = both.amax(1, keepdim=True)
        check_score_bounds(ends[..., 0], high, room)
        check_score_bounds(low, ends[..., 1], room)
    return replace(found, drops=torch.stack([ends[..., 0].minimum(high), ends[..., 1].maximum(low)], dim=2))


def _room(graph: Graph, met: AttackBounds, upper: Tensor) -> Tensor:
    """Estimate the rounding errors (N, members) of the values that exceed an upper bound; 0 for the others."""
    return _rounding(graph, met.points, met.value > upper)


def _rounding(graph: Graph, points: Tensor, wanted: Tensor) -> Tensor:
    """Estimate the rounding errors of the values at the wanted points (N, members, *shape): (N, members)."""
    room = torch.zeros(wanted.shape, dtype=torch.float64, device=points.device)
    if bool(wanted.any()):
        room[wanted] = estimate_error(graph, points[wanted])
    return room


def upper_bounds(
    graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings, until: float = inf
) -> tuple[Tensor, dict[str, Interval]]:
    """Return upper bounds (N, members) of the overlap; for a search, also intervals (N, *shape) of hidden nodes."""
    # A form whose bound is below another form's value at x itself cannot decide the maximum.
    floor = None if how.objective == "apart" else nominal(forms, logits, how.objective)
    value, hidden = solve_plans(
        graph,
        Cases(family),
        forms,
        how.method,
        how.sharing,
        how.available,
        floor,
        rigorous=how.rigorous,
        keep_hidden=how.method.search is not None,
        until=until,
    )
    exact_zeros = ~forms.any(2)[:, None]  # the value of a form without coefficients is exactly 0
    above = join(value.masked_fill(exact_zeros, 0), how.objective)
    if how.rigorous and how.objective == "apart":
        above = torch.nextafter(above, torch.full_like(above, inf))
    return above, hidden


def _check_rival(graph: Graph, x: Tensor, target: Target, rival: Target) -> None:
    """Raise an error if a rival is the target itself."""
    with full_precision(x.device), torch.no_grad():
        logits = logits_of(graph, x)
    decided, other = target_of(target, logits), target_of(rival, logits, "rival")
    same = torch.eq(other, decided).nonzero()
    if len(same):
        k = int(same[0])
        raise InputError(
            f"got rival {int(other[k])}, which is the target of sample {k}, expected another class: f_c - f_c is 0, "
            "and proves nothing"
        )


def method_of(bounds: Method | None) -> Method:
    """Return the bound method, by default Backward()."""
    if bounds is None:
        return Backward()
    if not isinstance(bounds, Method):
        raise InputError(f"got bounds={bounds!r}, expected a method such as pm.bounds.Backward() or IBP() & Forward()")
    return bounds
