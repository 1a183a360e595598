"""Exact searches of tiny networks: bounds must hold at all points, and equal the enumerated truth where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import proofmap as pm
from fuzz.hunting.counting import Work, counted
from fuzz.hunting.draw import Draw
from fuzz.hunting.finding import Finding, Found, Tally, raw_error
from fuzz.hunting.pieces import kinks, largest, straight
from fuzz.hunting.points import climbed_from, values_of
from fuzz.hunting.rounding import floor_of, sizes, units
from fuzz.hunting.tiny import Tiny, tiny
from fuzz.hunting.walks import watched
from proofmap.attack import lower_bounds, restarts
from proofmap.bounds import Backward, Exact, Method, Sharing, named
from proofmap.errors import BoundError
from proofmap.search import branch_and_bound, input_splitting, lp, tightening
from proofmap.verify import searched_overlap
from proofmap.verify.overlap import Overlap
from tests.bounds.setting import BUDGET, both_sides

# Most searches start from x alone and take few steps, so that they split more, and many networks fit into the time.
_SEARCH_STEPS: dict[str, Any] = {
    "_ROOT_STEPS": 2,
    "_INTERVAL_STEPS": 1,
    "_PART_STEPS": 2,
    "_LINEAR_PART_STEPS": 4,
    "_ROOT_ROUNDS": 1,
}
_SEARCH_BATCHES: dict[str, Any] = {"_BATCH_PARTS": {"cpu": 4}, "_LPS_PER_STEP": 2, "_BATCHES_PER_OFFER": 4}
_PGD_STEP_SIZES: dict[str, Any] = {
    "_REFINING_SIZES": (0.1, 0.03, 0.01, 0.003),
    "_MEMBER_SIZES": (0.1, 0.01),
    "_SHORT_SIZES": (0.1,),
}
_ATTACK_SETTINGS: dict[str, Any] = {"_PGD_STARTS": 8, "_REFINED_STARTS": 4, "_PGD_STEPS": 4, **_PGD_STEP_SIZES}
_MAX_PARTS, _MAX_PARTS_ENUMERATED = 16, 100  # parts of a ball after which a search ends; more where the truth is known
_TANGENT_PLANES = 6  # planes that describe an ℓ2 ball in a linear program
_FULL_SEARCH_SHARE = 0.005  # share of the networks that are searched with the library's own numbers of steps
_OTHER_METHODS_SHARE = 0.02  # share of the networks that are also bounded by other methods
_MAX_ENUMERATED_KINKS = 5  # the truth is enumerated for networks with at most so many kinks
_LP_TOLERANCE = 1e-7  # relative error of the solver of linear programs


def searches(seed: int, tally: Tally) -> Iterator[Finding]:
    """Yield the findings about the search of the tiny network of a seed."""
    drawn, draw = tiny(seed), Draw("search", seed)
    tally.networks += 1
    tally.operations.update(node.op for node in drawn.graph.nodes)
    found = _outcome(drawn, torch.float32 if draw.chance(0.1) else torch.float64, draw, tally)
    if found is not None:
        yield Finding(seed, found.kind, found.what, drawn.described)


def _outcome(drawn: Tiny, dtype: torch.dtype, draw: Draw, tally: Tally) -> Found | None:
    try:
        with (
            _quick(draw),
            counted(_MAX_PARTS_ENUMERATED if _enumerable(drawn) else _MAX_PARTS) as work,
        ):
            _Search(drawn, dtype, draw, tally, work).check()
    except Found as finding:
        return finding
    except BoundError as error:
        tally.refused[f"BoundError: {str(error)[:60]}"] += 1
    except Exception as error:
        return Found("unsound", str(error)) if "an input reaches" in str(error) else raw_error("a search", error)
    return None


@contextmanager
def _quick(draw: Draw) -> Iterator[None]:
    """Let searches take few steps, except for a few networks."""
    if draw.chance(_FULL_SEARCH_SHARE):
        yield
        return
    attacked = draw.chance(0.1)
    drops_share = (
        searched_overlap._DROPS_TIME_SHARE if draw.chance(0.25) else 0.0
    )  # time share for differences that stay open
    with patch.object(searched_overlap, "_DROPS_TIME_SHARE", drops_share), few_steps(attacked=attacked):
        yield


@contextmanager
def few_steps(*, attacked: bool) -> Iterator[None]:
    """Let searches start at x, or with `attacked` from a short attack, and split after few optimisation steps."""
    with (
        patch.multiple(
            lower_bounds, **(_ATTACK_SETTINGS if attacked else {**_ATTACK_SETTINGS, "_attack_samples": lambda *_: None})
        ),
        patch.object(restarts, "_NETWORK_VALUES", 0),
        patch.multiple(branch_and_bound, **_SEARCH_STEPS, **_SEARCH_BATCHES, tighten_units=_closer),
        patch.object(input_splitting, "_BATCH_PARTS", {"cpu": 8}),
        patch.object(lp, "_MAX_TANGENT_PLANES", _TANGENT_PLANES),
    ):
        yield


def _closer(*args: Any, parts: int, **rest: Any) -> Any:
    return tightening.tighten_units(*args, parts=min(parts, 4), **rest)


class _Search:
    """One tiny network in one precision, with points of every ball and the bounds of the overlap."""

    def __init__(self, drawn: Tiny, dtype: torch.dtype, draw: Draw, tally: Tally, work: Work) -> None:
        self.drawn, self.dtype, self.draw, self.tally, self.work = drawn, dtype, draw, tally, work
        self.graph = drawn.graph.to(torch.device("cpu"), dtype)
        self.family = drawn.family(dtype)
        self.sharing: Sharing = draw.pick(get_args(Sharing))
        self.singles = self.family.split()
        points = climbed_from(self._overlap_at, self.singles, draw.generator, samples=8, steps=3)
        best = self._overlap_at(points).detach().amax(0).view(self.family.count, self.family.members)
        self.reached = torch.cat([best.amax(1, keepdim=True), best[:, 1:]], 1)  # a ball contains all its members
        with watched() as walks:
            both_sides(self.graph, self.singles, named("ibp"), "one-pass")
        size = max(sizes(w.knowledge.graph, w.knowledge.intervals)[self.graph.output].max() for w in walks)
        self.slack = 2 * units(dtype) * float(size) + floor_of(dtype)
        tally.balls += self.singles.count
        tally.points += len(points) * self.singles.count

    def check(self) -> None:
        """Check the bounds by Exact, and for a few networks that Exact and Alpha are not looser than Backward."""
        exact = self._proven(Exact())
        self._holds("exact", exact)
        self.tally.count(self.work)
        self._closed(exact)
        if self.draw.chance(_OTHER_METHODS_SHARE):
            plain = _sides(self._proven(Backward()))[1]
            self._no_looser("exact", _sides(exact)[1], plain)
            alpha = self._proven(named("alpha"))
            self._holds("alpha", alpha)
            self._no_looser("alpha", _sides(alpha)[1], plain)

    def _proven(self, method: Method) -> Overlap:
        one = self.drawn
        return pm.overlap(
            self.graph,
            one.x.to(self.dtype),
            one.ball,
            groups=one.mask,
            bounds=method,
            sharing=self.sharing,
            target=one.target,
            rival=one.rival,
            memory=BUDGET,
        )

    def _holds(self, name: str, over: Overlap) -> None:
        """Check that no point exceeds the upper bound, and that the lower bound is attained at a point of its ball."""
        lower, upper = _sides(over)
        self.tally.bounds += upper.numel()
        self._below(f"{name}: the overlap at a point is", self.reached, upper)
        self._below(f"{name}: the lower side is above the upper one,", lower, upper, 0.0)
        met = self._met(name, over)
        self._below(f"{name}: the lower side is above the overlap at its point,", lower, met)
        self._below(f"{name}: the overlap at the point of a lower side is", met, upper)
        if name == "exact" and self.dtype == torch.float64 and _enumerable(self.drawn):
            truth = self._truth(torch.maximum(self.reached, met))
            self.tally.enumerated += truth.numel()
            self.tally.equal += int((upper - truth <= Exact().gap).sum())
            self._below(f"{name}: the exact overlap is", truth, upper, _LP_TOLERANCE)
            self._below(f"{name}: the lower side is above the exact overlap,", lower, truth, _LP_TOLERANCE)
            self._scored(f"{name}: ", over.intervals, truth)
            if self.drawn.rival is None and self.draw.chance(_OTHER_METHODS_SHARE):
                self._scored("EVA by exact: ", self._explained(), truth)

    def _closed(self, over: Overlap) -> None:
        """Check in float64 that bounds which met are attained, and that all bounds met if every search says so."""
        lower, upper = _sides(over)
        closed = upper - lower <= Exact().gap
        self.tally.closed += int(closed.sum())
        if self.work.met == self.work.searches:
            closed = torch.ones_like(closed)
        apart = torch.where(closed, upper.double() - self._met("exact", over), 0.0)
        self._below("exact: sides that were closed are apart,", apart, torch.full_like(apart, Exact().gap))

    def _explained(self) -> Tensor:
        """Return the intervals (N, G, 2) of the scores in an explanation."""
        one, method = self.drawn, Exact()
        eva = pm.EVA(self.graph, one.ball, groups=one.mask, bounds=method, memory=BUDGET, progress=False)
        return eva.explain(one.x.to(self.dtype), one.target).intervals

    def _scored(self, what: str, intervals: Tensor, truth: Tensor) -> None:
        """Check that the exact scores lie in their intervals."""
        score = truth[:, :1] - truth[:, 1:]
        self._below(f"{what}an exact score is below its interval,", intervals[..., 0], score, _LP_TOLERANCE)
        self._below(f"{what}an exact score is above its interval,", score, intervals[..., 1], _LP_TOLERANCE)

    def _no_looser(self, name: str, upper: Tensor, plain: Tensor) -> None:
        if bool((upper > plain + self.slack).any()):
            off = float((upper - plain).max())
            raise Found("disagreement", f"{name} is {off:.3g} looser than backward bounds ({self.dtype})")

    def _below(self, what: str, value: Tensor, bound: Tensor, tolerance: float | None = None) -> None:
        """Require value <= bound, both (N, members), up to rounding errors or a given relative tolerance."""
        slack = self.slack if tolerance is None else tolerance * (1 + float(bound.abs().max()))
        excess = float((value.double() - bound.double()).nan_to_num(inf).max())
        if excess > slack:
            raise Found("unsound", f"{what} {excess:.3g} off ({self.dtype})")
        if tolerance is None:
            self.tally.near(excess / slack)

    def _met(self, name: str, over: Overlap) -> Tensor:
        """Return the overlap at the points that attain the lower bounds; check that each lies in its ball."""
        points = over.points
        if points is None:
            points = self.family.x[:, None].expand(-1, self.family.members, *self.family.shape)
        flat = points.flatten(0, 1)
        outside = ~self.singles.contains(flat - self.singles.x, 1e-6)
        if bool(outside.any()):
            raise Found("unsound", f"{name}: {int(outside.sum())} points of lower sides are outside their balls")
        frozen = (self.singles.lower == 0) & (self.singles.upper == 0)
        if bool((flat != self.singles.x)[frozen].any()):
            raise Found("unsound", f"{name}: a point of a lower side moves a frozen variable")
        return self._overlap_at(flat[None])[0].view(self.family.count, self.family.members)

    def _overlap_at(self, points: Tensor) -> Tensor:
        """Return the overlap (P, N · members) at points (P, N · members, *shape)."""
        logits = values_of(self.graph, points)[self.graph.output].flatten(2)
        target, rival = self.drawn.target, self.drawn.rival
        own = self._of(logits, target)
        if rival is not None:
            return self._of(logits, rival) - own
        return logits.scatter(2, self._index(target, logits), -inf).amax(2) - own

    def _of(self, logits: Tensor, classes: Tensor) -> Tensor:
        return logits.gather(2, self._index(classes, logits)).squeeze(2)

    def _index(self, classes: Tensor, logits: Tensor) -> Tensor:
        """Return indices that gather one class (N,) for each sample from logits (P, N · members, C)."""
        return classes.repeat_interleave(self.family.members)[None, :, None].expand(len(logits), -1, 1)

    def _truth(self, least: Tensor) -> Tensor:
        """Return the exact overlap (N, members); `least` is already known to be reached."""
        unit, truth = np.eye(self.graph.classes), torch.empty_like(least)
        for k in range(self.singles.count):
            n, member = divmod(k, self.family.members)
            own = int(self.drawn.target[n])
            rival = range(self.graph.classes) if self.drawn.rival is None else [int(self.drawn.rival[n])]
            rows = np.stack([unit[c] - unit[own] for c in rival if c != own])
            truth[n, member] = largest(self.graph, self.singles.pick(torch.tensor([k])), rows, float(least[n, member]))
        return truth


def _enumerable(drawn: Tiny) -> bool:
    return drawn.ball.norm in (1.0, inf) and straight(drawn.graph) and kinks(drawn.graph) <= _MAX_ENUMERATED_KINKS


def _sides(over: Overlap) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bounds, each (N, members)."""
    lower = torch.cat([over.full_lower[:, None], over.frozen_lower], 1)
    return lower, torch.cat([over.full[:, None], over.frozen], 1)
