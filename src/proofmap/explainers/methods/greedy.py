"""Greedy-AS and Greedy-AO: groups are chosen step by step, by attacks on random subsets of the groups.

Hsieh et al. 2021, "Evaluations and methods for explanation through robustness analysis"; Greedy-AO is the variant of
the EVA paper. With S the groups chosen so far and v random subsets of the others (each group with probability 1/2),

    w, c = argmin over w, c of Σ_v (w·1_v + c - value(S ∪ v))²,

and the groups with the largest w join S, a tenth of all groups per step, until all are in S.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries, attack, restrict
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.runtime.progress import report
from proofmap.settings import count, number
from proofmap.verify.overlap import Overlap

_RIDGE = 1e-8  # relative to the mean variance: selects the smallest weights if the fit is underdetermined


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Greedy(Explainer):
    """Ranks the groups by a regression of attack values on random subsets. Nothing is proven.

    A group's score is the share of groups that rank no higher, from 1 down to 1 / G. Groups are ranked by the step in
    which they were chosen, then by their weight. The overlap is the largest value that attacks reached on B and each
    B_u.

    step: the share of the groups chosen per step. subsets: random subsets per step; with fewer subsets than groups the
    regression is underdetermined. attack_steps: gradient steps of an attack. attacks: the number of attacks per pass,
    which limits the memory.
    """

    guarantee: ClassVar[Guarantee] = "none"
    needs_gradients: ClassVar[bool] = True

    step: float = number(0.1, "a share of the groups above 0 and up to 1", lambda step: 0 < step <= 1)
    subsets: int = count(1000, least=2)
    attack_steps: int = count(10)
    attacks: int = count(500)
    seed: int = count(0, least=0)
    batch: int = count(1)

    @abstractmethod
    def _family(self, task: Task) -> Family:
        """Return the balls in which the attacks search."""

    @abstractmethod
    def _value(self, graph: Graph, family: Family, target: Tensor) -> Tensor:
        """Return the value of the variables that may move in each ball: (rows,), larger is better."""

    def _measure(self, task: Task) -> Measured:
        mask = task.mask.expand_as(task.x)
        order = self._rank(task, mask)  # (n, G)
        count = order.shape[1]
        place = torch.arange(count, 0, -1, dtype=task.x.dtype, device=task.x.device) / count
        scores = torch.zeros_like(order, dtype=task.x.dtype).scatter(1, order, place.expand_as(order))
        return Measured(scores, self._overlap(task, mask))

    def _rank(self, task: Task, mask: Tensor) -> Tensor:
        """Return the groups of each sample, the most important first: (n, G)."""
        family = self._family(task)
        samples, count = len(task.x), int(mask.max()) + 1
        stride = ceil(self.step * count - 1e-9)  # 0.1 · 30 is a little more than 3
        present = torch.zeros(samples, count, dtype=torch.bool, device=task.x.device)
        present.scatter_(1, mask.flatten(1), True)
        weight = torch.zeros(samples, count, dtype=torch.float64, device=task.x.device)
        when = torch.full_like(weight, -1.0)  # steps left when a group is chosen; -1: absent
        steps, generator = range(ceil(count / stride), 0, -1), task.seeded()
        for left in steps:
            report(1 - left / len(steps), f"step {len(steps) - left + 1} of {len(steps)}")
            open_ = present & (when < 0)
            drawn = torch.rand(self.subsets, count, generator=generator, device=task.x.device) < 0.5  # for all samples
            moving = (drawn[None] & open_[:, None]) | (present & ~open_)[:, None]  # (n, M, G) S ∪ v
            value = torch.cat(list(self._values(task, family, mask, moving))).view(samples, self.subsets)
            fitted = regress(moving & open_[:, None], value)
            best = fitted.masked_fill(~open_, -torch.inf).argsort(dim=1, descending=True, stable=True)[:, :stride]
            joins = torch.zeros_like(open_).scatter_(1, best, True) & open_
            weight, when = torch.where(joins, fitted, weight), torch.where(joins, float(left), when)
        by_weight = weight.argsort(dim=1, descending=True, stable=True)
        by_step = when.gather(1, by_weight).argsort(dim=1, descending=True, stable=True)
        return by_weight.gather(1, by_step)

    def _values(self, task: Task, family: Family, mask: Tensor, moving: Tensor) -> Iterator[Tensor]:
        """Yield the values of the rows of moving (n, M, G), some rows at a time."""
        count, subsets, _ = moving.shape
        owner = torch.arange(count, device=mask.device).repeat_interleave(subsets)
        for rows, samples in zip(moving.flatten(0, 1).split(self.attacks), owner.split(self.attacks), strict=True):
            free = rows.gather(1, mask[samples].flatten(1)).view(-1, *mask.shape[1:])
            yield self._value(task.graph, restrict(family.pick(samples), free), task.target[samples])

    def _overlap(self, task: Task, mask: Tensor) -> Overlap:
        family = task.ball.at(task.x, mask)
        members = torch.arange(family.count * family.members, device=task.x.device).split(self.attacks)
        overlaps = [
            attack(task.graph, family.split(part), task.target[part // family.members], steps=self.attack_steps)[0]
            for part in members
        ]
        value = torch.cat(overlaps).view(family.count, family.members)
        nominal = attack(task.graph, Ball(0.0).at(task.x), task.target, steps=1)[0]
        # B contains every B_u and the points found there
        return Overlap(value.amax(1), value[:, 1:].contiguous(), nominal, task.target, certified=False)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GreedyAO(Greedy):
    """Greedy-AO: the value of a set of groups is the overlap that an attack reaches if only these groups may move.

    >>> pm.GreedyAO(model, ball, groups=pm.groups.grid(2), subsets=4, step=0.5).explain(x[:1]).scores.shape
    torch.Size([1, 4])
    """

    def _family(self, task: Task) -> Family:
        return task.ball.at(task.x)

    def _value(self, graph: Graph, family: Family, target: Tensor) -> Tensor:
        return attack(graph, family, target, steps=self.attack_steps)[0]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GreedyAS(Greedy):
    """Greedy-AS: the value of a set of groups is the distance to the nearest adversary if only these groups may move.

    The ball gives the norm, the domain and the half; its radius is used for the reported overlap only. largest:
    adversaries are searched up to this distance, which is also the value if none is found. rounds: attacks that reduce
    the distance after an adversary is found.

    >>> pm.GreedyAS(model, ball, groups=pm.groups.grid(2), subsets=4, step=0.5).explain(x[:1]).scores.shape
    torch.Size([1, 4])
    """

    largest: float = number(1.0, "a finite distance above 0", lambda distance: distance > 0)
    rounds: int = count(5)

    def _family(self, task: Task) -> Family:
        return Ball(self.largest, task.ball.norm, task.ball.domain, task.ball.half).at(task.x)

    def _value(self, graph: Graph, family: Family, target: Tensor) -> Tensor:
        distance, _ = adversaries(graph, family, target, rounds=self.rounds, steps=self.attack_steps)
        return -distance.clamp(max=self.largest)


def regress(member: Tensor, value: Tensor) -> Tensor:
    """Return the weights w (n, G) of the least squares fit value ≈ w·1_v + c, for member (n, M, G) bool, value (n, M).

    If the subsets do not determine the weights, the smallest ones are returned; 0 for a group that is in all subsets or
    in none.
    """
    design = member.double()
    design = design - design.mean(1, keepdim=True)  # takes c out
    rest = (value.double() - value.double().mean(1, keepdim=True)).unsqueeze(2)
    _, subsets, groups = design.shape
    flat = design.mT
    gram = flat @ design if groups <= subsets else design @ flat  # (K, K) for the smaller side K
    scale = (gram.diagonal(dim1=1, dim2=2).mean(1) * _RIDGE).clamp(min=torch.finfo(gram.dtype).tiny)
    gram.diagonal(dim1=1, dim2=2).add_(scale[:, None])
    if groups <= subsets:
        weights: Tensor = torch.linalg.solve(gram, flat @ rest)
    else:
        weights = flat @ torch.linalg.solve(gram, rest)
    return weights.squeeze(2)
