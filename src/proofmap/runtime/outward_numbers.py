"""Kinds of guarantee, and printed overlaps rounded to the side on which the statement stays true."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

# "certified": proven upper bounds of AO. "probable": upper bounds of the smoothed classifier's AO, which hold with a
# given probability. "sampled": the largest values of samples, which are lower bounds. "none": estimates.
Guarantee = Literal["certified", "probable", "sampled", "none"]

# The note on every proof that does not count all rounding errors.
NOT_COVERED = "floating-point rounding is not covered"

_ROUNDING_MODES = {
    "certified": ROUND_CEILING,
    "probable": ROUND_CEILING,
    "sampled": ROUND_FLOOR,
    "none": ROUND_HALF_EVEN,
}


def format_overlap(value: float, guarantee: Guarantee) -> str:
    """Print an overlap with two decimals, or with three digits if it is small, rounded to the side on which it stays
    true.
    """
    rounding = _ROUNDING_MODES[guarantee]
    if not math.isfinite(value):
        return str(value).replace("inf", "∞")
    if 0 < abs(value) < 0.1 or abs(value) >= 1e9:
        return str(Context(prec=3, rounding=rounding).create_decimal_from_float(value))
    return str(Decimal(value).quantize(Decimal("0.01"), rounding))


def format_range(low: float, high: float, guarantee: Guarantee) -> str:
    """Print the range of some overlaps, "-1.00 to 0.26", or one number if both endpoints print alike."""
    return " to ".join(dict.fromkeys(format_overlap(end, guarantee) for end in (low, high)))


def format_interval(lower: float, upper: float) -> str:
    """Print lower and upper bounds of a number, each rounded outward: "[-8.71, -8.65]"."""
    return f"[{format_overlap(lower, 'sampled')}, {format_overlap(upper, 'certified')}]"
