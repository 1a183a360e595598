"""Adversaries in a family of balls by projected gradient steps: how much overlap they reach, and how near they are.

Each sample has a ball of its own: radius, domain, half, and which variables may move (a box of width zero freezes
one). Captum's PGD has one radius and one pair of limits for the whole batch, no ℓ1 ball, and returns its last iterate.

What is found is real, evaluated at a point of the ball; that nothing was found proves nothing.
"""

from __future__ import annotations

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

__all__ = ["across", "adversaries", "along", "attack", "climb", "climbs", "margin", "nearest", "restrict", "shrunk"]

Value = Callable[[Tensor], Tensor]  # what is to be made large: points (N, *shape) -> (N,), differentiable
Direction = Callable[[Family, Tensor, Tensor], Tensor]  # the step in a ball, at δ, where the value has this gradient

_DUAL = {1.0: inf, 2.0: 2.0, inf: 1.0}
_HALVINGS = 6  # of the way back from an adversary to x, by forward passes alone
_CLOSE = 1e-4  # a bracket this small, relative to the distance, is not narrowed any more
_STILL = 0.9  # share of the work that is left after another attack, for who watches
_SMALLEST = 1e-4  # of the family's radius: where the search starts at the latest


def attack(
    graph: Graph,
    family: Family,
    target: Tensor,
    *,
    steps: int = 20,
    restarts: int = 1,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """(the largest max over c' != c of f_c'(x + δ) - f_c(x + δ) that was met (N,), the δ of the full ball there).

    A lower bound of AO(B), at least the overlap at x. Steps are the steepest of the norm,

        δ <- project(δ + α_t v),   v = argmax of <gradient, v> over v in B,   α_t = 1 - t / steps:

    signs for p = inf, the gradient's direction for p = 2, single variables for p = 1, as far as the box lets them. The
    first start is x itself, from where one step solves a linear model exactly; other starts are drawn from B.
    """
    _check(graph, family, target, steps, restarts)
    starts = climbs(partial(margin, graph, target=target), family, steps, restarts, generator)
    best, delta = next(starts)
    for again in starts:
        best, delta = _better(*again, best, delta)
    return best, delta


def climbs(
    value: Value, family: Family, steps: int, restarts: int, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """From x itself, then from points drawn of B: (the largest value met (N,), its δ), one start after the other."""
    for k in range(restarts):
        start = family.sample(1, generator)[0] if k else torch.zeros_like(family.x)
        with full_precision(family.x.device), torch.no_grad():
            met = climb(value, family, start, [1 - k / steps for k in range(steps)])
        yield met


def nearest(
    graph: Graph,
    family: Family,
    target: Tensor,
    *,
    rounds: int = 10,
    steps: int = 20,
    restarts: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The smallest ||δ||_p of an adversary met in B (N,): an upper bound of the distance to the nearest one.

    It is 0 where x is one itself, inf where none was found: clamp it before averaging. See `adversaries`.
    """
    return adversaries(graph, family, target, rounds=rounds, steps=steps, restarts=restarts, generator=generator)[0]


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
    """(the smallest ||δ||_p of an adversary met in B (N,), a δ of B on whose way back to x it lies, 0 for none).

    An adversary is a δ with an overlap above 0; x itself may be one. The radius starts at the first-order distance and
    doubles, up to the family's own, until an attack succeeds; `rounds` attacks more narrow the bracket. All samples go
    together, each with its own radius. An adversary is drawn back towards x as far as it stays one. That is often the
    nearest: after a miss the bracket is cut at 3/4, not in halves.

    told: called before each attack with a share of the work. How many attacks there will be is not known, so that each
    takes the same part of what is left.
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
                told(1 - _STILL**attacks, f"attack {attacks + 1}")
            attacks += 1
            wanted = torch.where(high < inf, (left > 0) & (low < (1 - _CLOSE) * high), low < family.eps)
            rows = wanted.nonzero()[:, 0]
            if not len(rows):
                return high, found
            left[rows] -= (high[rows] < inf).long()
            part = shrunk(family.pick(rows), trial[rows])
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
    """The same balls, where only `free` variables (N, *shape) bool may move; without groups."""
    if free.dtype != torch.bool or free.shape != family.x.shape:
        raise InputError(
            f"the mask of free variables is {free.dtype} of shape {tuple(free.shape)}, expected torch.bool of x's "
            f"shape {tuple(family.x.shape)}: one mask for each sample"
        )
    moves = free.to(family.x.dtype)  # a product is several times as fast as masked_fill
    return Family(family.x, family.lower * moves, family.upper * moves, family.norm, family.eps)


def climb(
    value: Value,
    family: Family,
    delta: Tensor,
    sizes: Sequence[float],
    direction: Direction | None = None,
    until: float = inf,
) -> tuple[Tensor, Tensor]:
    """The best of the start and of what steps of these sizes α_t lead to: (its value (N,), its δ).

    direction: of a step of size 1, by default that of `attack`. until: a time of `time.monotonic`, from which on no
    more steps are made.
    """
    best, at = torch.full_like(family.eps, -inf), delta
    for size in sizes:
        if time.monotonic() > until:
            break
        reached, slope = _slope(value, family.x + delta)
        best, at = _better(reached, delta, best, at)
        step = _steepest(family, slope) if direction is None else direction(family, delta, slope)
        delta = _project(family, delta + size * step)
    return _better(value(family.x + delta), delta, best, at)


def across(family: Family, _: Tensor, slope: Tensor) -> Tensor:
    """The steepest step in the ball that is as long to either side of x as B on its longer one.

    A step that is as long as B lets it leads nowhere on a side that is closed, as it is for a black pixel: what went to
    the other side would not come back.
    """
    reach = torch.maximum(-family.lower, family.upper)
    return _steepest(Family(family.x, -reach, reach, family.norm, family.eps), slope)


def along(family: Family, delta: Tensor, slope: Tensor) -> Tensor:
    """The gradient's direction within the box, as long as B is wide: where two linear pieces meet in a maximum, steps
    that alternate between them lead along their edge, as steps of signs do not.
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
    """(the larger of two values, its δ), for each sample."""
    return torch.maximum(value, best), torch.where(_wide(value > best, delta), delta, at)


def margin(graph: Graph, points: Tensor, target: Tensor) -> Tensor:
    """max over c' != c of f_c' - f_c: (N,)."""
    return margins(graph(points), target)


def _slope(value: Value, points: Tensor) -> tuple[Tensor, Tensor]:
    """The value at the points and its gradient."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        reached = value(points)
        (slope,) = torch.autograd.grad(reached.sum(), points)
    return reached.detach(), slope


def _steepest(family: Family, slope: Tensor) -> Tensor:
    """argmax of <slope, v> over v in B: the gradient of that maximum."""
    if family.norm == inf:
        return torch.where(slope > 0, family.upper, family.lower) * (slope != 0)
    with torch.enable_grad():
        slope = slope.requires_grad_()
        owner = torch.arange(family.count, device=slope.device)
        (steepest,) = torch.autograd.grad(family.concretise(slope, owner, full_only=True).sum(), slope)
    return steepest


def _project(family: Family, delta: Tensor) -> Tensor:
    """The nearest point of B; for p = inf in the precision of δ, which is exact there."""
    return delta.clamp(family.lower, family.upper) if family.norm == inf else family.project(delta)


def _first_order(graph: Graph, family: Family, target: Tensor) -> tuple[Tensor, Tensor]:
    """(the overlap at x, a radius a little beyond the one at which it is 0 to first order)."""
    overlap, slope = _slope(partial(margin, graph, target=target), family.x)
    slope = slope * torch.where(slope > 0, family.upper > 0, family.lower < 0)
    size = torch.linalg.vector_norm(slope.flatten(1), _DUAL[family.norm], dim=1)
    reach = -overlap / size.clamp(min=torch.finfo(size.dtype).tiny)
    return overlap, torch.minimum(torch.maximum(1.05 * reach, _SMALLEST * family.eps), family.eps)


def shrunk(family: Family, radius: Tensor) -> Family:
    """The same balls with smaller radii (N,)."""
    wide = _wide(radius, family.x)
    return Family(family.x, family.lower.maximum(-wide), family.upper.minimum(wide), family.norm, radius)


def _draw_back(graph: Graph, x: Tensor, target: Tensor, delta: Tensor, norm: float) -> Tensor:
    """||t δ||_p with the smallest t in [0, 1] that bisection finds at which t δ is still an adversary: (N,)."""
    low, high = torch.zeros_like(delta.flatten(1)[:, 0]), torch.ones_like(delta.flatten(1)[:, 0])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        hit = margin(graph, x + _wide(middle, delta) * delta, target) > 0
        low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
    size: Tensor = torch.linalg.vector_norm(delta.flatten(1), norm, dim=1)
    return high * size


def _wide(each: Tensor, like: Tensor) -> Tensor:
    """One value a sample, to broadcast against (N, *shape)."""
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
