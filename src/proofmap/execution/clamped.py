"""Differences through values that are kept between two ends: reading and writing is all the work there is.

On a GPU one kernel does it all; plain torch gathers the values first, and goes over them four times more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.runtime import compiled_kernels as kernel


def change(base: Tensor, rows: Tensor | None, move: Tensor, low: float, high: float) -> Tensor:
    """Return c(b + d) - c(b) with c = clamp(·, low, high).

    b is the rows (k,) of a base (P, R, C), and d is (P, k, C). If `rows` is None, b is all rows but the last, under
    each of k / (R - 1) maps in turn.
    """
    count = base.shape[1] - 1
    run = kernel.compiled(_change, _trial) if kernel.pays(move) else None
    if run is not None:
        if rows is None:
            rows = torch.arange(count, device=base.device).repeat(move.shape[1] // count)
        compiled: Tensor = run(base, rows, move, low, high)
        return compiled
    if rows is None:
        still = base[:, None, :count].clamp(low, high)
        moved: Tensor = base[:, None, :count] + move.unflatten(1, (-1, count))
    else:
        taken = base.index_select(1, rows)
        moved = taken + move
        still = taken.clamp_(low, high)
    return moved.clamp_(low, high).sub_(still).view(move.shape).to(move.dtype)


def _change(base: Tensor, rows: Tensor, move: Tensor, low: float, high: float) -> Tensor:
    still = base[:, rows]
    return ((still + move).clamp(low, high) - still.clamp(low, high)).to(move.dtype)


def _trial(size: int) -> tuple[Tensor | float, ...]:
    """Build arguments of `_change` for a first compilation."""
    base = torch.ones(size, size + 2, size + 5, device="cuda")
    rows = torch.arange(size, device="cuda")
    return base, rows, base[:, :size].half(), 0.0, float("inf")
