"""The exact overlap of a tiny ReLU network over a box: every activation pattern, one linear program each."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]


def exact_maximum(layers: list[tuple[Array, Array]], row: Array, low: Array, high: Array) -> tuple[float, Array]:
    """max of row · f(x) over low <= x <= high, and where; f being affine layers with ReLU between them.

    On the polytope of an activation pattern the network is affine: its value is maximised by a linear program.
    """
    hidden = [len(bias) for _, bias in layers[:-1]]
    best, where = -np.inf, low
    for pattern in product([0.0, 1.0], repeat=sum(hidden)):
        weight, bias = np.eye(len(low)), np.zeros(len(low))
        above: list[Array] = []
        limits: list[Array] = []
        start = 0
        for (w, b), size in zip(layers[:-1], hidden, strict=True):
            weight, bias = w @ weight, w @ bias + b
            on = np.array(pattern[start : start + size])
            start += size
            sign = 1 - 2 * on  # active: -(W x + b) <= 0; inactive: W x + b <= 0
            above.append(sign[:, None] * weight)
            limits.append(-sign * bias)
            weight, bias = on[:, None] * weight, on * bias
        w, b = layers[-1]
        goal, constant = row @ w @ weight, float(row @ (w @ bias + b))
        answer = linprog(
            -goal, A_ub=np.concatenate(above), b_ub=np.concatenate(limits), bounds=list(zip(low, high, strict=True))
        )
        if answer.status == 0 and constant - float(answer.fun) > best:
            best, where = constant - float(answer.fun), answer.x
    return best, where
