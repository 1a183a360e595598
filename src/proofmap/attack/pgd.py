"""Projected gradient descent (Madry et al. 2018) in a family of balls: largest overlaps, and nearest adversaries.

Each sample has its own ball: radius, domain, half, and variables that may move (a box of width zero freezes one). In
contrast, Captum's PGD has one radius and one pair of limits for the whole batch, has no ℓ1 ball, and returns its last
iterate.

A found value is attained at a point of the ball. A failed attack proves nothing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.graph.opaque import differentiable
from proofmap.inputs.family import Family
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import Listener
from proofmap.settings import check_count

Objective = Callable[[Tensor], Tensor]  # the objective to maximise: points (N, *shape) -> (N,), differentiable
StepRule = Callable[[Family, Tensor, Tensor], Tensor]  # (ball, δ, gradient at x + δ) -> the step of size 1

_DUAL_NORM = {1.0: inf, 2.0: 2.0, inf: 1.0}  # the dual norm
_BISECTION_STEPS = 6  # bisection steps from an adversary back to x, by forward passes only
_BRACKET_TOLERANCE = 1e-4  # stop narrowing a bracket of this size, relative to the distance
_REMAINING_SHARE = 0.9  # share of the remaining work after each attack, for the progress report
_MIN_FIRST_RADIUS = 1e-4  # least first radius, relative to the family's radius


def attack(
    graph: Graph,
    family: Family,
    target: Tensor,
    *,
    steps: int = 20,
    restarts: int = 1,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Maximise the overlap over the full ball by PGD: (the largest max over c' != c of f_c'(x + δ) - f_c(x + δ) (N,),
    its δ).

    The value is a lower bound of AO(B), and at least the overlap at x. Steps are the steepest ones of the norm,

        δ <- project(δ + α_t v),   v = argmax of <gradient, v> over v in B,   α_t = 1 - t / steps:

    signs for p = inf, the gradient's direction for p = 2, single variables for p = 1, within the box. The first start
    is x itself, from where one step solves a linear model exactly. Other starts are drawn from B.
    """
    _check(graph, family, target, steps, restarts)
    starts = run_pgd_starts(partial(margin, graph, target=target), family, steps, restarts, generator)
    best, delta = next(starts)
    for again in starts:
        best, delta = _better(*again, best, delta)
    return best, delta


def run_pgd_starts(
    value: Objective, family: Family, steps: int, restarts: int, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Run PGD from x itself, then from points drawn from B; yield (the largest value (N,), its δ) for each start."""
    for k in range(restarts):
        start = family.sample(1, generator)[0] if k else torch.zeros_like(family.x)
        yield run_pgd_from(value, family, start, steps)


def run_pgd_from(value: Objective, family: Family, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Run PGD from one point of each ball, with steps that become smaller. Return (the largest value (N,), its δ)."""
    with full_precision(family.x.device), torch.no_grad():
        return run_pgd(value, family, start, [1 - k / steps for k in range(steps)])


def adversaries(
    graph: Graph,
    family: Family,
    target: Tensor,
    *,
    rounds: int = 10,
    steps: int = 20,
    restarts: int = 1,
    generator: torch.Generator | None = None,
    told: Listener | None = None,
) -> tuple[Tensor, Tensor]:
    """Search the nearest adversary: (the smallest ||δ||_p found in B (N,), a δ of B on whose segment to x it lies, or
    0).

    The first is an upper bound of the distance to the nearest adversary: 0 if x is one, and inf if none was found.
    An adversary is a δ with an overlap above 0; x itself may be one. The radius starts at the first-order distance and
    doubles, up to the family's own, until an attack succeeds. Then `rounds` attacks narrow the bracket. All samples are
    attacked together, each with its own radius. A found adversary is moved towards x as far as it remains one. It is
    then often the nearest one, so after a failed attack the bracket is cut at 3/4 instead of 1/2.

    told: a progress listener, called before each attack. The number of attacks is not known in advance, so each attack
        takes the same share of the remaining work.
    """
    _check(graph, family, target, steps, restarts)
    check_count("got rounds", rounds)
    with full_precision(family.x.device), torch.no_grad():
        overlap, trial = _first_order(graph, family, target)
        low, high = torch.zeros_like(trial), torch.where(overlap > 0, 0.0, inf).to(trial)
        left, found = torch.full_like(target, rounds), torch.zeros_like(family.x)
        attacks = 0
        while True:
            if told is not None:
                told(1 - _REMAINING_SHARE**attacks, f"attack {attacks + 1}")
            attacks += 1
            wanted = torch.where(high < inf, (left > 0) & (low < (1 - _BRACKET_TOLERANCE) * high), low < family.eps)
            rows = wanted.nonzero()[:, 0]
            if not len(rows):
                return high, found
            left[rows] -= (high[rows] < inf).long()
            part = with_radius(family.pick(rows), trial[rows])
            value, delta = attack(graph, part, target[rows], steps=steps, restarts=restarts, generator=generator)
            hit = value > 0
            low[rows[~hit]] = trial[rows[~hit]]
            if hit.any():
                reached = _draw_back(graph, part.x[hit], target[rows[hit]], delta[hit], family.norm)
                nearer = reached < high[rows[hit]]
                found[rows[hit][nearer]] = delta[hit][nearer]
                high[rows[hit]] = torch.minimum(high[rows[hit]], reached)
            near, far = low[rows], high[rows]
            between = near + torch.where(hit, 0.5, 0.75) * (far - near)
            trial[rows] = torch.where(far < inf, between, torch.minimum(2 * trial[rows], family.eps[rows]))


def restrict(family: Family, free: Tensor) -> Family:
    """Return the same balls in which only the `free` variables (N, *shape) bool may move; without groups."""
    if free.dtype != torch.bool or free.shape != family.x.shape:
        raise InputError(
            f"the mask of free variables is {free.dtype} of shape {tuple(free.shape)}, expected torch.bool of x's "
            f"shape {tuple(family.x.shape)}: one mask for each sample"
        )
    moves = free.to(family.x.dtype)  # a product is several times as fast as masked_fill
    return Family(family.x, family.lower * moves, family.upper * moves, family.norm, family.eps)


def run_pgd(
    value: Objective,
    family: Family,
    delta: Tensor,
    sizes: Sequence[float],
    direction: StepRule | None = None,
    until: float = inf,
) -> tuple[Tensor, Tensor]:
    """Run PGD steps of sizes α_t, and return the best point including the start: (its value (N,), its δ).

    direction: the step of size 1; by default that of `attack`.
    until: deadline on the clock of `time.monotonic`.
    """
    best, at = torch.full_like(family.eps, -inf), delta
    for size in sizes:
        if time.monotonic() > until:
            break
        reached, slope = _value_and_gradient(value, family.x + delta)
        best, at = _better(reached, delta, best, at)
        step = _steepest(family, slope) if direction is None else direction(family, delta, slope)
        delta = _project(family, delta + size * step)
    return _better(value(family.x + delta), delta, best, at)


def symmetric_step(family: Family, _: Tensor, slope: Tensor) -> Tensor:
    """Return the steepest step in the ball, made symmetric: both sides of a variable get its longer side's length.

    Where one side is closed, as for a black pixel, a step limited to B could not undo a step to the other side.
    """
    reach = torch.maximum(-family.lower, family.upper)
    return _steepest(Family(family.x, -reach, reach, family.norm, family.eps), slope)


def gradient_step(family: Family, delta: Tensor, slope: Tensor) -> Tensor:
    """Return the gradient's direction within the box, scaled to the width of B.

    Where two linear pieces meet in a maximum, steps that alternate between them follow their edge. Sign steps do not.
    """
    blocked = ((delta >= family.upper) & (slope > 0)) | ((delta <= family.lower) & (slope < 0))
    free = (slope * ~blocked).flatten(1)
    width = torch.maximum(-family.lower, family.upper).flatten(1).norm(dim=1)
    if family.norm < inf:
        width = torch.minimum(width, family.eps)
    length = free.norm(dim=1).clamp(min=torch.finfo(free.dtype).tiny)
    step: Tensor = free * (width / length)[:, None]
    return step.view(slope.shape)


def _better(value: Tensor, delta: Tensor, best: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Return (the larger of two values, its δ), for each sample."""
    return torch.maximum(value, best), torch.where(_per_sample(value > best, delta), delta, at)


def margin(graph: Graph, points: Tensor, target: Tensor) -> Tensor:
    """Return max over c' != c of f_c' - f_c: (N,)."""
    return margins(graph(points), target)


def _value_and_gradient(value: Objective, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value at the points and its gradient."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        reached = value(points)
        (slope,) = torch.autograd.grad(reached.sum(), points)
    return reached.detach(), slope


def _steepest(family: Family, slope: Tensor) -> Tensor:
    """Return argmax of <slope, v> over v in B, which is the gradient of that maximum."""
    if family.norm == inf:
        return torch.where(slope > 0, family.upper, family.lower) * (slope != 0)
    with torch.enable_grad():
        slope = slope.requires_grad_()
        owner = torch.arange(family.count, device=slope.device)
        (steepest,) = torch.autograd.grad(family.concretise(slope, owner, full_only=True).sum(), slope)
    return steepest


def _project(family: Family, delta: Tensor) -> Tensor:
    """Project onto B; for p = inf in the type of δ, which is exact there."""
    return delta.clamp(family.lower, family.upper) if family.norm == inf else family.project(delta)


def _first_order(graph: Graph, family: Family, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return (the overlap at x, a radius slightly beyond its first-order distance to 0)."""
    overlap, slope = _value_and_gradient(partial(margin, graph, target=target), family.x)
    slope = slope * torch.where(slope > 0, family.upper > 0, family.lower < 0)
    size = torch.linalg.vector_norm(slope.flatten(1), _DUAL_NORM[family.norm], dim=1)
    reach = -overlap / size.clamp(min=torch.finfo(size.dtype).tiny)
    return overlap, torch.minimum(torch.maximum(1.05 * reach, _MIN_FIRST_RADIUS * family.eps), family.eps)


def with_radius(family: Family, radius: Tensor) -> Family:
    """Return the same balls with smaller radii (N,)."""
    wide = _per_sample(radius, family.x)
    return Family(family.x, family.lower.maximum(-wide), family.upper.minimum(wide), family.norm, radius)


def _draw_back(graph: Graph, x: Tensor, target: Tensor, delta: Tensor, norm: float) -> Tensor:
    """Return ||t δ||_p for the smallest t in [0, 1], found by bisection, at which t δ is still an adversary: (N,)."""
    low, high = torch.zeros_like(delta.flatten(1)[:, 0]), torch.ones_like(delta.flatten(1)[:, 0])
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        hit = margin(graph, x + _per_sample(middle, delta) * delta, target) > 0
        low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
    size: Tensor = torch.linalg.vector_norm(delta.flatten(1), norm, dim=1)
    return high * size


def _per_sample(each: Tensor, like: Tensor) -> Tensor:
    """Reshape one value per sample to broadcast against (N, *shape)."""
    return each.view(-1, *[1] * (like.ndim - 1))


def _check(graph: Graph, family: Family, target: Tensor, steps: int, restarts: int) -> None:
    differentiable(graph, "an attack")
    check_count("got steps", steps)
    check_count("got restarts", restarts)
    if target.dtype != torch.int64 or target.shape != family.eps.shape:
        raise InputError(
            f"target is {target.dtype} of shape {tuple(target.shape)}, expected torch.int64 with one class for each of "
            f"{family.count} samples"
        )
    if graph.classes < 2:
        raise InputError(f"the model has {graph.classes} output, expected at least two classes to tell apart")
    if bool(((target < 0) | (target >= graph.classes)).any()):
        raise InputError(f"got target {target.tolist()}, expected classes from 0 to {graph.classes - 1}")
