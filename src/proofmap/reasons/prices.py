"""The order in which groups are freed: prices of a linear program over knapsack rows of all rivals.

A row says how much load the free groups may have together. The program max Σ f_u, rows · f <= capacities, 0 <= f <= 1,
frees as much as it can. The dual value of a row is the price of its capacity, and the price of a group is the sum of
its loads at these prices. Cheap groups are freed first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork

_PATH_POINTS = 21  # points at which the gradient on the way to an attack is averaged
_ATTACK_STEPS = 25  # steps of the attack on each rival
_MOST_ROWS = 64  # rows of the program: the tightest ones decide the prices
_LEAST_CAPACITY = 1e-7  # a row without capacity would make the program infeasible


def group_prices(loads: Tensor, capacities: Tensor) -> Tensor | None:
    """Return the prices (G,) of the groups for rows with loads (L, G) and capacities (L,); None without an answer."""
    from scipy.optimize import linprog  # imported here, because it is slow and only this program needs it

    if len(loads) > _MOST_ROWS:
        tightest = (loads.sum(1) / capacities.clamp(min=_LEAST_CAPACITY)).topk(_MOST_ROWS).indices
        loads, capacities = loads[tightest], capacities[tightest]
    rows, limits = loads.cpu().numpy(), capacities.clamp(min=_LEAST_CAPACITY).cpu().numpy()
    answer = linprog(-(0 * rows[0] + 1), A_ub=rows, b_ub=limits, bounds=(0, 1), method="highs")
    if answer.status != 0:
        return None
    return torch.as_tensor(-answer.ineqlin.marginals @ rows).to(loads)


def path_prices(network: PointNetwork, balls: FreeBalls, limit: float) -> Tensor:
    """Return prices (G,) from one row for each form: the gradient integrated from x to an attack, and the room at x."""
    whole = balls.balls(torch.ones(balls.groups, dtype=torch.bool, device=balls.mask.device))
    start = network.start
    share = torch.linspace(0, 1, _PATH_POINTS, dtype=start.dtype, device=start.device)[:, None]
    each = torch.arange(network.forms, device=start.device)
    _, ends = network.attack_each_form(whole, _ATTACK_STEPS)
    path = (share * ends[:, None]).flatten(0, 1)  # the path of the first form comes first
    values, forms = network.gradient(path, each.repeat_interleave(_PATH_POINTS))
    loads = balls.loads(forms.unflatten(0, (-1, _PATH_POINTS)).mean(1))
    found = group_prices(loads, balls.capacities(limit - values[::_PATH_POINTS]))
    return loads.sum(0) if found is None else found
