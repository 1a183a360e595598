"""Sets of groups of tiny networks: no point may refute a free set, and no necessary group may be free in truth.

Where the exact maximum can be enumerated, the free set's overlap must lie below its bound, the overlap with one more
group must reach the limit, and no sufficient set may be smaller than a proven least size. A changed input must move its
contrastive set alone and have another class, and no smaller set than proven may change the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import inf

import numpy as np
import torch
from torch import Tensor

import proofmap as pm
from fuzz.hunting.draw import Draw
from fuzz.hunting.finding import Finding, Found, Tally, raw_error
from fuzz.hunting.pieces import kinks, largest, straight
from fuzz.hunting.points import climbed_from, values_of
from fuzz.hunting.tiny import Tiny, tiny
from proofmap import Family
from proofmap.bounds import Backward, Exact
from proofmap.errors import InputError, ProofmapError
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from tests.bounds.setting import BUDGET

_SECONDS = 5.0  # limit of a sample; tiny networks take milliseconds
_TOLERANCE = 1e-6  # errors of values and linear programs, relative to the outputs
_ROUNDING = 1e-3  # rigorous proofs fail nearer to the limit than rounding errors, which are smaller than this here
_REASONS_TO_REFUSE = (
    "the decision does not hold at the input itself",
    "nothing can be proven even if all groups are kept",
)
_MAX_ENUMERATED_KINKS = 8  # the exact maximum is enumerated for networks with at most so many kinks
_MAX_COUNTED_GROUPS = 4  # sets of so many groups are all enumerated, to find the smallest sufficient one


def sets(seed: int, tally: Tally) -> Iterator[Finding]:
    """Yield the findings about the sufficient sets of the tiny network of a seed."""
    drawn, draw = tiny(seed), Draw("sets", seed)
    tally.networks += 1
    try:
        _Sets(drawn, draw, Draw("contrasts", seed), tally).check()
    except Found as finding:
        yield Finding(seed, finding.kind, finding.what, drawn.described)
    except ProofmapError as error:
        if isinstance(error, InputError) and not str(error).startswith(_REASONS_TO_REFUSE):
            yield Finding(seed, "wrong refusal", str(error), drawn.described)
        tally.refused[f"{type(error).__name__}: {str(error)[:60]}"] += 1
    except Exception as error:
        found = raw_error("a sufficient set", error)
        yield Finding(seed, found.kind, found.what, drawn.described)


class _Sets:
    """One tiny network with the sufficient sets of its samples."""

    def __init__(self, drawn: Tiny, draw: Draw, contrasts: Draw, tally: Tally) -> None:
        self.draw, self.tally, self.contrasts = draw, tally, contrasts
        self.graph, self.x = drawn.graph, drawn.x
        self.known = (
            drawn.ball.norm in (1.0, inf) and straight(self.graph) and kinks(self.graph) <= _MAX_ENUMERATED_KINKS
        )
        size = drawn.x[0].numel()
        self.mask: Tensor = drawn.mask if draw.chance(0.5) else torch.arange(size).view(drawn.x.shape[1:])
        self.ball = drawn.ball
        self.target = self.graph(self.x).argmax(1)

    def check(self) -> None:
        """Explain all samples with odd settings, and check every claim."""
        draw, groups = self.draw, int(self.mask.max()) + 1
        self.rigorous: bool = draw.chance(0.5)
        explainer = pm.Sufficient(
            self.graph,
            self.ball,
            groups=self.mask,
            bounds=Backward() if draw.chance(0.1) else Exact(),
            order=torch.from_numpy(np.array(draw.order(groups))).double() if draw.chance(0.5) else None,
            rigorous=self.rigorous,
            seconds=_SECONDS,
            smallest=1.0 if draw.chance(0.3) else None,
            memory=BUDGET,
            progress=False,
        )
        reason = explainer.explain(self.x).reason
        assert reason is not None
        family = self.ball.at(self.x, self.mask)
        self.tally.sets += len(self.x)
        for name, marked in (("free", reason.free), ("necessary", reason.necessary), ("undecided", reason.undecided)):
            setattr(self.tally, f"{name}_groups", getattr(self.tally, f"{name}_groups") + int(marked.sum()))
        for n in range(len(self.x)):
            self._sample(n, family.pick(torch.tensor([n])), reason.pick(torch.tensor([n])))
        if self.contrasts.chance(0.5):
            self._check_changes(family)

    def _check_changes(self, family: Family) -> None:
        """Find contrastive sets of all samples, and check every claim."""
        draw = self.contrasts
        explainer = pm.Contrastive(
            self.graph,
            self.ball,
            groups=self.mask,
            bounds=Backward() if draw.chance(0.1) else Exact(),
            rigorous=self.rigorous,
            seconds=_SECONDS,
            sets=draw.whole(1, 2),
            memory=BUDGET,
            progress=False,
        )
        contrast = explainer.explain(self.x).contrast
        assert contrast is not None
        self.tally.contrasts += len(self.x)
        for n in range(len(self.x)):
            self._changes(n, family.pick(torch.tensor([n])), contrast.pick(torch.tensor([n])))

    def _changes(self, n: int, family: Family, contrast: Contrast) -> None:
        limit = float(contrast.limit[0])
        for groups, point, stated in zip(contrast.sets, contrast.points, contrast.values.tolist(), strict=True):
            delta = (point - self.x[n])[None]
            if not bool(self._ball(family, groups).contains(delta, _TOLERANCE).all()):
                raise Found("unsound", "a changed input is outside the ball of its set")
            value = float(self._value(n, point[None, None]).max())
            if abs(value - stated) > self._slack(n) or value < limit - self._slack(n):
                raise Found("unsound", f"a changed input reaches {value:.3g}, stated are {stated:.3g}")
        groups = contrast.groups
        if not self.known or groups > _MAX_COUNTED_GROUPS:
            return
        for size in range(min(int(contrast.least[0]), groups + 1)):
            for some in combinations(range(groups), size):
                moves = torch.zeros(groups, dtype=torch.bool)
                moves[list(some)] = True
                self.tally.enumerated += 1
                truth = largest(self.graph, self._ball(family, moves), self._rows(n), -inf)
                if truth > limit + self._slack(n):
                    raise Found(
                        "unsound", f"{size} groups change the decision, fewer than the proven {contrast.least[0]}"
                    )

    def _sample(self, n: int, family: Family, reason: Reason) -> None:
        free, bound, limit = reason.free[0], float(reason.bound[0]), float(reason.limit[0])
        self._bounded(n, self._ball(family, free), bound)
        for group in reason.necessary[0].nonzero().flatten().tolist():
            more = free.clone()
            more[group] = True
            self._necessary(n, self._ball(family, more), reason, group, limit)
        groups = len(free)
        if self.known and groups <= _MAX_COUNTED_GROUPS and float(reason.least[0]) > 0:
            smallest = self._smallest(n, family, groups, limit)
            self.tally.enumerated += 1
            if int(reason.least[0]) > smallest:
                raise Found(
                    "unsound", f"{smallest} groups are sufficient, fewer than the proven least {reason.least[0]}"
                )

    def _bounded(self, n: int, ball: Family, bound: float) -> None:
        """Check that neither points nor the exact maximum exceed the bound of the free set."""
        points = climbed_from(lambda p: self._value(n, p), ball, self.draw.generator, samples=8, steps=3)
        reached = float(self._value(n, points).max())
        self.tally.points += len(points)
        self.tally.bounds += 1
        if reached > bound + self._slack(n):
            raise Found("unsound", f"a point of the free set's ball exceeds its bound by {reached - bound:.3g}")
        if self.known:
            self.tally.enumerated += 1
            truth = largest(self.graph, ball, self._rows(n), reached)
            if truth > bound + self._slack(n):
                raise Found("unsound", f"the free set's exact overlap exceeds its bound by {truth - bound:.3g}")

    def _necessary(self, n: int, ball: Family, reason: Reason, group: int, limit: float) -> None:
        """Check the point of a necessary group, and that the group cannot be freed in truth."""
        point = reason.point(0, group)
        delta = (point - self.x[n])[None]
        if not bool(ball.contains(delta, _TOLERANCE).all()):
            raise Found("unsound", f"the point of group {group} is outside its ball")
        if bool((delta != 0)[(ball.lower == 0) & (ball.upper == 0)].any()):
            raise Found("unsound", f"the point of group {group} moves a kept variable")
        stated = float(reason.values[reason.point_of[:, 1] == group][0])
        value = float(self._value(n, point[None, None]).max())
        if abs(value - stated) > self._slack(n):
            raise Found("unsound", f"the stated overlap of a point is {abs(value - stated):.3g} off")
        tolerance = _ROUNDING if self.rigorous else self._slack(n)
        if value < limit - tolerance:
            raise Found("unsound", f"the point of group {group} stays {limit - value:.3g} below the limit")

    def _smallest(self, n: int, family: Family, groups: int, limit: float) -> int:
        """Return the size of the smallest sufficient set, by enumeration."""
        for size in range(groups):
            for kept in combinations(range(groups), size):
                free = torch.ones(groups, dtype=torch.bool)
                free[list(kept)] = False
                if largest(self.graph, self._ball(family, free), self._rows(n), -inf) < limit - self._slack(n):
                    return size
        return groups

    def _ball(self, family: Family, free: Tensor) -> Family:
        moves = free[self.mask][None]
        return Family(family.x, family.lower * moves, family.upper * moves, family.norm, family.eps)

    def _rows(self, n: int) -> np.ndarray:
        rows = np.delete(np.eye(self.graph.classes), int(self.target[n]), 0)
        rows[:, int(self.target[n])] = -1.0
        return rows

    def _value(self, n: int, points: Tensor) -> Tensor:
        """Return the overlap (P, 1) at points (P, 1, *shape)."""
        logits = values_of(self.graph, points)[self.graph.output].flatten(2)
        own = logits[..., int(self.target[n])]
        others = torch.cat([logits[..., : self.target[n]], logits[..., self.target[n] + 1 :]], 2)
        return others.amax(2) - own

    def _slack(self, n: int) -> float:
        return _TOLERANCE * (1 + float(self.graph(self.x[n][None]).abs().max()))
