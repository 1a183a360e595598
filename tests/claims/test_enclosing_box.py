"""An enclosing box contains its ball in exact arithmetic, and is hardly larger."""

from fractions import Fraction
from math import inf, nextafter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proofmap.claims.claim import enclosing_box
from proofmap.errors import InputError
from proofmap.inputs.ball import Ball

VALUES = st.floats(-4, 4, width=32)
LIMITS = st.one_of(st.none(), st.tuples(st.floats(-9, -4.5), st.floats(4.5, 9)), st.just((-4.0, 4.0)))


def ends(x: float, eps: float, limits: tuple[float, float] | None, relative: bool) -> tuple[Fraction, Fraction]:
    """Return the exact endpoints of the ball around one variable."""
    at, radius = Fraction(x), Fraction(eps)
    if limits is None:
        return at - radius, at + radius
    low, high = map(Fraction, limits)
    if relative:
        return at + radius * (low - at), at + radius * (high - at)
    return max(at - radius, low), min(at + radius, high)


def tight(found: float, exact: Fraction, steps: int) -> bool:
    """Return whether a lower endpoint is valid and at most `steps` numbers below the exact one."""
    nearest = found
    for _ in range(steps):
        nearest = nextafter(nearest, inf)
    return Fraction(found) <= exact and (Fraction(found) == exact or Fraction(nearest) >= exact)


@given(VALUES, st.floats(0, 1), LIMITS, st.booleans())
def test_a_box_is_a_ball_rounded_outward(x: float, eps: float, limits: tuple[float, float] | None, share: bool) -> None:
    relative = share and limits is not None
    low, high = (float(end) for end in enclosing_box(Ball(eps, domain=limits, relative=relative), torch.tensor([[x]])))
    lowest, highest = ends(x, eps, limits, relative)
    if relative:
        slack = Fraction(2) ** -46
        assert lowest - slack <= Fraction(low) <= lowest
        assert highest <= Fraction(high) <= highest + slack
    else:
        assert tight(low, lowest, 1)
        assert tight(-high, -highest, 1)


def test_it_never_leaves_the_domain_and_half_stays_at_x() -> None:
    x = torch.tensor([[0.1, 0.95, 1.0, 0.0]])
    low, high = enclosing_box(Ball(0.3, domain=(0.0, 1.0), half="+"), x)
    assert torch.equal(low, x.double())
    assert high[0, 1:3].tolist() == [1.0, 1.0]


def test_an_end_of_the_domain_is_itself() -> None:
    """The endpoint is the domain's limit, not x + (limit - x), which rounds to a number inside."""
    x = 3.299999952316284
    assert x + (-0.001 - x) > -0.001
    low, _ = enclosing_box(Ball(9.0, domain=(-0.001, 4.0)), torch.tensor([[x]]))
    assert float(low) == -0.001


def test_the_radius_is_the_stated_one_and_not_that_of_float32() -> None:
    """0.01 in float32 is less than 0.01, so that the box of the specified radius is wider."""
    low, high = enclosing_box(Ball(0.01), torch.zeros(1, 1))
    assert (float(low), float(high)) == (-0.01, 0.01)
    assert float(torch.tensor(0.01)) < 0.01


@pytest.mark.parametrize("norm", [1, 2])
def test_a_ball_that_is_no_box_is_refused(norm: int) -> None:
    with pytest.raises(InputError, match=f"got a ball of norm {norm}, expected norm inf: VNN-LIB states boxes"):
        enclosing_box(Ball(0.1, norm=norm), torch.zeros(1, 2))
