"""A fused GPU kernel that pulls forms back through relaxation lines, for memory-bound work.

Plain torch reads the coefficients eight times, and gathers every row's slopes first. The compiled kernel reads them
once, with the slopes in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proofmap.runtime import compiled_kernels as kernel


def through_lines(coefficients: Tensor) -> Callable[..., Any] | None:
    """Return `_lines` as a compiled kernel if that saves time: on a GPU with a compiler, for enough coefficients."""
    return kernel.compiled(_lines, _trial) if kernel.pays(coefficients) else None


def _lines(
    coefficients: Tensor,
    start: Tensor,
    step: Tensor,
    upper_slope: Tensor,
    upper_bias: Tensor,
    lower_slope: Tensor,
    lower_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return (A⁺ u + A⁻ l, Σ A⁺ b_u + A⁻ b_l) for A (K, d).

    The lines of row k's entry i are at start[k] + step[i] of the flat tensors.
    """
    at = start[:, None] + step
    above, below = coefficients.clamp(min=0), coefficients.clamp(max=0)
    bias = above * upper_bias[at]
    if lower_bias is not None:
        bias = bias + below * lower_bias[at]
    return above * upper_slope[at] + below * lower_slope[at], bias.double().sum(1).to(bias)


def _trial(rows: int) -> tuple[Tensor | None, ...]:
    """Build arguments of `_lines` for a first compilation."""
    a = torch.ones(rows, rows + 2, device="cuda")
    start, step = torch.zeros(rows, dtype=torch.int64, device="cuda"), torch.arange(rows + 2, device="cuda")
    return a, start, step, a.flatten(), a.flatten(), a.flatten(), None
