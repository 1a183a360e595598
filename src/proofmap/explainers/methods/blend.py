"""BlendEVA: a weighted sum of the normalised maps of SmoothEVA, PathEVA and NoiseEVA."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.methods.noise import noise_scores
from proofmap.explainers.methods.path import approximate_path_scores
from proofmap.explainers.methods.smooth import paired_count
from proofmap.explainers.objective_gradients import Objective
from proofmap.inputs.ball import Ball
from proofmap.runtime.progress import part
from proofmap.settings import choice, count, is_number, number, setting


def _check_attack_radii(said: str, got: Any) -> None:
    fits = isinstance(got, tuple | list) and got and all(is_number(one) and 0 < one <= 1 for one in got)
    if not fits:
        raise InputError(f"{said}={got!r:.60}, expected shares above 0 up to 1, such as (0.03, 0.1, 0.3)")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlendEVA(Explainer):
    """(1 - share - noise) T / ΣT + share · (mean over attacks of P⁺ / ΣP⁺) + noise · N / Σ|N|.

    T is the score of `SmoothEVA` over all radii of the ball. P is the score of `PathEVA` for attacks of several radii,
    with `steps` gradients on each path; P⁺ is its positive part. N is the score of `NoiseEVA`. T and N share `samples`
    gradients; N uses as many more.

    attack_radii: the ℓ∞ radii of the attacks, as shares of the width of the domain; where the domain is infinite, of
    the ball. Without a domain they are shares of the ball's radius, in its own norm. rival: the objective of the
    attacks.

    A score is the group's share of the whole. It may be negative if noise in the group helps the class. Nothing is
    proven; the overlap is that of `NoiseEVA`, the largest `objective` at the random points.

    >>> wide = pm.Ball(1.0, domain=(0.0, 1.0), relative=True)
    >>> pm.BlendEVA(model, wide, groups=cells, samples=8).explain(x).scores.shape
    torch.Size([2, 16])
    """

    guarantee: ClassVar[Guarantee] = "sampled"
    needs_gradients: ClassVar[bool] = True

    share: float = number(0.2, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    noise: float = number(0.5, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    attack_radii: tuple[float, ...] = setting((0.03, 0.1, 0.3), _check_attack_radii)
    objective: Objective = choice("class", Objective)
    rival: Objective = choice("margin", Objective)
    samples: int = paired_count(200)
    attack_steps: int = count(20)
    steps: int = count(20)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings, or shares with a sum above 1."""
        super().__post_init__()
        if self.share + self.noise > 1:
            raise InputError(f"got share={self.share:g} and noise={self.noise:g}, expected a sum of at most 1")

    def _measure(self, task: Task) -> Measured:
        with part(0.0, 0.7):
            evidence, lost = noise_scores(task, self.samples, self.objective, self.seed, self.memory)
        used = torch.zeros_like(evidence.scores)
        for k, size in enumerate(self.attack_radii):
            with part(0.7 + 0.3 * k / len(self.attack_radii), 0.7 + 0.3 * (k + 1) / len(self.attack_radii)):
                balls = _attack_ball(task, size).at(task.x)
                gained = approximate_path_scores(task, balls, self.attack_steps, self.steps, self.rival, self.memory)
            used += _normalised(gained.clamp(min=0)) / len(self.attack_radii)
        scores = (1 - self.share - self.noise) * _normalised(evidence.scores) + self.share * used
        return replace(evidence, scores=scores + self.noise * _normalised(lost.scores), errors=None)


def _attack_ball(task: Task, share: float) -> Ball:
    """Return the ball of an attack: a share of the domain's width, or of the ball's own radius."""
    ball = task.ball
    if ball.domain is None:
        return replace(ball, eps=share * ball.eps)  # type: ignore[operator]  # no longer "auto"
    room = replace(ball, half=None).room(task.x, task.mask.expand_as(task.x))
    return replace(ball, eps=share * (room.upper - room.lower), norm=inf, relative=False)


def _normalised(scores: Tensor) -> Tensor:
    """Divide scores (n, G) by the sum of their absolute values; all zeros stay zeros."""
    total = scores.abs().sum(1, keepdim=True)
    return scores / torch.where(total > 0, total, 1)
