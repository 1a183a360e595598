"""Adversarial overlap AO: upper and lower bounds of the largest margin of another class over a ball.

    AO(x, B) = max over δ in B and c' != c of f_c'(x + δ) - f_c(x + δ)

Upper bounds are proven. AO < 0 is a certificate that no input of the ball has another class. AO = 0 is none, since
another class may have the same logit. Lower bounds are values at inputs of the ball.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.bounds import IBP, Backward, CrownIBP, Method, Sharing
from proofmap.errors import InputError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs, of_one_input
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.family import Family
from proofmap.inputs.membership import round_up
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.inputs.several_inputs import Balls, GroupsOfInputs, is_several
from proofmap.rounding.crossed_bounds import check_attained
from proofmap.rounding.point_bounds import lower_bounds_at_points
from proofmap.rounding.rigorous_support import MIXING, decide_rigorous, or_fast
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_flag, check_number
from proofmap.verify.family_bounds import (
    OverlapSettings,
    method_of,
    probability_margin,
    rounding_room,
    upper_bounds,
)
from proofmap.verify.objective import Objective, forms_of, join, nominal
from proofmap.verify.objectives import Output, check_objective, objective_graph, refuse_target
from proofmap.verify.overlap_bounds import Overlap
from proofmap.verify.searched_overlap import searched_overlap

__all__ = [
    "Overlap",
    "OverlapSettings",
    "attained_value",
    "family_overlap",
    "method_of",
    "overlap",
    "probability_margin",
    "two_sided_overlap",
]


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
        overlap_of = _bounded_overlap if how.method.search is None else searched_overlap
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
        room = torch.zeros_like(met.value) if over.rigorous else rounding_room(graph, met, over.full[:, None])
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
