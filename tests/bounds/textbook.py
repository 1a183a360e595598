"""Reference CROWN and interval arithmetic, transcribed slowly from their papers, for affine maps and ReLUs.

A network is a list of steps: ("affine", {source: W}, b) is Σ W_s v_s + b, ("relu", source) is max(v, 0). Value 0 is
the flat input. Everything is numpy in float64, one neuron at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Step = tuple[Any, ...]


def matrix(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return (W, b) of an affine function of one sample, from its values at zero and at the unit vectors."""
    size = torch.Size(shape).numel()
    with torch.no_grad():
        zero = function(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
        units = function(torch.eye(size, dtype=torch.float64).reshape(size, *shape)).flatten(1)
    return (units - zero).T.numpy(), zero.numpy()


def ibp(steps: list[Step], low: Array, high: Array) -> list[tuple[Array, Array]]:
    """Propagate intervals (Gowal et al. 2018)."""
    values = [(low, high)]
    for step in steps:
        if step[0] == "relu":
            below, above = values[step[1]]
            values.append((np.maximum(below, 0), np.maximum(above, 0)))
        else:
            values.append(_affine(step, values))
    return values


def _affine(step: Step, values: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """l' = W⁺ l + W⁻ u + b, u' = W⁺ u + W⁻ l + b."""
    below, above = step[2].copy(), step[2].copy()
    for source, weight in step[1].items():
        plus, minus = np.maximum(weight, 0), np.minimum(weight, 0)
        below += plus @ values[source][0] + minus @ values[source][1]
        above += plus @ values[source][1] + minus @ values[source][0]
    return below, above


def crown(steps: list[Step], low: Array, high: Array, rows: Array, *, filtered: bool) -> Array:
    """Return upper bounds of `rows` times the last value. CROWN bounds every ReLU's input too (Zhang et al. 2018).

    filtered: a neuron that interval arithmetic (from the bounds of earlier layers) proves stable counts as stable.
    CROWN alone sometimes leaves such a neuron unstable.
    """
    bounds: dict[int, tuple[Array, Array]] = {}
    cheap: list[tuple[Array, Array]] = [(low, high)]
    for k, step in enumerate(steps, start=1):
        if step[0] == "relu":
            source = step[1]
            if source not in bounds:
                unit = np.eye(len(cheap[source][0]))
                upper = np.array([_substitute(steps, bounds, source, row, low, high) for row in unit])
                lower = -np.array([_substitute(steps, bounds, source, -row, low, high) for row in unit])
                if filtered:
                    decided = (cheap[source][0] >= 0) | (cheap[source][1] <= 0)
                    lower = np.where(decided, cheap[source][0], lower)
                    upper = np.where(decided, cheap[source][1], upper)
                bounds[source] = (lower, upper)
            cheap.append((np.maximum(bounds[source][0], 0), np.maximum(bounds[source][1], 0)))
        else:
            cheap.append(_affine(step, cheap))
        assert len(cheap) == k + 1
    return np.array([_substitute(steps, bounds, len(steps), row, low, high) for row in rows])


def _substitute(
    steps: list[Step], bounds: dict[int, tuple[Array, Array]], start: int, row: Array, low: Array, high: Array
) -> float:
    """Bound row · v_start from above: substitute each v_k by its inputs, from the last step to the first."""
    rows: dict[int, Array] = {start: row}
    constant = 0.0
    for k in range(start, 0, -1):
        if k not in rows:
            continue
        a = rows.pop(k)
        step = steps[k - 1]
        if step[0] == "affine":
            constant += float(a @ step[2])
            for source, weight in step[1].items():
                rows[source] = rows.get(source, 0.0) + a @ weight
            continue
        below, above = bounds[step[1]]
        replaced = np.zeros_like(a)
        for j in range(len(a)):
            lo, hi = below[j], above[j]
            if lo >= 0:
                replaced[j] = a[j]
            elif hi <= 0:
                replaced[j] = 0.0
            elif a[j] > 0:
                replaced[j] = a[j] * hi / (hi - lo)
                constant += -a[j] * hi * lo / (hi - lo)
            else:
                replaced[j] = a[j] * (1.0 if hi > -lo else 0.0)
        rows[step[1]] = rows.get(step[1], 0.0) + replaced
    form = rows.get(0)
    return constant if form is None else constant + float(np.maximum(form, 0) @ high + np.minimum(form, 0) @ low)
