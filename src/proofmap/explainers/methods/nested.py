"""Nested EVA: what adversaries of ever fewer variables use. An order of the groups, set by set."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries, attack, climbs, restrict, shrunk
from proofmap.explainers.batching import of_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.path_gradients import Way
from proofmap.explainers.tangent import at_once, slopes, value_at
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.inputs.family import Family
from proofmap.runtime.memory import in_pieces
from proofmap.runtime.progress import report
from proofmap.settings import count, number
from proofmap.verify.overlap import Overlap

__all__ = ["NestedEVA"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NestedEVA(Explainer):
    """The groups in the order that sets S_0 ⊃ S_1 ⊃ ... give them: S_0 has all, and S_k+1 the share `keep` of S_k with
    the largest

        P_k(u) = Σ over i in u of (x*_i - x_i) ∫ g_i(x + t (x* - x)) dt over [0, 1],   g the gradient of the margin,

    x* the point that an attack led to which moves the groups of S_k alone, by at most `beyond` times the distance of
    the nearest adversary that they met so. `PathEVA` asks what an adversary uses who may use everything; the first k
    groups of this order were chosen where only some more of them could move.

    A group's score is the share of groups that rank no higher, from 1 down to 1 / G: first by the last set it was in,
    then by its P there. Adversaries are sought in the ball; where none is met, or x is one itself, the attack has the
    ball. rounds: attacks that narrow a distance; each has `attack_steps` gradient steps. steps: gradients on the way to
    x*. Nothing is proven; the overlap is what an attack of all groups reached in the ball.

    >>> pm.NestedEVA(model, pm.Ball(1.0, domain=(0.0, 1.0)), groups=cells).explain(x).scores.amax(1)
    tensor([1., 1.])
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    keep: float = number(0.8, "a share between 0 and 1", lambda keep: 0 < keep < 1)
    beyond: float = number(1.3, "a number of at least 1", lambda beyond: beyond >= 1)
    rounds: int = count(1)
    attack_steps: int = count(10)
    steps: int = count(10)

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        mask, family = task.mask.expand_as(task.x), task.ball.at(task.x)
        groups = int(mask.max()) + 1
        scores = torch.empty(len(task.x), groups, dtype=task.x.dtype, device=task.x.device)
        best, nominal = torch.empty_like(family.eps), torch.empty_like(family.eps)
        place = torch.arange(groups, 0, -1, dtype=task.x.dtype, device=task.x.device) / groups
        size = at_once(task.graph, task.x, self.memory)

        def work(start: int, stop: int) -> None:
            rows = torch.arange(start, stop, device=task.x.device)
            balls, target = family.pick(rows), task.target[rows]
            order = self._order(task.graph, balls, target, mask[rows], groups)
            scores[rows] = torch.empty_like(scores[rows]).scatter(1, order, place.expand(order.shape))
            best[rows] = attack(task.graph, balls, target, steps=self.attack_steps)[0]
            nominal[rows] = slopes(task.graph, balls.x, target, "margin")[0]

        in_pieces(len(task.x), size, work)
        frozen = nominal[:, None].expand(-1, groups).contiguous()  # x itself lies in every B_u
        return Measured(scores, Overlap(best, frozen, nominal, task.target, certified=False))

    def _order(self, graph: Graph, family: Family, target: Tensor, mask: Tensor, groups: int) -> Tensor:
        """The groups of each sample, the most important first (n, G); those that it lacks come last."""
        absent = torch.ones(len(mask), groups, dtype=torch.bool, device=mask.device)
        absent.scatter_(1, mask.flatten(1), False)
        order = absent.long().argsort(dim=1, stable=True)
        size = groups
        while size > 1:
            report(1 - size / groups, f"{size} of {groups} groups")
            head = order[:, :size]
            member = torch.zeros_like(absent).scatter_(1, head, True)
            free = member.gather(1, mask.flatten(1)).view_as(family.x)
            used = of_groups(self._used(graph, restrict(family, free), target), mask, groups)
            again = used.masked_fill(absent, -inf).gather(1, head).argsort(dim=1, descending=True, stable=True)
            order = torch.cat([head.gather(1, again), order[:, size:]], 1)
            size = int(self.keep * size)
        return order

    def _used(self, graph: Graph, family: Family, target: Tensor) -> Tensor:
        """What each variable that may move has in what an attack gains near the decision's end: (n, *shape)."""
        far, _ = adversaries(graph, family, target, rounds=self.rounds, steps=self.attack_steps)
        radius = torch.where((far > 0) & (far < inf), self.beyond * far, family.eps).minimum(family.eps)
        value = value_at(graph, target, "margin")
        _, delta = next(climbs(value, shrunk(family, radius), self.attack_steps, 1, None))
        return Way(graph, family.x, delta, target, "margin", len(delta)).sketch(self.steps)
