"""Sequential linear programming: move a point deeper into a conjunction of linear conditions on the outputs.

The depth of x is min over r of -v_r(x) with v_r(x) = a_r·f(x) + b_r. Each step linearises the rows at x and solves

    max t    such that    v_r(x) + ∇v_r(x)·s + t <= 0 for all r,    |s_i| <= ρ (u_i - l_i),    l <= x + s <= u.

The trust region ρ grows after a step that helps, and shrinks after one that does not. Inside one linear piece of a
ReLU network, one step is exact. Steps along gradients need many more where several rows compete.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_STEPS = 24  # programs that are solved at most
_FIRST_RADIUS, _LEAST_RADIUS = 0.1, 1e-7  # trust region, relative to the width of the box


def deepen(rows: Callable[[Tensor], Tensor], point: Tensor, lower: Tensor, upper: Tensor, enough: float) -> Tensor:
    """Return a point of the box that is at least as deep as `point`; all (*shape) float64.

    rows: the values v (R,) at one point (1, *shape), differentiable.
    enough: a depth at which the search ends.
    """
    moving = (lower < upper).flatten().nonzero().flatten()
    low, high = (end.flatten()[moving] for end in (lower, upper))
    radius = _FIRST_RADIUS
    value, slope = _linearised(rows, point, moving)
    for _ in range(_STEPS):
        if -float(value.max()) >= enough or radius < _LEAST_RADIUS:
            break
        step = _step(value, slope, point.flatten()[moving], low, high, radius)
        if step is None:
            break
        trial = point.flatten().clone()
        trial[moving] = (trial[moving] + step).maximum(low).minimum(high)
        other = trial.view_as(point)
        there = _linearised(rows, other, moving)
        if float(there[0].max()) < float(value.max()):
            point, (value, slope), radius = other, there, min(1.0, 2 * radius)
        else:
            radius /= 4
    return point


def _linearised(rows: Callable[[Tensor], Tensor], point: Tensor, moving: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows' values (R,) and their gradients (R, m)."""
    with torch.enable_grad():
        x = point[None].detach().requires_grad_()
        value = rows(x)
        slopes = [torch.autograd.grad(one, x, retain_graph=True)[0].flatten()[moving] for one in value]
    return value.detach(), torch.stack(slopes)


def _step(value: Tensor, slope: Tensor, x: Tensor, low: Tensor, high: Tensor, radius: float) -> Tensor | None:
    """Return the step (m,) that maximises the linearised depth within the trust region; None if there is none."""
    from scipy.optimize import linprog  # imported here, because it is slow and only searches need it

    wide = radius * (high - low)
    down, up = torch.maximum(low - x, -wide), torch.minimum(high - x, wide)
    if not bool(value.isfinite().all() & slope.isfinite().all()):
        return None
    cost = np.append(np.zeros(len(x)), -1.0)
    matrix = np.hstack([slope.cpu().numpy(), np.ones((len(value), 1))])
    ends = [*zip(down.tolist(), up.tolist(), strict=True), (None, None)]
    answer = linprog(cost, A_ub=matrix, b_ub=-value.cpu().numpy(), bounds=ends, method="highs")
    return torch.as_tensor(answer.x[:-1]).to(x) if answer.status == 0 else None
