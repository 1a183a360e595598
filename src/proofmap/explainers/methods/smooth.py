"""SmoothEVA: the first-order overlap averaged over a large ball, with standard errors (cf. SmoothGrad)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.objective_gradients import Objective, gradients_per_pass, value_and_gradient
from proofmap.inputs.ball import Ball
from proofmap.runtime.memory import run_in_chunks
from proofmap.settings import check_count, choice, count, setting
from proofmap.verify.overlap import Overlap

Radii = Literal["one", "all"]  # the radii of the balls for random points


def paired_count(default: int) -> Any:
    """Return a field for an even number of points, at least four: standard errors need two pairs."""
    return setting(default, _check_even_count)


def _check_even_count(said: str, got: Any) -> None:
    check_count(said, got, least=4)
    if got % 2:
        raise InputError(f"{said}={got}, expected an even number: points are draw_unit_points in pairs")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SmoothEVA(Explainer):
    """T(u) = mean over points z of the ball of (max <g(z), δ> - max with δ_u = 0 of <g(z), δ>).

    g is the gradient of the objective. δ may be any change that the domain allows: low - x <= δ <= high - x. Without a
    domain, δ is in the ball. So T is the first-order overlap of a group, averaged over a ball that may be large.
    `samples` points are drawn uniformly, in pairs on opposite sides of the centre, from the ball without its domain,
    and clamped to the domain; from a relative ball directly. `Explanation.errors` has the standard errors of the means.
    Nothing is proven; the overlap is the largest objective at these points.

    radii: "one", the radius of the ball, or "all": every pair has a random radius, uniform from 0 to that of the ball.
    objective: "margin", "class", "mean" (see `pm.overlap`) or "log-softmax", -log of the class's probability.

    >>> found = pm.SmoothEVA(model, pm.Ball(0.35, domain=(0.0, 1.0)), groups=cells).explain(x)
    >>> found.errors.shape, found.guarantee
    (torch.Size([2, 16]), 'sampled')
    """

    guarantee: ClassVar[Guarantee] = "sampled"
    needs_gradients: ClassVar[bool] = True

    samples: int = paired_count(50)
    radii: Radii = choice("one", Radii)
    objective: Objective = choice("class", Objective)
    seed: int = count(0, least=0)

    def _measure(self, task: Task) -> Measured:
        return smooth_scores(task, self.samples, self.radii, self.objective, self.seed, self.memory)


def smooth_scores(
    task: Task, samples: int, radii: Radii, objective: Objective, seed: int, memory: int | None
) -> Measured:
    """Return T for a batch, its standard errors, and the largest objective at the points."""
    count, device, pairs = len(task.x), task.x.device, samples // 2
    offset, family = draw_offsets(task.ball, task.x, samples, radii, seed), task.ball.at(task.x)
    room = task.ball.room(task.x.double(), task.mask.expand_as(task.x))  # differences of sums: in float64
    best = value_and_gradient(task.graph, task.x, task.target, objective)[0]
    nominal = best.clone()
    mean = PairedMean(count, pairs, room.groups, device)

    def work(start: int, stop: int) -> None:
        index = torch.arange(start, stop, device=device)
        one, pair = index // pairs, index % pairs
        owner = one.repeat(2)
        delta = offset(owner, torch.cat([pair, pair + pairs]))
        points = task.x[owner] + delta.clamp(family.lower[owner], family.upper[owner])
        value, slope = value_and_gradient(task.graph, points, task.target[owner], objective)
        best.scatter_reduce_(0, owner, value, "amax")
        reach = room.concretise(slope.double(), owner)  # (k, 1 + G)
        mean.add(one, reach[:, :1] - reach[:, 1:])

    run_in_chunks(count * pairs, gradients_per_pass(task.graph, task.x, memory) // 2, work)
    frozen = nominal[:, None].expand(-1, room.groups).contiguous()  # x itself lies in every B_u
    overlap = Overlap(best, frozen, nominal, task.target, certified=False)
    return Measured(mean.value.to(task.x.dtype), overlap, errors=mean.errors.to(task.x.dtype))


class PairedMean:
    """The running mean (n, G) over pairs of points, and its standard error."""

    value: Tensor

    def __init__(self, count: int, pairs: int, groups: int, device: torch.device) -> None:
        """Begin with no pairs."""
        self.pairs = pairs
        self.value, self._square = (torch.zeros(count, groups, dtype=torch.float64, device=device) for _ in range(2))

    def add(self, owner: Tensor, scores: Tensor) -> None:
        """Add k pairs of the samples `owner` (k,): scores (2 k, G), first points before second points."""
        each = scores.view(2, len(owner), -1).mean(0)  # pairs are independent, points are not
        self.value.index_add_(0, owner, each / self.pairs)
        self._square.index_add_(0, owner, each.square() / self.pairs)

    @property
    def errors(self) -> Tensor:
        """The standard errors, after all pairs were added."""
        spread = (self._square - self.value.square()).clamp(min=0) * (self.pairs / (self.pairs - 1))
        return (spread / self.pairs).sqrt()


def draw_offsets(ball: Ball, x: Tensor, samples: int, radii: Radii, seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function (samples (k,), point indices (k,)) -> δ (k, *shape) in the ball without its domain."""
    size = torch.ones(samples // 2, dtype=torch.float64)
    if radii == "all":
        size = torch.rand(samples // 2, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    size = size.repeat(2).to(x).view(-1, *[1] * (x.ndim - 1))  # the same for both points of a pair
    if ball.relative:  # a box in which x is not the centre
        box, share = ball.at(x), (draw_unit_points(Ball(1.0), x, samples, seed) + 1) / 2
        return lambda owner, k: size[k] * torch.lerp(box.lower[owner], box.upper[owner], share[k])
    free, unit = replace(ball, domain=None).at(x), size * draw_unit_points(ball, x, samples, seed)
    return lambda owner, k: unit[k] * torch.where(unit[k] > 0, free.upper[owner], -free.lower[owner])


def draw_unit_points(ball: Ball, x: Tensor, samples: int, seed: int) -> Tensor:
    """Draw points (samples, *shape) uniformly from the unit ball without a domain.

    The numbers are the same for every sample, device and precision. The second half of the points is opposite to the
    first, which reduces the variance of means at no cost. In a half ball, the second half is drawn too.
    """
    around = Ball(1.0, ball.norm, half=ball.half).at(torch.zeros(1, *x.shape[1:], dtype=torch.float64))
    generator = torch.Generator().manual_seed(seed)
    first = around.sample(samples // 2, generator)[:, 0]
    second = -first if ball.half is None else around.sample(samples // 2, generator)[:, 0]
    return torch.cat([first, second]).to(x.device, x.dtype)
