"""A form through lines in one kernel: on a GPU, reading and writing the coefficients is all the work there is.

Plain torch goes over them eight times, and gathers every row's slopes first; compiled, it is once, with the slopes read
where they stand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_WORTH = 2**22  # coefficients for which compiling, once a session, pays


def worth(coefficients: Tensor) -> bool:
    """Whether to compile: on a GPU, for enough coefficients, where torch finds a compiler."""
    return coefficients.is_cuda and coefficients.numel() >= _WORTH and _compiled() is not None


def through_lines(
    coefficients: Tensor,
    start: Tensor,
    step: Tensor,
    upper_slope: Tensor,
    upper_bias: Tensor,
    lower_slope: Tensor,
    lower_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """(A⁺ u + A⁻ l, Σ A⁺ b_u + A⁻ b_l) for A (K, d); row k's entry i has its lines at start[k] + step[i] of flat
    tensors.
    """
    compiled = _compiled()
    assert compiled is not None
    found: tuple[Tensor, Tensor] = compiled(coefficients, start, step, upper_slope, upper_bias, lower_slope, lower_bias)
    return found


def _lines(
    coefficients: Tensor,
    start: Tensor,
    step: Tensor,
    upper_slope: Tensor,
    upper_bias: Tensor,
    lower_slope: Tensor,
    lower_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    at = start[:, None] + step
    above, below = coefficients.clamp(min=0), coefficients.clamp(max=0)
    bias = above * upper_bias[at]
    if lower_bias is not None:
        bias = bias + below * lower_bias[at]
    return above * upper_slope[at] + below * lower_slope[at], bias.sum(1)


@cache
def _compiled() -> Callable[..., Any] | None:
    """The compiled function, tried once; None, with a warning, where torch cannot compile."""
    compiled = torch.compile(_lines, dynamic=True)
    for rows in (3, 4):  # the second with other sizes: from here on, sizes are variables of the kernel
        a = torch.ones(rows, rows + 2, device="cuda")
        start, step = torch.zeros(rows, dtype=torch.int64, device="cuda"), torch.arange(rows + 2, device="cuda")
        try:
            compiled(a, start, step, a.flatten(), a.flatten(), a.flatten(), None)
        except Exception as error:  # whatever is missing: a compiler, headers, Triton itself
            warnings.warn(f"torch.compile does not work here, bounds on the GPU take longer: {error}", stacklevel=2)
            return None
    return compiled
