"""Path EVA: what an adversary uses. The gradient along the way to one, whose scores sum to what the attack gained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import climbs
from proofmap.explainers.batching import of_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.path_gradients import Way
from proofmap.explainers.tangent import Objective, at_once, value_at
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.inputs.family import Family
from proofmap.runtime.memory import in_pieces
from proofmap.runtime.progress import part
from proofmap.settings import choice, count
from proofmap.verify.overlap import Overlap

__all__ = ["PathEVA", "path", "sketched"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PathEVA(Explainer):
    """P(u) = Σ over i in u of (x*_i - x_i) ∫ g_i(x + t (x* - x)) dt over [0, 1], with x* the input of the ball at which
    an attack met the largest objective, and g the gradient of the objective.

    The scores sum to what the attack gained, objective(x*) - objective(x), up to 1e-4 of it or of 1: a complete
    decomposition of that attack, in which a score may be below 0. Another adversary may use other variables. The way is
    cut into `steps` intervals, and more where their sum is off. The overlap is what the attack reached.

    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.PathEVA(model, ball, groups=cells).explain(x)
    >>> gained = found.overlap.full - found.overlap.nominal
    >>> bool(((found.scores.sum(1) - gained).abs() < 1e-3).all())
    True
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    attack_steps: int = count(20)
    steps: int = count(20)
    objective: Objective = choice("margin", Objective)

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        return path(task, task.ball.at(task.x), self.attack_steps, self.steps, self.objective, self.memory)


def path(
    task: Task, family: Family, attack_steps: int, steps: int, objective: Objective, memory: int | None
) -> Measured:
    """P of some samples, for attacks in these balls, and what they reached."""
    best, way = _attacked(task, family, attack_steps, objective, memory)
    with part(0.5, 1.0):
        each, at_x = way.integrate(steps)
    nominal, scores = at_x.to(task.x.dtype), _of_groups(each, task)
    frozen = nominal[:, None].expand(scores.shape).contiguous()  # x itself lies in every B_u
    return Measured(scores.to(task.x.dtype), Overlap(best, frozen, nominal, task.target, certified=False))


def sketched(
    task: Task, family: Family, attack_steps: int, steps: int, objective: Objective, memory: int | None
) -> Tensor:
    """P of some samples (n, G) by `steps` gradients on the way, for attacks in these balls: not quite complete."""
    _, way = _attacked(task, family, attack_steps, objective, memory)
    with part(0.5, 1.0):
        return _of_groups(way.sketch(steps), task).to(task.x.dtype)


def _of_groups(each: Tensor, task: Task) -> Tensor:
    return of_groups(each, task.mask.expand_as(task.x), int(task.mask.max()) + 1)


def _attacked(task: Task, family: Family, steps: int, objective: Objective, memory: int | None) -> tuple[Tensor, Way]:
    """(the largest objective that steps from x met in each ball (N,), the way there), as many at a time as fit."""
    size = at_once(task.graph, task.x, memory)
    best, delta = torch.empty_like(family.eps), torch.empty_like(family.x)

    def work(start: int, stop: int) -> None:
        rows = torch.arange(start, stop, device=task.x.device)
        value = value_at(task.graph, task.target[rows], objective)
        best[rows], delta[rows] = next(climbs(value, family.pick(rows), steps, 1, None))

    with part(0.0, 0.5):
        in_pieces(family.count, size, work)
    return best, Way(task.graph, task.x, delta, task.target, objective, size)
