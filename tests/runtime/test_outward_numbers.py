"""Overlaps as they are printed: rounded to the side on which they stay true."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmap.runtime.outward_numbers import Guarantee, format_interval, format_overlap, format_range


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_rounded_bound_stays_true(value: float) -> None:
    assert Decimal(format_overlap(value, "certified")) >= Decimal(value) >= Decimal(format_overlap(value, "sampled"))
    assert float(format_overlap(value, "none")) == pytest.approx(value, rel=5e-2, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "guarantee", "text"),
    [
        (-3.2099, "certified", "-3.20"),
        (-3.2099, "sampled", "-3.21"),
        (-0.3299, "probable", "-0.32"),
        (2.101, "certified", "2.11"),
        (0.0, "certified", "0.00"),
        (1e-9, "certified", "1.01E-9"),
        (-0.012345, "certified", "-0.0123"),
        (math.inf, "certified", "∞"),
        (math.nan, "none", "nan"),
    ],
)
def test_rounded(value: float, guarantee: Guarantee, text: str) -> None:
    assert format_overlap(value, guarantee) == text


@pytest.mark.parametrize(("low", "high", "text"), [(-1.0, 0.251, "-1.00 to 0.26"), (0.5, 0.5, "0.50")])
def test_a_span_of_overlaps(low: float, high: float, text: str) -> None:
    assert format_range(low, high, "certified") == text


def test_both_sides_are_rounded_outward() -> None:
    assert format_interval(-8.7051, -8.6549) == "[-8.71, -8.65]"
    assert format_interval(0.0123456, math.inf) == "[0.0123, ∞]"
