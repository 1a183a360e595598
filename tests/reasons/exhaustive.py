"""The largest margin of a tiny ReLU network for every set of free groups, by a mixed-integer program."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor, nn

FAR = 100.0  # larger than any hidden value of these networks


@torch.no_grad()
def largest_margin(model: nn.Sequential, x: Tensor, low: Tensor, high: Tensor, rival: int, target: int) -> float:
    """Return the largest f_rival - f_target for δ in a box, x (d,)."""
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    widths = [len(layer.weight) for layer in linear[:-1]]
    d, own = len(x), sum(widths)
    rows, least, most = [], [], []

    def row(cells: dict[int, float], at_least: float, at_most: float) -> None:
        rows.append(np.zeros(d + 2 * own))
        for place, value in cells.items():
            rows[-1][place] += value
        least.append(at_least)
        most.append(at_most)

    before, start = list(range(d)), d
    offsets = [linear[0].weight @ x + linear[0].bias, *(layer.bias for layer in linear[1:])]
    for layer, offset, width in zip(linear[:-1], offsets, widths, strict=False):
        for k in range(width):
            into = {place: -float(w) for place, w in zip(before, layer.weight[k], strict=True)}
            h, on = start + k, start + own + k
            row({**into, h: 1.0}, float(offset[k]), np.inf)  # h >= z
            row({**into, h: 1.0, on: FAR}, -np.inf, float(offset[k]) + FAR)  # h <= z if on
            row({h: 1.0, on: -FAR}, -np.inf, 0.0)  # h <= 0 if off
        before, start = list(range(start, start + width)), start + width
    final = linear[-1].weight[rival] - linear[-1].weight[target]
    cost = np.zeros(d + 2 * own)
    cost[before] = -final.detach().numpy()
    ends = [
        np.concatenate([end.numpy(), np.full(own, far), np.full(own, one)])
        for end, far, one in ((low, 0.0, 0.0), (high, FAR, 1.0))
    ]
    kinds = np.concatenate([np.zeros(d + own), np.ones(own)])
    answer = milp(
        cost, constraints=LinearConstraint(np.stack(rows), least, most), integrality=kinds, bounds=Bounds(*ends)
    )
    return float(-answer.fun + (linear[-1].bias[rival] - linear[-1].bias[target]))


def margins_of_sets(
    model: nn.Sequential, x: Tensor, eps: float, mask: Tensor, rivals: list[int], target: int
) -> dict[tuple[bool, ...], float]:
    """Return the largest margin of the rivals for every set of free groups, x (d,)."""
    found = {}
    for free in product((False, True), repeat=int(mask.max()) + 1):
        width = eps * torch.tensor(free)[mask].double()
        found[free] = max(largest_margin(model, x, -width, width, rival, target) for rival in rivals)
    return found
