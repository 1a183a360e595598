"""Adversarial deletion: the score while an attack changes the most important variables within a ball.

Deletion must replace variables by a baseline, and each baseline (noise, a colour, a blur) favours some maps. Here an
attack chooses the worst values in a ball, so that no baseline is needed and inputs stay near x.
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
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import score_at
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, ends_of
from proofmap.metrics.nested_balls import nested
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, check_number, count

Drop: TypeAlias = Literal["margin", "softmax"]

_PAPER_RADIUS = 8 / 255  # for inputs between 0 and 1, the usual radius of attacks on images


@dataclass(frozen=True, eq=False)
class AdversarialDeletion(Metric[Maps]):
    """The area under s_k = score(x + δ_k), where an attack perturbs the k most important variables; lower is better.

        δ_k = the δ with the largest max over c' != c of f_c'(x + δ) - f_c(x + δ) found in the ball, with δ_i = 0
              outside the k most important variables,

    for k = floor(i G / steps), i = 0 .. steps, and the area by trapezoids over i / steps from 0 to 1. An
    adversary for few variables also counts for more variables. An attack may miss the worst input, so the true curve
    may be lower.

    score: "margin": f_c minus the largest other logit, which still differs between maps after the class is lost; or
    the "softmax" of the class c.
    radius, norm, domain: the ball, as in `pm.Ball`; domain (-inf, inf) for no limits.
    steps: points of the curve after the first, at most the number of variables.
    attack_steps: gradient steps of each attack from x; attacks are deterministic. groups: the variables.

    The preset "ours": margin, 8/255 in ℓ∞, domain (0, 1), 10 steps, 10 gradient steps, pixels.
    seed: breaks ties of attributions. batch: balls that are attacked together; by default about 16 MB of points.

    >>> pm.metrics.AdversarialDeletion()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "adversarial-deletion"
    label: ClassVar[str] = "AdversarialDeletion"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = {
        "ours": {
            "score": "margin",
            "radius": _PAPER_RADIUS,
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
    radius: ByPreset[float] = ByPreset(partial(check_number, expected="a number above 0", fits=lambda r: r > 0))
    norm: ByPreset[float] = ByPreset()
    domain: ByPreset[tuple[float | Tensor, float | Tensor]] = ByPreset()
    steps: ByPreset[int] = ByPreset(check_count)
    attack_steps: ByPreset[int] = ByPreset(check_count)
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        super().__post_init__()
        assert self.ball  # raises InputError for an invalid ball

    @property
    def ball(self) -> Ball:
        """The ball of the attack."""
        return Ball(self.radius, self.norm, self.domain)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> AdversarialDeletion:
        """Return the metric for the ball. For the radius "auto", use 8/255 of the range of inputs."""
        low, high = ends_of(ball, values)
        radius = ball.eps if isinstance(ball.eps, int | float) and ball.eps > 0 else _PAPER_RADIUS * (high - low)
        return cls(radius=radius, norm=ball.norm, domain=ball.domain or (-inf, inf))

    def _check(self, x: Tensor) -> None:
        self.ball.at(x)

    def _values(self, case: Case) -> Tensor:
        curve = self._curve(case)
        return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)

    def curve(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """Return the scores (N, steps + 1), from no variables to all."""
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
        # the best adversary with this number of variables or fewer
        best = torch.cat(overlaps).view(len(x), steps).cummax(1).indices
        reached = torch.cat(scores).view(len(x), steps).gather(1, best)
        return torch.cat([self._start(case)[:, None].to(reached), reached], dim=1).to(x.dtype)

    def _start(self, case: Case) -> Tensor:
        """Return the score at x (N,)."""
        if self.score == "margin":
            return -margins(case.logits, case.target)
        return case.logits.double().softmax(1).gather(1, case.target[:, None])[:, 0]
