"""Functions of one scalar to a hundred digits, by mpmath: what torch's values and our lines are held against."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]

__all__ = ["CURVES", "exactly"]

_DIGITS = 100


def _softplus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x)) if x > 0 else mpmath.exp(x) / (1 + mpmath.exp(x))


def _gelu(x: Any) -> Any:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


# By the names of operations, with the settings that torch has by default.
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
}


def exactly(curve: str, x: Fraction) -> Fraction:
    """The value at x, as far as the digits go; 0 where it is nearer to that than 2⁻²⁰⁰⁰."""
    with mpmath.workdps(_DIGITS):
        value = CURVES[curve](mpmath.mpf(x.numerator) / x.denominator)
        if abs(value) < mpmath.ldexp(1, -2000):
            return Fraction(0)
        man, exp = abs(value).man_exp
        return Fraction(int(man) if value > 0 else -int(man)) * Fraction(2) ** int(exp)
