"""Smooth EVA: what carries the evidence over a large ball. A mean of tangents, with its standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.tangent import Objective, at_once, slopes
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.inputs.ball import Ball
from proofmap.runtime.memory import in_pieces
from proofmap.settings import check_count, choice, count, setting
from proofmap.verify.overlap import Overlap

__all__ = ["Mean", "Radii", "SmoothEVA", "drawn", "offsets", "paired", "smooth"]

Radii = Literal["one", "all"]  # of the balls that points are drawn from


def paired(default: int) -> Any:
    """A field that is a number of points drawn in pairs: two pairs at least, for an error."""
    return setting(default, _check_pairs)


def _check_pairs(said: str, got: Any) -> None:
    check_count(said, got, least=4)
    if got % 2:
        raise InputError(f"{said}={got}, expected an even number: points are drawn in pairs")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SmoothEVA(Explainer):
    """T(u) = mean over points z of the ball of max <g(z), δ> - max with δ_u = 0 of <g(z), δ>, g the gradient of the
    objective and δ whatever the domain leaves: low - x <= δ <= high - x. Without a domain δ is in the ball.

    That is the first-order overlap of a group, averaged over a ball that may be large. `samples` points are drawn
    uniformly, in pairs on opposite sides of the middle: from the ball without its domain, and led back to the domain;
    from a relative ball as it is.
    `Explanation.errors` has the standard errors of the means. Nothing is proven; the overlap is the largest objective
    that was met at those points.

    radii: "one", that of the ball, or "all": every pair has a radius of its own, drawn uniformly from 0 to that.
    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.SmoothEVA(model, pm.Ball(0.35, domain=(0.0, 1.0)), groups=cells).explain(x)
    >>> found.errors.shape, found.guarantee
    (torch.Size([2, 16]), 'sampled')
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    samples: int = paired(50)
    radii: Radii = choice("one", Radii)
    objective: Objective = choice("class", Objective)
    seed: int = count(0, least=0)

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        return smooth(task, self.samples, self.radii, self.objective, self.seed, self.memory)


def smooth(task: Task, samples: int, radii: Radii, objective: Objective, seed: int, memory: int | None) -> Measured:
    """T of some samples, its standard errors, and the largest objective that was met."""
    count, device, pairs = len(task.x), task.x.device, samples // 2
    offset, family = offsets(task.ball, task.x, samples, radii, seed), task.ball.at(task.x)
    room = task.ball.room(task.x.double(), task.mask.expand_as(task.x))  # differences of sums: in float64
    best = slopes(task.graph, task.x, task.target, objective)[0]
    nominal = best.clone()
    mean = Mean(count, pairs, room.groups, device)

    def work(start: int, stop: int) -> None:
        index = torch.arange(start, stop, device=device)
        one, pair = index // pairs, index % pairs
        owner = one.repeat(2)
        delta = offset(owner, torch.cat([pair, pair + pairs]))
        points = task.x[owner] + delta.clamp(family.lower[owner], family.upper[owner])
        value, slope = slopes(task.graph, points, task.target[owner], objective)
        best.scatter_reduce_(0, owner, value, "amax")
        reach = room.concretise(slope.double(), owner)  # (k, 1 + G)
        mean.add(one, reach[:, :1] - reach[:, 1:])

    in_pieces(count * pairs, at_once(task.graph, task.x, memory) // 2, work)
    frozen = nominal[:, None].expand(-1, room.groups).contiguous()  # x itself lies in every B_u
    overlap = Overlap(best, frozen, nominal, task.target, certified=False)
    return Measured(mean.value.to(task.x.dtype), overlap, errors=mean.errors.to(task.x.dtype))


class Mean:
    """The mean over pairs of points of what each group has, (n, G), and its standard error, as pairs come in."""

    value: Tensor

    def __init__(self, count: int, pairs: int, groups: int, device: torch.device) -> None:
        """Nothing is in yet."""
        self.pairs = pairs
        self.value, self._square = (torch.zeros(count, groups, dtype=torch.float64, device=device) for _ in range(2))

    def add(self, owner: Tensor, scores: Tensor) -> None:
        """Of k pairs, of samples `owner` (k,), what the first of each have and then the second: (2 k, G)."""
        each = scores.view(2, len(owner), -1).mean(0)  # pairs are independent, points are not
        self.value.index_add_(0, owner, each / self.pairs)
        self._square.index_add_(0, owner, each.square() / self.pairs)

    @property
    def errors(self) -> Tensor:
        """The standard errors, once all pairs are in."""
        spread = (self._square - self.value.square()).clamp(min=0) * (self.pairs / (self.pairs - 1))
        return (spread / self.pairs).sqrt()


def offsets(ball: Ball, x: Tensor, samples: int, radii: Radii, seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """(samples (k,), which of their points (k,)) -> δ (k, *shape) in the ball without its domain."""
    size = torch.ones(samples // 2, dtype=torch.float64)
    if radii == "all":
        size = torch.rand(samples // 2, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    size = size.repeat(2).to(x).view(-1, *[1] * (x.ndim - 1))  # the same for both of a pair
    if ball.relative:  # a box that x lies anywhere in
        box, share = ball.at(x), (drawn(Ball(1.0), x, samples, seed) + 1) / 2
        return lambda owner, k: size[k] * torch.lerp(box.lower[owner], box.upper[owner], share[k])
    free, unit = replace(ball, domain=None).at(x), size * drawn(ball, x, samples, seed)
    return lambda owner, k: unit[k] * torch.where(unit[k] > 0, free.upper[owner], -free.lower[owner])


def drawn(ball: Ball, x: Tensor, samples: int, seed: int) -> Tensor:
    """Points (samples, *shape) drawn uniformly from the ball of radius 1, without its domain: the same numbers for
    every sample, on every device and in every precision.

    The second half of them are opposite to the first, which makes means less noisy at the same cost; where the ball is
    a half itself, they are drawn as well.
    """
    around = Ball(1.0, ball.norm, half=ball.half).at(torch.zeros(1, *x.shape[1:], dtype=torch.float64))
    generator = torch.Generator().manual_seed(seed)
    first = around.sample(samples // 2, generator)[:, 0]
    second = -first if ball.half is None else around.sample(samples // 2, generator)[:, 0]
    return torch.cat([first, second]).to(x.device, x.dtype)
