"""The overlay of a map on its image: both are visible at every score and shade."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from proofmap.plots.figure_look import Look, colours
from proofmap.plots.overlay import coloured, ends, layers, picture_of, pixels_of

SCORES = np.linspace(0, 1, 21)
SHADES = np.linspace(0, 1, 11)
LIGHT = np.array([0.299, 0.587, 0.114])


def every(signed: bool, colour: bool = False) -> NDArray[np.float64]:
    """Return overlays (11, 21 or 41, 3): rows are shades of the image, columns are scores."""
    scores = np.concatenate([-SCORES[:0:-1], SCORES]) if signed else SCORES
    shades, values = np.meshgrid(SHADES, 7 * scores, indexing="ij")
    found = layers(np.repeat(shades[..., None], 3, axis=2) if colour else shades, values, 7.0, signed).pixels
    assert found.shape == (*shades.shape, 3)
    assert 0 <= found.min() <= found.max() <= 1
    return found


@pytest.mark.parametrize("signed", [False, True])
def test_the_image_is_visible_under_every_score(signed: bool) -> None:
    """A brighter pixel stays brighter under the same score. Black and white stay distinct under the largest."""
    light = every(signed, colour=True) @ LIGHT
    assert (np.diff(light, axis=0) > 0).all()
    contrast = light[-1] - light[0]
    nothing = int(np.argmax(contrast))
    assert contrast[nothing] >= 0.5
    assert nothing == (20 if signed else 0)
    assert contrast.min() >= 0.15


@pytest.mark.parametrize("signed", [False, True])
def test_the_score_is_visible_on_every_shade(signed: bool) -> None:
    """No score, half the largest and the largest score have distinct colours on black, grey and white."""
    found = every(signed, colour=True)
    none, half, most = (20, 30, 40) if signed else (0, 10, 20)
    for row in found:
        assert np.linalg.norm(row[half] - row[none]) >= 0.1
        assert np.linalg.norm(row[most] - row[half]) >= 0.1
        assert np.linalg.norm(row[most] - row[none]) >= 0.3
        if signed:
            assert row[most, 0] > row[most, 2] + 0.2  # red
            assert row[0, 2] > row[0, 0] + 0.2  # blue


def test_the_overlay_of_zero_scores_is_the_image() -> None:
    """There is no tint. For signed scores, bright ink on black becomes dark ink on white."""
    for signed in (False, True):
        found = layers(np.array([[[0.0] * 3, [1.0] * 3]]), np.zeros((1, 2)), 1.0, signed).pixels
        assert (found == found[..., :1]).all()
        assert found[0, 1, 0] > found[0, 0, 0]
    bright = layers(np.array([[0.0, 0.0, 1.0]]), np.zeros((1, 3)), 1.0, signed=True).pixels
    assert bright[0, 0, 0] == 1
    assert bright[0, 2, 0] < 0.5


def test_nan_and_negative_values_have_no_colour() -> None:
    found = layers(np.full((1, 4), 0.5), np.array([[0.0, -3.0, np.nan, 1.0]]), 1.0, signed=False).pixels
    assert (found[0, :3] == found[0, 0]).all()
    assert (found[0, 3] != found[0, 0]).any()


@pytest.mark.parametrize(
    ("values", "signed", "expected"),
    [
        ([0.5, 2.0], False, (0.0, 2.0)),
        ([-3.0, 2.0], False, (0.0, 2.0)),
        ([-3.0, 2.0], True, (-3.0, 3.0)),
        ([np.nan, np.inf, -1.0], True, (-1.0, 1.0)),
        ([-1.0, np.nan], False, (0.0, 1.0)),
        ([0.0], True, (-1.0, 1.0)),
    ],
)
def test_the_ends_of_the_colours(values: list[float], signed: bool, expected: tuple[float, float]) -> None:
    """The range begins at 0, or is symmetric about 0. NaN is ignored, and empty values have a range too."""
    assert ends(np.array(values), signed) == expected


def test_a_map_in_colours() -> None:
    pixels = coloured(np.array([[-1.0, 0.0, 1.0, np.nan, 9.0]]), -1.0, 1.0, signed=True)[0]
    scale = colours(signed=True)
    for pixel, place in zip(pixels[[0, 1, 2, 4]], (0.0, 0.5, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(pixel, scale(place)[:3])
    assert pixels[3].tolist() == [0.5] * 3
    assert pixels[2, 0] > pixels[2, 2]  # red
    assert Look().bar(1.0, signed=True) == scale(0.88)
    assert Look().bar(-1.0, signed=True) == scale(0.12)
    assert Look().bar(-1.0, signed=False) == Look().bar(1.0, signed=False)


def test_samples_as_pictures() -> None:
    """Grey and colour images are unchanged. Other channels are averaged, and other ranges are scaled to [0, 1]."""
    colour = torch.rand(3, 4, 5)
    np.testing.assert_allclose(picture_of(colour), colour.movedim(0, 2))
    np.testing.assert_allclose(pixels_of(colour), colour.mean(0), rtol=1e-6)
    np.testing.assert_allclose(picture_of(torch.tensor([[-1.0, 3.0]])), [[0.0, 1.0]])
    np.testing.assert_allclose(picture_of(torch.full((2, 1, 1), 7.0)), [[0.0]])


@pytest.mark.parametrize("signed", [False, True])
def test_an_overlay_is_two_layers_that_give_the_same_pixels(signed: bool) -> None:
    """The upper layer holds the scores themselves, with a colour scale. matplotlib draws what the report contains."""
    random = np.random.default_rng(0)
    picture, values = random.random((6, 5)), random.normal(size=(6, 5))
    both = layers(picture, values, 2.0, signed)
    figure = Figure(figsize=(5, 6), dpi=10)
    canvas: Any = FigureCanvasAgg(figure)
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    upper = both.draw(panel)
    np.testing.assert_array_equal(np.asarray(upper.get_array()), values)
    assert upper.get_clim() == (-2.0 if signed else 0.0, 2.0)
    canvas.draw()
    np.testing.assert_allclose(np.asarray(canvas.buffer_rgba())[5::10, 5::10, :3] / 255, both.pixels, atol=0.02)
