"""Parts without a bend: the network is linear there, and the largest value of a row is a linear program.

The program is solved by HiGHS. Its multipliers are taken over, its value is not: a bound is computed from them as from
any others.
"""

from __future__ import annotations

from math import inf

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from proofmap.rules import Interval
from proofmap.tree.balls import Balls
from proofmap.tree.relaxed import bound, lines_of
from proofmap.tree.units import Rows, Units


def solved(units: Units, balls: Balls, rows: Rows, x: Interval, member: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """(multipliers (B, K), δ (B, d), which parts (B,) have them) of rows on parts where no unit is open.

    None where the ball is no box.
    """
    if balls.family.norm != inf:
        return None
    multipliers, points = torch.zeros_like(x.lower), torch.zeros_like(rows.weight)
    works = torch.zeros(len(rows), dtype=torch.bool, device=rows.bias.device)
    count = len(units)
    for k in range(len(rows)):
        here = Interval(x.lower[k].expand(count + 1, -1), x.upper[k].expand(count + 1, -1))
        every = Rows(
            torch.cat([units.inputs.weight, rows.weight[k : k + 1]]),
            torch.cat([units.inputs.bias, rows.bias[k : k + 1]]),
            torch.cat([units.inputs.mix, rows.mix[k : k + 1]]),
        )
        lines = lines_of(units, here, (here.upper > 0).to(here.lower))
        found = bound(units, every, here, lines, torch.zeros_like(here.lower))
        above = x.lower[k] == 0  # z >= 0 there; else z <= 0 where x.upper is 0
        side = torch.where(above, 1.0, torch.where(x.upper[k] == 0, -1.0, 0.0)).to(found.bias)
        used = side.nonzero().flatten()
        low, high = balls.box(member[k])
        answer = linprog(
            _array(-found.form[-1]),
            A_ub=_array(-side[used, None] * found.form[used]) if len(used) else None,
            b_ub=_array(side[used] * found.bias[used]) if len(used) else None,
            bounds=np.stack([_array(low), _array(high)], axis=1),
            method="highs",
        )
        if answer.status != 0:
            continue
        works[k] = True
        points[k] = torch.as_tensor(answer.x).to(points)
        if len(used):
            duals = torch.as_tensor(np.maximum(-answer.ineqlin.marginals, 0.0)).to(multipliers)
            multipliers[k, used] = duals * side[used]
    return multipliers, points, works


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.double().cpu().numpy()
    return array
