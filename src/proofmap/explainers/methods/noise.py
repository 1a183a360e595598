"""Noise EVA: what noise destroys. The gradient on ways to drawn points, straight and group by group, with its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.explainers.batching import of_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.methods.smooth import Mean, offsets, paired
from proofmap.explainers.tangent import Objective, at_once, slopes
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.runtime.memory import in_pieces
from proofmap.settings import choice, count
from proofmap.verify.overlap import Overlap

__all__ = ["NoiseEVA", "chance", "stages"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoiseEVA(Explainer):
    """N(u) = mean over points y of the ball of Σ over i in u of (y_i - x_i) g_i(z), g the gradient of the objective and
    z an input on the way from x to y: the straight one for half of the gradients; for the others some groups, drawn
    with a share that is uniform from 0 to 1, are at y already and the rest is at x.

    `PathEVA` follows an adversary, this follows chance. A score may be below 0. In the mean over all draws the straight
    half sums to the mean of the objective over the ball less that at x. `samples` points y are drawn as `SmoothEVA`
    draws its points, and two gradients taken for each; `Explanation.errors` has the standard errors. Nothing is proven;
    the overlap is the largest objective that was met on the straight ways.

    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.NoiseEVA(model, pm.Ball(0.5, domain=(0.0, 1.0)), groups=cells, samples=8).explain(x)
    >>> found.scores.shape, found.errors.shape
    (torch.Size([2, 16]), torch.Size([2, 16]))
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    samples: int = paired(200)
    objective: Objective = choice("class", Objective)
    seed: int = count(0, least=0)

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        return chance(task, self.samples, self.objective, self.seed, self.memory)[1]


def chance(task: Task, samples: int, objective: Objective, seed: int, memory: int | None) -> tuple[Measured, Measured]:
    """(T of `SmoothEVA` over all radii, by the points on the straight ways; N) of some samples."""
    count, device, pairs = len(task.x), task.x.device, samples // 2
    offset, family = offsets(task.ball, task.x, samples, "one", seed), task.ball.at(task.x)
    room = task.ball.room(task.x.double(), task.mask.expand_as(task.x))
    share, turn = (drawn.to(task.x) for drawn in stages(pairs, room.groups, seed))
    best = slopes(task.graph, task.x, task.target, objective)[0]
    nominal = best.clone()
    evidence, lost = (Mean(count, pairs, room.groups, device) for _ in range(2))

    def work(start: int, stop: int) -> None:
        index = torch.arange(start, stop, device=device)
        one, pair = index // pairs, index % pairs
        owner, both = one.repeat(2), pair.repeat(2)
        delta = offset(owner, torch.cat([pair, pair + pairs])).clamp(family.lower[owner], family.upper[owner])
        x, target, mask = task.x[owner], task.target[owner], task.mask.expand_as(task.x)[owner]
        away = share[both]
        value, straight = slopes(task.graph, x + away.view(-1, *[1] * (x.ndim - 1)) * delta, target, objective)
        best.scatter_reduce_(0, owner, value, "amax")
        reach = room.concretise(straight.double(), owner)  # (k, 1 + G)
        evidence.add(one, reach[:, :1] - reach[:, 1:])
        there = (turn[both] < away[:, None]).gather(1, mask.flatten(1)).view_as(delta)
        scattered = slopes(task.graph, x + there * delta, target, objective)[1]
        lost.add(one, of_groups((straight.double() + scattered.double()) / 2 * delta.double(), mask, room.groups))

    in_pieces(count * pairs, at_once(task.graph, task.x, memory) // 2, work)
    frozen = nominal[:, None].expand(-1, room.groups).contiguous()  # x itself lies in every B_u
    overlap = Overlap(best, frozen, nominal, task.target, certified=False)

    def measured(mean: Mean) -> Measured:
        return Measured(mean.value.to(task.x.dtype), overlap, errors=mean.errors.to(task.x.dtype))

    return measured(evidence), measured(lost)


def stages(pairs: int, groups: int, seed: int) -> tuple[Tensor, Tensor]:
    """How far each pair is on its way (pairs,), one in each of as many equal parts of [0, 1], and when it is each
    group's turn to be at the end of it (pairs, G): the same numbers on every device and in every precision.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    parts = torch.randperm(pairs, generator=generator)
    share = (parts + torch.rand(pairs, generator=generator, dtype=torch.float64)) / pairs
    return share, torch.rand(pairs, groups, generator=generator, dtype=torch.float64)
