"""NoiseEVA: the mean change of the objective on paths to random points, split into groups, with standard errors."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.explainers.batching import sum_over_groups
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.methods.smooth import PairedMean, draw_offsets, paired_count
from proofmap.explainers.objective_gradients import Objective, gradients_per_pass, value_and_gradient
from proofmap.runtime.memory import run_in_chunks
from proofmap.settings import choice, count
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoiseEVA(Explainer):
    """N(u) = mean over random points y of the ball of Σ over i in u of (y_i - x_i) g_i(z).

    g is the gradient of the objective, and z is an input between x and y. For half of the gradients z lies on the
    straight line. For the other half, a random share of the groups is at y already and the rest is at x.

    `PathEVA` follows an adversary; NoiseEVA follows random points. A score may be negative. In the mean over all draws,
    the scores of the straight half sum to the mean objective over the ball minus the objective at x. The `samples`
    points y are drawn as in `SmoothEVA`, with two gradients each; `Explanation.errors` has the standard errors. Nothing
    is proven; the overlap is the largest objective on the straight paths.

    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.NoiseEVA(model, pm.Ball(0.5, domain=(0.0, 1.0)), groups=cells, samples=8).explain(x)
    >>> found.scores.shape, found.errors.shape
    (torch.Size([2, 16]), torch.Size([2, 16]))
    """

    guarantee: ClassVar[Guarantee] = "sampled"
    needs_gradients: ClassVar[bool] = True

    samples: int = paired_count(200)
    objective: Objective = choice("class", Objective)
    seed: int = count(0, least=0)

    def _measure(self, task: Task) -> Measured:
        return noise_scores(task, self.samples, self.objective, self.seed, self.memory)[1]


def noise_scores(
    task: Task, samples: int, objective: Objective, seed: int, memory: int | None
) -> tuple[Measured, Measured]:
    """Return (T of `SmoothEVA` over all radii, from the points on the straight paths; N) for a batch."""
    count, device, pairs = len(task.x), task.x.device, samples // 2
    offset, family = draw_offsets(task.ball, task.x, samples, "one", seed), task.ball.at(task.x)
    room = task.ball.room(task.x.double(), task.mask.expand_as(task.x))
    share, turn = (drawn.to(task.x) for drawn in draw_path_positions(pairs, room.groups, seed))
    best = value_and_gradient(task.graph, task.x, task.target, objective)[0]
    nominal = best.clone()
    evidence, lost = (PairedMean(count, pairs, room.groups, device) for _ in range(2))

    def work(start: int, stop: int) -> None:
        index = torch.arange(start, stop, device=device)
        one, pair = index // pairs, index % pairs
        owner, both = one.repeat(2), pair.repeat(2)
        delta = offset(owner, torch.cat([pair, pair + pairs])).clamp(family.lower[owner], family.upper[owner])
        x, target, mask = task.x[owner], task.target[owner], task.mask.expand_as(task.x)[owner]
        away = share[both]
        value, straight = value_and_gradient(
            task.graph, x + away.view(-1, *[1] * (x.ndim - 1)) * delta, target, objective
        )
        best.scatter_reduce_(0, owner, value, "amax")
        reach = room.concretise(straight.double(), owner)  # (k, 1 + G)
        evidence.add(one, reach[:, :1] - reach[:, 1:])
        there = (turn[both] < away[:, None]).gather(1, mask.flatten(1)).view_as(delta)
        scattered = value_and_gradient(task.graph, x + there * delta, target, objective)[1]
        lost.add(one, sum_over_groups((straight.double() + scattered.double()) / 2 * delta.double(), mask, room.groups))

    run_in_chunks(count * pairs, gradients_per_pass(task.graph, task.x, memory) // 2, work)
    frozen = nominal[:, None].expand(-1, room.groups).contiguous()  # x itself lies in every B_u
    overlap = Overlap(best, frozen, nominal, task.target, certified=False)

    def measured(mean: PairedMean) -> Measured:
        return Measured(mean.value.to(task.x.dtype), overlap, errors=mean.errors.to(task.x.dtype))

    return measured(evidence), measured(lost)


def draw_path_positions(pairs: int, groups: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw positions on the paths: the same numbers on every device and in every precision.

    Returns the position of each pair (pairs,), one in each of as many equal parts of [0, 1], and the position (pairs,
    G) at which each group moves to the end.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    parts = torch.randperm(pairs, generator=generator)
    share = (parts + torch.rand(pairs, generator=generator, dtype=torch.float64)) / pairs
    return share, torch.rand(pairs, groups, generator=generator, dtype=torch.float64)
