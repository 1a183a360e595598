"""PathEVA: integrated gradients (Sundararajan et al. 2017) from the input to the end point of an attack."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import run_pgd_starts
from proofmap.explainers.batching import sum_over_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.objective_gradients import Objective, PathIntegral, gradients_per_pass, value_at
from proofmap.inputs.family import Family
from proofmap.runtime.memory import run_in_chunks
from proofmap.runtime.progress import part
from proofmap.settings import choice, count
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PathEVA(Explainer):
    """P(u) = Σ over i in u of (x*_i - x_i) ∫ g_i(x + t (x* - x)) dt over [0, 1], g the gradient of the objective.

    x* is the input of the ball with the largest objective that an attack found. The scores sum to the attack's gain,
    objective(x*) - objective(x), with an error of at most 1e-4 of max(1, gain). So they decompose this attack
    completely; a score may be negative. Another adversary may use other variables. The path begins with `steps`
    intervals, which are halved where the sum is inexact. The overlap is the objective at x*.

    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.PathEVA(model, ball, groups=cells).explain(x)
    >>> gained = found.overlap.full - found.overlap.nominal
    >>> bool(((found.scores.sum(1) - gained).abs() < 1e-3).all())
    True
    """

    guarantee: ClassVar[Guarantee] = "sampled"
    needs_gradients: ClassVar[bool] = True

    attack_steps: int = count(20)
    steps: int = count(20)
    objective: Objective = choice("margin", Objective)

    def _measure(self, task: Task) -> Measured:
        return path_scores(task, task.ball.at(task.x), self.attack_steps, self.steps, self.objective, self.memory)


def path_scores(
    task: Task, family: Family, attack_steps: int, steps: int, objective: Objective, memory: int | None
) -> Measured:
    """Return P for a batch, for attacks in these balls, and the overlaps that they reached."""
    best, way = _attack_paths(task, family, attack_steps, objective, memory)
    with part(0.5, 1.0):
        each, at_x = way.integrate(steps)
    nominal, scores = at_x.to(task.x.dtype), _group_sums(each, task)
    frozen = nominal[:, None].expand(scores.shape).contiguous()  # x itself lies in every B_u
    return Measured(scores.to(task.x.dtype), Overlap(best, frozen, nominal, task.target, certified=False))


def approximate_path_scores(
    task: Task, family: Family, attack_steps: int, steps: int, objective: Objective, memory: int | None
) -> Tensor:
    """Return P (n, G) for a batch from `steps` gradients on each path. The sum may be inexact."""
    _, way = _attack_paths(task, family, attack_steps, objective, memory)
    with part(0.5, 1.0):
        return _group_sums(way.midpoint_rule(steps), task).to(task.x.dtype)


def _group_sums(each: Tensor, task: Task) -> Tensor:
    return sum_over_groups(each, task.mask.expand_as(task.x), int(task.mask.max()) + 1)


def _attack_paths(
    task: Task, family: Family, steps: int, objective: Objective, memory: int | None
) -> tuple[Tensor, PathIntegral]:
    """Attack in each ball from x. Return the largest objective (N,) and the paths to it."""
    size = gradients_per_pass(task.graph, task.x, memory)
    best, delta = torch.empty_like(family.eps), torch.empty_like(family.x)

    def work(start: int, stop: int) -> None:
        rows = torch.arange(start, stop, device=task.x.device)
        value = value_at(task.graph, task.target[rows], objective)
        best[rows], delta[rows] = next(run_pgd_starts(value, family.pick(rows), steps, 1, None))

    with part(0.0, 0.5):
        run_in_chunks(family.count, size, work)
    return best, PathIntegral(task.graph, task.x, delta, task.target, objective, size)
