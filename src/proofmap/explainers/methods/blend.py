"""Blend EVA: what carries the evidence, what an adversary uses and what noise destroys, in one map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.methods.noise import chance
from proofmap.explainers.methods.path import sketched
from proofmap.explainers.methods.smooth import paired
from proofmap.explainers.tangent import Objective
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.inputs.ball import Ball
from proofmap.runtime.progress import part
from proofmap.settings import choice, count, is_number, number, setting

__all__ = ["BlendEVA"]


def _check_attacks(said: str, got: Any) -> None:
    fits = isinstance(got, tuple | list) and got and all(is_number(one) and 0 < one <= 1 for one in got)
    if not fits:
        raise InputError(f"{said}={got!r:.60}, expected shares above 0 up to 1, such as (0.03, 0.1, 0.3)")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlendEVA(Explainer):
    """(1 - share - noise) T / ΣT + share · mean over attacks of P⁺ / ΣP⁺ + noise · N / Σ|N|: T of `SmoothEVA` over all
    radii of the ball, P of `PathEVA` for an attack near by and some further away, by `steps` gradients on its way, P⁺
    what of it is above 0, and N of `NoiseEVA`. T and N share `samples` gradients, N has as many of its own.

    attack_radii: those of their ℓ∞ balls, as shares of the domain's width (of the ball's where it has no end); without
    a domain, of the ball's own radius, in its own norm. rival: their objective.

    A score is the part of the whole that a group has; where noise helps the class, it may be below 0. Nothing is
    proven; the overlap is that of `NoiseEVA`, the largest `objective` that was met at drawn points.

    >>> wide = pm.Ball(1.0, domain=(0.0, 1.0), relative=True)
    >>> pm.BlendEVA(model, wide, groups=cells, samples=8).explain(x).scores.shape
    torch.Size([2, 16])
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    share: float = number(0.2, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    noise: float = number(0.5, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    attack_radii: tuple[float, ...] = setting((0.03, 0.1, 0.3), _check_attacks)
    objective: Objective = choice("class", Objective)
    rival: Objective = choice("margin", Objective)
    samples: int = paired(200)
    attack_steps: int = count(20)
    steps: int = count(20)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Refuse what is no setting, and parts of more than the whole."""
        super().__post_init__()
        if self.share + self.noise > 1:
            raise InputError(f"got share={self.share:g} and noise={self.noise:g}, expected at most 1 together")

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        with part(0.0, 0.7):
            evidence, lost = chance(task, self.samples, self.objective, self.seed, self.memory)
        used = torch.zeros_like(evidence.scores)
        for k, size in enumerate(self.attack_radii):
            with part(0.7 + 0.3 * k / len(self.attack_radii), 0.7 + 0.3 * (k + 1) / len(self.attack_radii)):
                balls = _of_size(task, size).at(task.x)
                gained = sketched(task, balls, self.attack_steps, self.steps, self.rival, self.memory)
            used += _parts(gained.clamp(min=0)) / len(self.attack_radii)
        scores = (1 - self.share - self.noise) * _parts(evidence.scores) + self.share * used
        return replace(evidence, scores=scores + self.noise * _parts(lost.scores), errors=None)


def _of_size(task: Task, share: float) -> Ball:
    """The ball of an attack: so much of the domain's width, or of the ball's own radius."""
    ball = task.ball
    if ball.domain is None:
        return replace(ball, eps=share * ball.eps)  # type: ignore[operator]  # no longer "auto"
    room = replace(ball, half=None).room(task.x, task.mask.expand_as(task.x))
    return replace(ball, eps=share * (room.upper - room.lower), norm=inf, relative=False)


def _parts(scores: Tensor) -> Tensor:
    """Scores (n, G) whose sizes sum to 1, or to 0 where all are."""
    total = scores.abs().sum(1, keepdim=True)
    return scores / torch.where(total > 0, total, 1)
