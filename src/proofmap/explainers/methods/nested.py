"""NestedEVA: rank groups by attacks that may move fewer and fewer groups (backward elimination)."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries, attack, restrict, run_pgd_starts, with_radius
from proofmap.explainers.batching import sum_over_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.objective_gradients import PathIntegral, gradients_per_pass, value_and_gradient, value_at
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.runtime.memory import run_in_chunks
from proofmap.runtime.progress import report
from proofmap.settings import count, number
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NestedEVA(Explainer):
    """Ranks the groups by nested sets S_0 ⊃ S_1 ⊃ ...: S_0 has all groups, S_k+1 the share `keep` of S_k with largest

        P_k(u) = Σ over i in u of (x*_i - x_i) ∫ g_i(x + t (x* - x)) dt over [0, 1],   g the gradient of the margin.

    x* is the end point of an attack that moves only the groups of S_k, by at most `beyond` times the distance of the
    nearest adversary of this kind. `PathEVA` attributes an attack that may move all groups. Here, the first k groups of
    the ranking were chosen in attacks that could move only a few more.

    A group's score is the share of groups that rank no higher, from 1 down to 1 / G. Groups are ranked by the last set
    that contains them, then by P there. Adversaries are searched in the ball. If none is found, or x is an adversary
    itself, the attack uses the whole ball. rounds: attacks that reduce the distance, of `attack_steps` gradient steps
    each. steps: gradients on the path to x*. Nothing is proven; the overlap is the value of an attack on all groups in
    the ball.

    >>> pm.NestedEVA(model, pm.Ball(1.0, domain=(0.0, 1.0)), groups=cells).explain(x).scores.amax(1)
    tensor([1., 1.])
    """

    guarantee: ClassVar[Guarantee] = "sampled"
    needs_gradients: ClassVar[bool] = True

    keep: float = number(0.8, "a share between 0 and 1", lambda keep: 0 < keep < 1)
    beyond: float = number(1.3, "a number of at least 1", lambda beyond: beyond >= 1)
    rounds: int = count(1)
    attack_steps: int = count(10)
    steps: int = count(10)

    def _measure(self, task: Task) -> Measured:
        mask, family = task.mask.expand_as(task.x), task.ball.at(task.x)
        groups = int(mask.max()) + 1
        scores = torch.empty(len(task.x), groups, dtype=task.x.dtype, device=task.x.device)
        best, nominal = torch.empty_like(family.eps), torch.empty_like(family.eps)
        place = torch.arange(groups, 0, -1, dtype=task.x.dtype, device=task.x.device) / groups
        size = gradients_per_pass(task.graph, task.x, self.memory)

        def work(start: int, stop: int) -> None:
            rows = torch.arange(start, stop, device=task.x.device)
            balls, target = family.pick(rows), task.target[rows]
            order = self._order(task.graph, balls, target, mask[rows], groups)
            scores[rows] = torch.empty_like(scores[rows]).scatter(1, order, place.expand(order.shape))
            best[rows] = attack(task.graph, balls, target, steps=self.attack_steps)[0]
            nominal[rows] = value_and_gradient(task.graph, balls.x, target, "margin")[0]

        run_in_chunks(len(task.x), size, work)
        frozen = nominal[:, None].expand(-1, groups).contiguous()  # x itself lies in every B_u
        return Measured(scores, Overlap(best, frozen, nominal, task.target, certified=False))

    def _order(self, graph: Graph, family: Family, target: Tensor, mask: Tensor, groups: int) -> Tensor:
        """Return the groups of each sample (n, G), the most important first and absent groups last."""
        absent = torch.ones(len(mask), groups, dtype=torch.bool, device=mask.device)
        absent.scatter_(1, mask.flatten(1), False)
        order = absent.long().argsort(dim=1, stable=True)
        size = groups
        while size > 1:
            report(1 - size / groups, f"{size} of {groups} groups")
            head = order[:, :size]
            member = torch.zeros_like(absent).scatter_(1, head, True)
            free = member.gather(1, mask.flatten(1)).view_as(family.x)
            used = sum_over_groups(self._used(graph, restrict(family, free), target), mask, groups)
            again = used.masked_fill(absent, -inf).gather(1, head).argsort(dim=1, descending=True, stable=True)
            order = torch.cat([head.gather(1, again), order[:, size:]], 1)
            size = int(self.keep * size)
        return order

    def _used(self, graph: Graph, family: Family, target: Tensor) -> Tensor:
        """Return each free variable's part of an attack's gain near the decision boundary: (n, *shape)."""
        far, _ = adversaries(graph, family, target, rounds=self.rounds, steps=self.attack_steps)
        radius = torch.where((far > 0) & (far < inf), self.beyond * far, family.eps).minimum(family.eps)
        value = value_at(graph, target, "margin")
        _, delta = next(run_pgd_starts(value, with_radius(family, radius), self.attack_steps, 1, None))
        return PathIntegral(graph, family.x, delta, target, "margin", len(delta)).midpoint_rule(self.steps)
