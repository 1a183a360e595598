"""Adversarial overlap: how confident the worst adversary in a ball can get, from both sides.

    AO(x, B) = max over δ in B and c' != c of f_c'(x + δ) - f_c(x + δ)

Upper sides are proven. AO < 0 is a certificate: no input of the ball is classified otherwise. AO = 0 is none: another
class may have the same logit. Lower sides are met by inputs of the ball.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf, nan

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import Reached, reach
from proofmap.bounds import IBP, Backward, Cases, CrownIBP, Method, Sharing, solve
from proofmap.bounds.differences.twin_bounds import drops
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.graph.rewrite.probability_head import decision_margin, saturation_margin
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import below, upwards
from proofmap.inputs.onehot_boxes import Boxes
from proofmap.rounding.coverage import rigorous_on
from proofmap.rounding.crossing import check_drops, check_sides, rounding, stored
from proofmap.runtime.memory import budget
from proofmap.runtime.outward_numbers import NOT_COVERED, span
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.search import close
from proofmap.search.rounding_gap import at_points
from proofmap.settings import check_choice, check_flag, check_number
from proofmap.verify.objective import Objective, forms_of, join, nominal

_NOMINAL = torch.empty(0)  # the lower sides that nobody gives: those of x itself
_SPENT = ("time", "memory", "units")  # why a search ends that leaves scores open
_LAST = 0.1  # of a search, after it, for what it left open
_FIRST = 0.1  # of a search, for what comes before it
_ATTACKED = 0.25  # of the time, at most, for lower sides
_LEAST = 1e-3  # seconds that a search has at least
_DECIDED = 1e-9  # the gap of a search that decides: what is reached may come that near to `enough`


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Numbers for the adversarial overlap, of the ball and of the ball with each group frozen.

    certified: they are proven upper bounds. Otherwise they are not: samples give lower bounds, other methods estimates,
    and the explanation's `guarantee` says which. The lower sides are values of the network at inputs of the balls: at
    x itself, or at `points`, where a method searched for them: the graph that the model was traced as, in float64.

    >>> over = pm.overlap(model, x, ball, groups=cells)
    >>> over
    Overlap(2 samples, 16 groups, certified: AO(B) <= -13.39 to -10.05, below 0 for 2 of 2)
    >>> over.intervals.shape        # between which each true score lies
    torch.Size([2, 16, 2])
    """

    full: Tensor  # (N,)   for AO(B)
    frozen: Tensor  # (N, G) for AO(B_u)
    nominal: Tensor  # (N,)  the overlap at x itself, which AO(B) and every AO(B_u) reach at least
    target: Tensor  # (N,)  the class c
    certified: bool  # whether full and frozen are upper bounds, sound by construction
    full_lower: Tensor = _NOMINAL  # (N,)   AO(B) is at least this
    frozen_lower: Tensor = _NOMINAL  # (N, G) AO(B_u) is at least this
    points: Tensor | None = None  # (N, 1 + G, *shape) the inputs that attain the lower sides; None: x itself
    drops: Tensor | None = None  # (N, G, 2) between which each AO(B) - AO(B_u) is, bounded as one value; None: was not
    rigorous: bool = False  # whether upper and lower sides hold with all roundings

    def __post_init__(self) -> None:
        """Fill in the lower sides that x attains, and hold both sides together."""
        sides = {"full": self.full, "frozen": self.frozen}
        for name, upper in sides.items():
            lower = getattr(self, f"{name}_lower")
            if lower is _NOMINAL:
                reached = self.nominal.view(-1, *[1] * (upper.ndim - 1)).expand_as(upper)
                object.__setattr__(self, f"{name}_lower", reached.minimum(upper) if self.certified else reached)
            elif lower.shape != upper.shape:
                raise InputError(f"got {name}_lower of shape {tuple(lower.shape)}, expected {tuple(upper.shape)}")
            elif self.certified:
                check_sides(lower, upper, stored(upper))
                object.__setattr__(self, name, torch.where(lower > upper, upwards(lower, upper.dtype), upper))
        if self.drops is not None:
            if self.drops.shape != (*self.frozen.shape, 2):
                raise InputError(f"got drops of shape {tuple(self.drops.shape)}, expected {(*self.frozen.shape, 2)}")
            check_drops(*self._met(), stored(self.full)[:, None])

    @classmethod
    def estimated(cls, value: Tensor, nominal: Tensor, target: Tensor) -> Overlap:
        """That of B and every B_u, in this order, (N, 1 + G); nothing is proven."""
        return cls(value[:, 0].clone(), value[:, 1:].contiguous(), nominal, target, certified=False)

    @property
    def drop(self) -> Tensor:
        """AO(B) - AO(B_u): (N, G)."""
        return self.full[:, None] - self.frozen

    @property
    def intervals(self) -> Tensor:
        """Where each true score AO(B) - AO(B_u) lies: (N, G, 2); never below 0, since B_u is part of B.

        max(0, lower(B) - upper(B_u)) <= AO(B) - AO(B_u) <= upper(B) - lower(B_u), and within the `drops`
        """
        if not self.certified:
            return torch.tensor([0.0, inf]).to(self.frozen).expand(*self.frozen.shape, 2)
        low, high = self._met()
        return torch.stack([torch.minimum(low, high), torch.maximum(low, high)], dim=2)  # rounding may part them

    def _met(self) -> tuple[Tensor, Tensor]:
        """The ends (N, G) of the intervals, from all that is known."""
        most = torch.maximum(self.frozen, self.nominal[:, None])  # a bound may round to below what x itself reaches
        low = (self.full_lower.double()[:, None] - most.double()).clamp(min=0)
        high = self.full.double()[:, None] - self.frozen_lower.double()
        if self.drops is None:
            return low, high
        return torch.maximum(low, self.drops[:, :, 0].double()), torch.minimum(high, self.drops[:, :, 1].double())

    def __repr__(self) -> str:
        """How many bounds, between which ends; "below 0" says no more than that: an objective may decide nothing."""
        count, groups = self.frozen.shape
        ends = (float(self.full.min()), float(self.full.max())) if count else (nan, nan)
        below = int((self.full < 0).sum())
        one = "below 0" if below else "not below 0"
        proven = f", {one}" if count == 1 else f", below 0 for {below} of {count}"
        rounding = "" if self.rigorous else f"; {NOT_COVERED}"
        bounds = (
            f"certified: AO(B) <= {span(*ends, 'certified')}{proven}{rounding}"
            if self.certified
            else f"not certified: AO(B) about {span(*ends, 'none')}"
        )
        samples, variables = f"{count} sample{'s' * (count != 1)}", f"{groups or 'no'} group{'s' * (groups != 1)}"
        return f"Overlap({samples}, {variables}, {bounds})"


@dataclass(frozen=True)
class OverlapSettings:
    """How overlaps are bounded: by which method, in how many bytes, and what `overlap` says of the rest."""

    method: Method
    available: int
    sharing: Sharing = "one-pass"
    objective: Objective = "margin"
    enough: float = -inf  # where a search is made: what is proven to be below this need not be known closer
    rigorous: bool = False  # whether bounds hold with all roundings


def overlap(
    model: Network,
    x: Samples,
    ball: Ball,
    *,
    groups: grouping.Groups = None,
    bounds: Method | None = None,
    sharing: Sharing = "shared",
    target: Target = None,
    rival: Target = None,
    objective: Objective = "margin",
    enough: float = -inf,
    memory: int | None = None,
    rigorous: bool | None = None,
) -> Overlap:
    """Upper bounds of AO(B) and of every AO(B_u).

    target: the class c, one for all or one for each sample; by default the predicted one. rival: one class c' in place
    of the max over all. bounds: Backward() by default. memory: bytes the computation may use, by default half of what
    is free. objective: the form of the logits whose maximum over the ball counts as overlap,

        "margin"  max over c' of f_c' - f_c, bounded together      "class"  -f_c alone
        "apart"   the paper's upper(f_c') - lower(f_c), looser     "mean"   mean over c' of f_c' - f_c

    Of a model that ends in a softmax or a sigmoid of one output, which is taken off, 2⁻¹⁶ is added to the bounds of
    "margin" and "apart": by that a class has to be ahead for its probability to be larger in float32.

    Only with "margin" and "apart", and without a rival, does an overlap below 0 prove the decision: at 0 another
    class may have the same logit.

    rigorous: the bounds hold for the network over the reals, and as float32 runs it in any order of summation, on any
    device; not with TF32, bfloat16, Winograd's or FFT convolutions. Radii known beforehand are added outward. By
    default wherever the roundings of all operations are known; True refuses any other network. False is the fast mode:
    bounds of the network over the reals, computed in floating point. The result says which it was: `Overlap.rigorous`.

    enough: for bounds that search: what is proven to be below this need not be known closer; 0 decides, and no more.

    >>> pm.overlap(model, x, ball).full < 0         # proven
    tensor([True, True])
    """
    check_choice("got objective", objective, Objective)
    check_choice("got sharing", sharing, Sharing)
    if enough != -inf:
        check_number("got enough", enough)
    method = method_of(bounds)
    x = as_samples(x, model)
    mask = grouping.resolve(groups, x)
    boxes = Boxes.of(ball, x, mask)
    if rigorous is not None:
        check_flag("got rigorous", rigorous)
    graph = bounded(as_graph(model, x)).to(x.device, x.dtype)
    how = OverlapSettings(
        method, budget(memory, x.device), sharing, objective, enough, rigorous_on(graph, rigorous, method)
    )
    if rival is not None:
        _check_rival(graph, x, target, rival)
    from proofmap.verify.onehot_overlap import boxes_overlap  # which asks this file for every box

    return boxes_overlap(graph, boxes, target, how, rival)


def family_overlap(graph: Graph, family: Family, target: Target, how: OverlapSettings, rival: Target = None) -> Overlap:
    """The same for a family of balls that stands already; towards its own class it is 0."""
    bounded(graph)
    if has_extreme_weights(graph):  # only rigorous bounds know the range of float32
        how = replace(how, rigorous=True)
    with full_precision(family.x.device), torch.no_grad():
        logits = logits_of(graph, family.x)
        classes = target_of(target, logits)
        forms = forms_of(logits, classes, None if rival is None else target_of(rival, logits, "rival"), how.objective)
        at_x = nominal(forms, logits, how.objective)
        if how.method.search is not None:
            upper, met, left = closed(graph, family, logits, forms, how)
            check_sides(met.value, upper, _room(graph, met.points))
            reached = met.value
            if how.rigorous:
                reached = _at_least(graph, met.points, forms, how)
                check_sides(reached, upper, torch.zeros_like(upper))  # both hold with all roundings: nothing may cross
            above = upwards(upper.maximum(reached) + _ahead(graph, how), at_x.dtype)
            least = -upwards(-reached, at_x.dtype)
            found = Overlap(above[:, 0], above[:, 1:], at_x, classes, True, least[:, 0], least[:, 1:], met.points)
            if how.rigorous:  # the roundings of differences are not known
                return replace(found, rigorous=True)
            until = time.monotonic() + _LAST * how.method.search.seconds * len(left)
            try:
                return with_drops(found, graph, family, forms, left, how.available, until)
            except (BoundError, KeyboardInterrupt):  # what was searched for is not lost
                return found
        value = upwards(bound(graph, family, logits, forms, how).double() + _ahead(graph, how), at_x.dtype)
        if how.rigorous:
            least = _at_x(graph, family, forms, how).minimum(at_x)[:, None].minimum(value)
            return Overlap(value[:, 0], value[:, 1:], at_x, classes, True, least[:, 0], least[:, 1:], rigorous=True)
    return Overlap(value[:, 0], value[:, 1:], at_x, classes, certified=True)


def _ahead(graph: Graph, how: OverlapSettings) -> float:
    """What is added to upper sides, so that a bound below 0 is a decision of the model's own probabilities, too."""
    if how.objective not in ("margin", "apart"):
        return 0.0
    saturated = 0.0 if how.rigorous else saturation_margin(graph[graph.output].op)  # rigorous bounds count that
    return max(decision_margin(graph.taken_off), saturated)


def _at_x(graph: Graph, family: Family, forms: Tensor, how: OverlapSettings) -> Tensor:
    """What the overlap at x itself is at least, (N,), with all roundings: by forms where upper sides are."""
    still = torch.zeros_like(family.x)
    points = Cases(Family(family.x, still, still, inf, torch.zeros_like(family.eps)))
    method = CrownIBP() if any(plan.final for plan in how.method.plans) else IBP()
    above = solve(graph, points, -forms, method, "one-pass", how.available, rigorous=True)
    below = join(-above.masked_fill(~forms.any(2)[:, None], 0), how.objective)[:, 0]
    return torch.nextafter(below, torch.full_like(below, -inf)) if how.objective == "apart" else below


def _at_least(graph: Graph, points: Tensor, forms: Tensor, how: OverlapSettings) -> Tensor:
    """What is reached at points (N, members, *shape) at least, (N, members) float64, with all roundings."""
    count, members = points.shape[:2]
    precise = graph.to(points.device, torch.float64)
    rows = forms.double().repeat_interleave(members, dim=0)
    low, _ = at_points(precise, points.flatten(0, 1).double(), rows, how.available)
    return low.view(count, members)


def closed(
    graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings
) -> tuple[Tensor, Reached, Tensor]:
    """Upper sides (N, members) in float64 and what was reached from below, by a method that searches; and the samples
    whose search ended before both met.
    """
    assert how.method.search is not None
    if how.objective == "apart":
        raise InputError(
            "got objective 'apart' with exact bounds, expected 'margin', 'class' or 'mean': 'apart' is a sum of two "
            "bounds, which nothing reaches"
        )
    begin, seconds = time.monotonic(), how.method.search.seconds
    with part(0.0, _FIRST):
        met = reach(graph, family, forms, how.available, begin + _ATTACKED * seconds * family.count)
        upper = bound(graph, family, logits, forms, how).double()
    spent = (time.monotonic() - begin) / max(1, family.count)
    exact = replace(how.method.search, seconds=max(_LEAST, seconds - spent))
    enough = how.enough - _ahead(graph, how)
    if enough != -inf:
        exact, enough = replace(exact, gap=_DECIDED), below(enough, family.x.dtype)
    with part(_FIRST, 1.0):
        found = close(graph, family, met, upper, exact, how.available, enough, rigorous=how.rigorous)
    left = [n for n, one in enumerate(found.found) if one.stopped in _SPENT]
    return found.upper, met, torch.tensor(left, dtype=torch.int64, device=upper.device)


def with_drops(
    found: Overlap, graph: Graph, family: Family, forms: Tensor, which: Tensor, available: int, until: float = inf
) -> Overlap:
    """The same, with each AO(B) - AO(B_u) of some samples, which (n,), bounded as one value too.

    forms (N, R, classes), whose largest value is the overlap. Lower ends need `points`. until: a time of
    `time.monotonic`, from which on groups stay as they are.
    """
    if not (family.groups and len(which)):
        return found
    some = family.pick(which)
    move = None if found.points is None else found.points[which, 0].to(some.x) - some.x
    reached = torch.cat([found.full_lower[:, None], found.frozen_lower], dim=1)[which].to(forms)
    ends = torch.tensor([0.0, inf]).to(forms).repeat(*found.frozen.shape, 1)
    ends[which] = drops(graph, some, forms[which], reached, move, available, until)
    low, high = (end.to(ends) for end in found._met())
    points = family.x[:, None] if found.points is None else found.points.to(family.x)
    room = _room(graph, points).amax(1, keepdim=True)  # of both terms of a difference
    check_drops(ends[..., 0], high, room)
    check_drops(low, ends[..., 1], room)
    return replace(found, drops=torch.stack([ends[..., 0].minimum(high), ends[..., 1].maximum(low)], dim=2))


def _room(graph: Graph, points: Tensor) -> Tensor:
    """What rounding may carry a value at each point (N, members, *shape) by: members reach values of other sizes."""
    return rounding(graph, points.flatten(0, 1)).view(points.shape[:2])


def bound(graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings) -> Tensor:
    """(N, members)."""
    # A form whose bound stays below what another reaches at x itself cannot decide the maximum.
    floor = None if how.objective == "apart" else nominal(forms, logits, how.objective)
    value = solve(graph, Cases(family), forms, how.method, how.sharing, how.available, floor, rigorous=how.rigorous)
    above = join(
        value.masked_fill(~forms.any(2)[:, None], 0), how.objective
    )  # a form of nothing is 0, and rounds nothing
    return torch.nextafter(above, torch.full_like(above, inf)) if how.rigorous and how.objective == "apart" else above


def _check_rival(graph: Graph, x: Tensor, target: Target, rival: Target) -> None:
    """Refuse a rival that is the target itself."""
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
    """The method of bounding; by default Backward()."""
    if bounds is None:
        return Backward()
    if not isinstance(bounds, Method):
        raise InputError(f"got bounds={bounds!r}, expected a method such as pm.bounds.Backward() or IBP() & Forward()")
    return bounds
