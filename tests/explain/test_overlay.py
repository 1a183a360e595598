"""A map over its picture: both can be seen, everywhere and at every score."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from proofmap.explain.overlay import overlaid

SCORES = np.linspace(0, 1, 21)
SHADES = np.linspace(0, 1, 11)
LIGHT = np.array([0.299, 0.587, 0.114])


def every(signed: bool, colour: bool = False) -> NDArray[np.float64]:
    """The overlay of each shade of the picture, down, and each score, across: (11, 21 or 41, 3)."""
    scores = np.concatenate([-SCORES[:0:-1], SCORES]) if signed else SCORES
    shades, values = np.meshgrid(SHADES, 7 * scores, indexing="ij")
    picture = np.repeat(shades[..., None], 3, axis=2) if colour else shades
    found = overlaid(picture, values, 7.0, signed)
    assert found.shape == (*shades.shape, 3)
    assert 0 <= found.min() <= found.max() <= 1
    return found


@pytest.mark.parametrize("signed", [False, True])
def test_the_picture_can_be_seen_under_every_score(signed: bool) -> None:
    """A brighter pixel is brighter under the same score, and black and white stay well apart under the largest."""
    light = every(signed, colour=True) @ LIGHT
    assert (np.diff(light, axis=0) > 0).all()
    contrast = light[-1] - light[0]
    nothing = int(np.argmax(contrast))
    assert contrast[nothing] >= 0.5
    assert nothing == (20 if signed else 0)
    assert contrast.min() >= 0.15


@pytest.mark.parametrize("signed", [False, True])
def test_the_score_can_be_seen_on_every_shade(signed: bool) -> None:
    """No score, half the largest and the largest are well apart in colour, on black, on grey and on white."""
    found = every(signed, colour=True)
    none, half, most = (20, 30, 40) if signed else (0, 10, 20)
    for row in found:
        assert np.linalg.norm(row[half] - row[none]) >= 0.1
        assert np.linalg.norm(row[most] - row[half]) >= 0.1
        assert np.linalg.norm(row[most] - row[none]) >= 0.3
        if signed:
            assert row[most, 0] > row[most, 2] + 0.2  # red
            assert row[0, 2] > row[0, 0] + 0.2  # blue


def test_without_a_score_there_is_the_picture_alone() -> None:
    """No tint; dark ink on white for scores with signs, where the picture was bright ink on black."""
    for signed in (False, True):
        found = overlaid(np.array([[[0.0] * 3, [1.0] * 3]]), np.zeros((1, 2)), 1.0, signed)
        assert (found == found[..., :1]).all()
        assert found[0, 1, 0] > found[0, 0, 0]
    bright = overlaid(np.array([[0.0, 0.0, 1.0]]), np.zeros((1, 3)), 1.0, signed=True)
    assert bright[0, 0, 0] == 1
    assert bright[0, 2, 0] < 0.5


def test_what_is_no_number_or_below_zero_has_no_colour() -> None:
    picture = np.full((1, 4), 0.5)
    found = overlaid(picture, np.array([[0.0, -3.0, np.nan, 1.0]]), 1.0, signed=False)
    assert (found[0, :3] == found[0, 0]).all()
    assert (found[0, 3] != found[0, 0]).any()
