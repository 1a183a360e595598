"""What an overlap is, and how it is printed: rounded to the side on which it stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

__all__ = ["NOT_COVERED", "Guarantee", "between", "rounded", "span"]

# Proven upper bounds of AO; upper bounds of the smoothed classifier's AO, which hold with a probability that is stated,
# its level; the largest values that samples reached, lower bounds; estimates that are neither.
Guarantee = Literal["certified", "probable", "sampled", "none"]

# What is said of every proof that does not count all roundings; of one that does nothing need be said.
NOT_COVERED = "floating-point rounding is not covered"

_ROUNDING = {"certified": ROUND_CEILING, "probable": ROUND_CEILING, "sampled": ROUND_FLOOR, "none": ROUND_HALF_EVEN}


def rounded(value: float, guarantee: Guarantee) -> str:
    """An overlap with two decimals, or three digits if it is small, rounded to the side on which it stays true."""
    rounding = _ROUNDING[guarantee]
    if not math.isfinite(value):
        return str(value).replace("inf", "∞")
    if 0 < abs(value) < 0.1 or abs(value) >= 1e9:
        return str(Context(prec=3, rounding=rounding).create_decimal_from_float(value))
    return str(Decimal(value).quantize(Decimal("0.01"), rounding))


def span(low: float, high: float, guarantee: Guarantee) -> str:
    """The smallest and the largest of some overlaps, once where they print the same: "-1.00 to 0.26"."""
    return " to ".join(dict.fromkeys(rounded(end, guarantee) for end in (low, high)))


def between(lower: float, upper: float) -> str:
    """A number from both sides, each rounded outward: "[-8.71, -8.65]"."""
    return f"[{rounded(lower, 'sampled')}, {rounded(upper, 'certified')}]"
