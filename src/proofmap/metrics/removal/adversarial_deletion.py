"""Adversarial deletion: the score as the most important variables are moved by an attack, instead of set to something.

What is deleted has to become something, and noise, a colour or a blur each favour some maps. Here it becomes the worst
that a ball allows: no baseline is chosen, and near x nothing is far from an image.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.attack.pgd import attack, restrict
from proofmap.graph import Network
from proofmap.graph.classes import margins
from proofmap.graph.opaque import differentiable
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import score_at
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, ends_of
from proofmap.metrics.nested_balls import nested
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, check_number, count

__all__ = ["AdversarialDeletion"]

Drop: TypeAlias = Literal["margin", "softmax"]

_RADIUS = 8 / 255  # of inputs from 0 to 1: the usual one of attacks on images


@dataclass(frozen=True, eq=False)
class AdversarialDeletion(Metric[Samples]):
    """The area under s_k = score(x + δ_k), where an attack moves the k most important variables; less is better.

        δ_k = the δ with the largest max over c' != c of f_c'(x + δ) - f_c(x + δ) that was met in the ball, δ_i = 0
              outside the k most important variables,

    for k = floor(i G / steps), i = 0 .. steps, and the area by trapezoids over i / steps from 0 to 1. What is found
    with fewer variables counts with more. An attack need not find the worst there is: the true curve may be lower.

    score: "margin", f_c less the largest other logit, which tells maps apart where the class is lost at once; or the
    "softmax" of the class c.
    radius, norm, domain: the ball, as in `pm.Ball`; domain (-inf, inf) for no limits.
    steps: points of the curve after the first, no more than there are variables.
    attack_steps: gradient steps of each attack, which starts at x; nothing in it is random. groups: the variables.

    The preset "ours": margin, 8/255 in ℓ∞, domain (0, 1), 10 steps, 10 gradient steps, pixels.
    seed: decides among equal attributions. batch: balls that are attacked together; by default some 16 MB of points.

    >>> pm.metrics.AdversarialDeletion()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "adversarial-deletion"
    label: ClassVar[str] = "AdversarialDeletion"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = {
        "ours": {
            "score": "margin",
            "radius": _RADIUS,
            "norm": inf,
            "domain": (0.0, 1.0),
            "steps": 10,
            "attack_steps": 10,
            "groups": pixels(),
        }
    }

    preset: str = "ours"
    _: KW_ONLY
    score: ByPreset[Drop] = ByPreset(partial(check_choice, words=Drop))
    radius: ByPreset[float] = ByPreset(
        partial(check_number, expected="a number above 0", fits=lambda radius: radius > 0)
    )
    norm: ByPreset[float] = ByPreset()
    domain: ByPreset[tuple[float | Tensor, float | Tensor]] = ByPreset()
    steps: ByPreset[int] = ByPreset(check_count)
    attack_steps: ByPreset[int] = ByPreset(check_count)
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse what is no setting."""
        super().__post_init__()
        assert self.ball  # which refuses what is none

    @property
    def ball(self) -> Ball:
        """Where variables are moved."""
        return Ball(self.radius, self.norm, self.domain)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> AdversarialDeletion:
        """In the ball itself; where its radius is "auto", as far, relative to the values of inputs, as by default."""
        low, high = ends_of(ball, values)
        radius = ball.eps if isinstance(ball.eps, int | float) and ball.eps > 0 else _RADIUS * (high - low)
        return cls(radius=radius, norm=ball.norm, domain=ball.domain or (-inf, inf))

    def _check(self, x: Tensor) -> None:
        self.ball.at(x)

    def _values(self, case: Case) -> Tensor:
        curve = self._curve(case)
        return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)

    def curve(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The scores themselves, from none of the variables to all: (N, steps + 1)."""
        return self._curve(self._case(model, x, target, attributions))

    def _curve(self, case: Case) -> Tensor:
        graph, x, rows, variables = case.graph, case.x, case.rows, Variables.of(case.x, self.groups)
        differentiable(graph, "adversarial deletion")
        steps = min(self.steps, variables.most)
        overlaps, scores = [], []
        for near, target, free in nested(case, variables, steps, self.seed):
            family = restrict(self.ball.at(near), free)
            overlap, delta = attack(graph, family, target, steps=self.attack_steps)
            overlaps.append(overlap)
            with full_precision(x.device), torch.no_grad():
                softmax = score_at(graph, near + delta, target, "softmax", rows)
            scores.append(softmax if self.score == "softmax" else -overlap.double())
        best = torch.cat(overlaps).view(len(x), steps).cummax(1).indices  # with as many variables, or fewer
        reached = torch.cat(scores).view(len(x), steps).gather(1, best)
        return torch.cat([self._start(case)[:, None].to(reached), reached], dim=1).to(x.dtype)

    def _start(self, case: Case) -> Tensor:
        """The score at x: (N,)."""
        if self.score == "margin":
            return -margins(case.logits, case.target)
        return case.logits.double().softmax(1).gather(1, case.target[:, None])[:, 0]
