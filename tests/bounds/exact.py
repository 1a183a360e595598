"""Exact maxima of tiny ReLU networks over a box: one linear program for each activation pattern."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]


def exact_maximum(layers: list[tuple[Array, Array]], row: Array, low: Array, high: Array) -> tuple[float, Array]:
    """Return the maximum of row · f(x) over low <= x <= high and a maximiser. f has ReLUs between affine layers.

    On the polytope of an activation pattern the network is affine, so a linear program maximises it. Patterns that no x
    of the box has are skipped. So are patterns whose affine value stays below the best one on the whole box.
    """
    best, where = -np.inf, low
    w, b = layers[-1]
    for weight, bias, above, limits in _patterns(layers[:-1], np.eye(len(low)), np.zeros(len(low)), low, high):
        goal, constant = row @ w @ weight, float(row @ (w @ bias + b))
        if float(_range(goal[None], np.array([constant]), low, high)[1][0]) <= best:
            continue
        answer = linprog(-goal, A_ub=above, b_ub=limits, bounds=list(zip(low, high, strict=True)))
        if answer.status == 0 and constant - float(answer.fun) > best:
            best, where = constant - float(answer.fun), answer.x
    return best, where


def _patterns(
    layers: list[tuple[Array, Array]], weight: Array, bias: Array, low: Array, high: Array
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield (weight, bias, above, limits): the layers are weight x + bias on the polytope above x <= limits."""
    if not layers:
        yield weight, bias, np.empty((0, len(low))), np.empty(0)
        return
    w, b = layers[0]
    weight, bias = w @ weight, w @ bias + b
    least, most = _range(weight, bias, low, high)
    unstable = (least <= 0) & (most >= 0)
    for signs in product([0.0, 1.0], repeat=int(unstable.sum())):
        on = (least > 0).astype(np.float64)
        on[unstable] = signs
        sign = (1 - 2 * on)[unstable]  # active: -(W x + b) <= 0; inactive: W x + b <= 0
        own, limit = sign[:, None] * weight[unstable], -sign * bias[unstable]
        for *affine, above, limits in _patterns(layers[1:], on[:, None] * weight, on * bias, low, high):
            yield affine[0], affine[1], np.concatenate([own, above]), np.concatenate([limit, limits])


def _range(weight: Array, bias: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest value of each weight x + bias on the box."""
    middle, reach = weight @ (low + high) / 2 + bias, np.abs(weight) @ (high - low) / 2
    return middle - reach, middle + reach


def exact_depth(layers: list[tuple[Array, Array]], rows: Array, bias: Array, low: Array, high: Array) -> float:
    """Return the largest value of min over r of -(rows_r · f(x) + bias_r) for low <= x <= high.

    It is below 0 if no x of the box meets all rows rows_r · f(x) + bias_r <= 0.
    """
    best, (w, b) = -np.inf, layers[-1]
    for weight, shift, above, limits in _patterns(layers[:-1], np.eye(len(low)), np.zeros(len(low)), low, high):
        slopes, constants = rows @ w @ weight, rows @ (w @ shift + b) + bias
        both = np.block([[slopes, np.ones((len(rows), 1))], [above, np.zeros((len(above), 1))]])
        ends = [*zip(low, high, strict=True), (None, None)]
        answer = linprog([0.0] * len(low) + [-1.0], A_ub=both, b_ub=np.concatenate([-constants, limits]), bounds=ends)
        if answer.status == 0:
            best = max(best, -float(answer.fun))
    return best
