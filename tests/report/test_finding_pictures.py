"""Pictures of a finding: alternative texts, places of groups, colours, bars and axes."""

import math
import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import spread
from proofmap.report.finding_pictures import PagePicture, Place, bars, describe, gradient, maps, means, places
from proofmap.report.number_line import Axis
from proofmap.text.group_places import largest
from tests.explainers.making import make, make_signed, ranked


def pixels(picture: PagePicture) -> Image.Image:
    return Image.open(BytesIO(b64decode(picture.source.partition(",")[2])))


def grouped(mask: Tensor) -> Explanation:
    """Return an explanation of one sample with these groups. The last group has the largest score."""
    scores = torch.arange(1.0, int(mask.max()) + 2)[None]
    return make((1, *mask.shape), mask=mask[None], scores=scores, attributions=spread(scores, mask[None]))


GRID = torch.arange(36).reshape(1, 6, 6) // 18 * 2 + (torch.arange(36) % 6).reshape(1, 6, 6) // 3
CHANNELS = torch.zeros(3, 2, 2, dtype=torch.int64)
CHANNELS[2] = 1
RING = torch.ones(5, 5, dtype=torch.int64)
RING[1:4, 1:4] = 0


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.arange(6).reshape(1, 2, 3), "row 1, column 2"),
        (torch.arange(6).reshape(2, 3), "row 1, column 2"),
        (GRID, "rows 3 to 5, columns 3 to 5"),
        (CHANNELS, "channel 2: rows 0 to 1, columns 0 to 1"),
        (RING, "16 pixels within rows 0 to 4, columns 0 to 4"),
        (torch.arange(7), "column 6"),
        (torch.tensor([1, 0, 1, 1, 1, 1, 1, 1]), "columns 0, 2, 3, 4, 5 and 2 more"),
        (torch.arange(16).reshape(2, 2, 2, 2), "variable 15"),
    ],
)
def test_a_group_has_a_place(mask: Tensor, words: str) -> None:
    found = places(grouped(mask), 2)
    assert found[0].where == words
    assert found[0].score == float(mask.max()) + 1


def test_groups_that_a_sample_lacks_have_none() -> None:
    mask = np.array([0, 0, 2])
    assert [group for group, _ in largest(np.array([1.0, 9.0, -3.0, 8.0]), mask, 9)] == [2, 0]


def test_the_positions_of_scores_are_described() -> None:
    values = np.zeros((9, 9))
    values[0, 8], values[4, 4] = 3.0, 1.0
    assert describe(values, signed=False) == (
        "The scores lie mostly in these ninths of the image: upper right (75%), centre (25%); the largest is at row 0, "
        "column 8."
    )
    values[8, 0] = -1.0
    assert "Negative scores, in blue, lie mostly in these ninths of the image: lower left (100%)" in describe(
        values, True
    )
    assert describe(np.zeros((2, 2)), signed=False) == "No score is above zero."
    assert describe(np.ones((9, 9)), signed=False).startswith("The scores are spread over the whole image;")


def test_invalid_values_are_grey() -> None:
    values = torch.tensor([[1.0, math.nan], [0.0, 0.5]])
    e = grouped(torch.arange(4).reshape(2, 2))
    scores = values.reshape(1, 4)
    e = make((1, 2, 2), mask=e.mask, scores=scores, attributions=spread(scores, e.mask))
    found = maps(e, "x")
    assert found is not None
    shown = np.asarray(pixels(found.scores))[56::112, 56::112]
    assert shown[0, 1].tolist() == [128, 128, 128]
    assert shown[1, 0].tolist() == [0, 0, 4]  # the first colour of magma


def test_signs_have_two_colours_on_a_scale_about_zero() -> None:
    e = make_signed(shape=(1, 1, 4, 4))
    found = maps(e[0], "x")
    assert found is not None
    assert found.low == -found.high
    shown = np.asarray(pixels(found.scores)).astype(int)[28::56, 28::56]
    red = shown[..., 0] > shown[..., 2]
    assert (red == (e.attributions[0, 0].numpy() > 0)).all()


def test_large_pictures_are_reduced_and_small_ones_enlarged() -> None:
    sizes = {}
    for side in (1, 100, 300, 1000):
        found = maps(make((1, 1, side, side), groups=1), "x")
        assert found is not None
        sizes[side] = (found.input.width, found.input.smooth)
        assert pixels(found.input).width == found.input.width
    assert sizes == {1: (224, False), 100: (300, False), 300: (300, True), 1000: (448, True)}


def test_mean_maps_share_one_scale() -> None:
    found, low, high, signed = means(np.stack([np.full((2, 2), 0.5), np.eye(2)]), ["class a", "class b"])
    assert (low, high, signed) == (0.0, 1.0, False)
    assert [picture.alt.partition(".")[0] for picture in found] == ["Mean map of class a", "Mean map of class b"]
    assert means(np.zeros((2, 7)), ["a", "b"])[0] == []


def test_bars_reach_from_zero() -> None:
    found = list(bars([Place("", "", score, ()) for score in (3.0, -1.0, math.nan)]))
    assert [(bar.start, bar.width, bar.zero) for bar in found] == [
        (25.0, 75.0, 25.0),
        (0.0, 25.0, 25.0),
        (25.0, 0.0, 25.0),
    ]


def test_bars_have_the_ends_of_their_intervals() -> None:
    """An interval that is far longer than the bars is cut at the axis."""
    first, second = bars([Place("", "", 1.0, (), (0.5, 2.0)), Place("", "", 0.5, (), (0.0, 9.0))])
    assert (first.width, first.ends) == (50.0, (25.0, 100.0))
    assert (second.width, second.ends) == (25.0, (0.0, None))


def test_groups_that_are_proven_to_matter_most_are_outlined() -> None:
    """Outlines are white on black, solid or dashed, and the alternative text mentions them."""
    alts, whites = [], []
    for e in (ranked([4, 3, 2, 1], 0.1, (1, 1, 2, 2)), ranked([4, 3, 2, 1], 90, (1, 1, 2, 2)), make((1, 1, 2, 2), 4)):
        found = maps(e, "x")
        assert found is not None
        alts.append(found.scores.alt)
        whites.append(int((np.asarray(pixels(found.scores)) == 255).all(2).sum()))
    assert whites[0] > whites[1] > whites[2] == 0
    assert alts[0].endswith("Outlined: these 2 of 4 pixels are proven to matter most.")
    assert not any("utlined" in alt for alt in alts[1:])


def test_an_axis_holds_zero_and_every_finite_value() -> None:
    axis = Axis.over([2.0, 10.0, math.inf, math.nan])
    assert 0 < axis.at(0.0) < axis.at(2.0) < axis.at(10.0) < 100
    assert (axis.at(math.inf), axis.at(-math.inf)) == (100, 0)
    assert Axis.over([]).at(0.0) == 50


def test_gradients_are_colours_alone() -> None:
    for signed in (True, False):
        assert re.fullmatch(r"linear-gradient\(to right(, #[0-9a-f]{6}){17}\)", gradient(signed))


def test_tokens_are_no_picture_and_have_places() -> None:
    mask = torch.arange(3)[None, :, None].expand(1, 3, 2)
    e = make((1, 3, 2), 3, scores=torch.tensor([[1.0, 3.0, 2.0]]), mask=mask)
    assert maps(e, "a") is None
    assert [place.where for place in places(e, 2)] == ["token 1", "token 2"]
