"""Functions of one scalar to a hundred digits, by mpmath: the reference for torch's values and our lines."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]

__all__ = ["CURVES", "exactly", "exponential", "shortened", "square_root"]

_WORKING_DIGITS = 100


def _softplus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x)) if x > 0 else mpmath.exp(x) / (1 + mpmath.exp(x))


def _gelu(x: Any) -> Any:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


# By the names of the operations, with torch's default settings.
CURVES: dict[str, Callable[[Any], Any]] = {
    "sigmoid": _sigmoid,
    "tanh": mpmath.tanh,
    "softsign": lambda x: x / (1 + abs(x)),
    "erf": mpmath.erf,
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * mpmath.tanh(_softplus(x)),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "softplus": _softplus,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


def exactly(curve: str, x: Fraction) -> Fraction:
    """Return the value at x to a hundred digits; values below 2⁻²⁰⁰⁰ become 0."""
    return _evaluated(CURVES[curve], x)


def exponential(x: Fraction) -> Fraction:
    """Return exp(x) to a hundred digits, 0 below 2⁻²⁰⁰⁰."""
    return Fraction(0) if x < -10000 else _evaluated(mpmath.exp, x)


def square_root(x: Fraction) -> Fraction:
    """Return √x to a hundred digits."""
    return _evaluated(mpmath.sqrt, x)


def shortened(x: Fraction) -> Fraction:
    """Return x to a hundred digits, so that long chains of products stay short."""
    return _evaluated(lambda value: value, x)


def _evaluated(function: Callable[[Any], Any], x: Fraction) -> Fraction:
    with mpmath.workdps(_WORKING_DIGITS):
        value = function(mpmath.mpf(x.numerator) / x.denominator)
        if abs(value) < mpmath.ldexp(1, -2000):
            return Fraction(0)
        man, exp = abs(value).man_exp
        return Fraction(int(man) if value > 0 else -int(man)) * Fraction(2) ** int(exp)
