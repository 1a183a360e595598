"""Sequences of tokens are drawn as boxes with names in reading order, never as images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.statements.proven_ranks import is_sequence, noun
from proofmap.explainers.upsampling import spread
from proofmap.plots.figure_look import Look
from proofmap.plots.time_series import shade
from tests.explainers.making import make, make_signed, ranked
from tests.plots.test_explanation_figure import words

WORDS = ["the", "plot", "is", "not", "$bad$"]


def tokens(e: Explanation, owner: list[int] | None = None, groups: str = "Tokens()") -> Explanation:
    """Return an explanation whose groups are tokens."""
    length = e.x.shape[1]
    mask = torch.tensor(list(range(length)) if owner is None else owner)[None, :, None].expand(1, *e.x.shape[1:])
    again = spread(e.scores, mask, smooth=False)
    return replace(e, mask=mask, attributions=again, settings={**e.settings, "groups": groups})


@pytest.mark.parametrize("make_one", [make, make_signed])
def test_tokens_stand_in_reading_order_in_the_colours_of_their_scores(make_one: type) -> None:
    e = tokens(make_one((2, 5, 3), 5))
    figure = e.plot(tokens=WORDS)
    boxes, bars, *rest = figure.axes
    assert len(rest) == 2  # panels of the second sample
    assert [text.get_text() for text in boxes.texts] == WORDS
    assert not any(panel.images for panel in figure.axes)
    scores = e.scores[0].double().numpy()
    most = float(e.scores.abs().max()) if e.signed else float(scores.max())
    low = -most if e.signed else 0.0
    for patch, score in zip(boxes.patches, scores, strict=True):
        assert isinstance(patch, Rectangle)
        expected = shade(float((score - low) / (most - low)), e.signed, Look())
        np.testing.assert_allclose(to_rgb(patch.get_facecolor()), expected[:3], atol=1e-6)
    places = [(round(patch.get_y(), 6), patch.get_x()) for patch in boxes.patches if isinstance(patch, Rectangle)]
    assert places == sorted(places)
    order = np.argsort(-np.abs(scores), kind="stable")
    assert [label.get_text() for label in bars.get_yticklabels()] == [f"{WORDS[k]} ({k})" for k in order]
    assert "all 5 scores, by token" in words(figure)


def test_without_names_the_positions_are_shown() -> None:
    boxes, bars = tokens(make((1, 3, 4), 3, scores=torch.tensor([[1.0, 3.0, 2.0]]))).plot().axes
    assert [text.get_text() for text in boxes.texts] == ["0", "1", "2"]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["1", "2", "0"]


def test_each_sample_may_have_its_own_names() -> None:
    figure = tokens(make((2, 2, 3), 2)).plot(tokens=[["good", "film"], ["bad", "film"]], panels="tokens")
    assert [[text.get_text() for text in panel.texts] for panel in figure.axes] == [["good", "film"], ["bad", "film"]]


def test_a_group_of_several_tokens_is_named_by_them() -> None:
    e = tokens(make((1, 5, 2), 2, scores=torch.tensor([[1.0, 2.0]])), [0, 0, 1, 1, 1], "Words()")
    assert [label.get_text() for label in e.plot(tokens=WORDS).axes[1].get_yticklabels()] == [
        "is not $bad$ (2)",
        "the plot (0)",
    ]
    assert noun(e) == "group"


def test_long_texts_are_broken_into_lines() -> None:
    figure = tokens(ranked([float(k) for k in range(80)], 0.5, (1, 80, 2))).plot(tokens=[f"word{k}" for k in range(80)])
    panel = figure.axes[0]
    assert 2 <= len({round(patch.get_y(), 4) for patch in panel.patches if isinstance(patch, Rectangle)}) <= 10
    right = panel.get_xlim()[1]
    assert all(patch.get_x() + patch.get_width() <= right for patch in panel.patches if isinstance(patch, Rectangle))
    assert "tokens are proven to matter most" in words(figure)


def test_text_is_readable_on_dark_boxes() -> None:
    boxes = tokens(make((1, 2, 2), 2, scores=torch.tensor([[0.0, 1.0]]))).plot(cmap="Greys", panels="tokens").axes[0]
    assert [text.get_color() for text in boxes.texts] == ["black", "white"]


def test_tokens_in_given_axes() -> None:
    panel = Figure().subplots()
    tokens(make((1, 5, 3), 5)).plot(tokens=WORDS, ax=panel, panels="tokens")
    assert [text.get_text() for text in panel.texts] == WORDS


def test_images_are_no_sequences() -> None:
    """Rows of a grid are cells, and a sample whose pixels are scored alone is an image."""
    assert is_sequence(tokens(make((1, 5, 3), 5), groups="a mask"))
    assert not is_sequence(tokens(make((1, 5, 3), 5), groups="Grid(rows=5, columns=1)"))
    assert not is_sequence(make((1, 5, 3), 15))
    assert not is_sequence(make((1, 5), 5))
    assert not is_sequence(make((1, 1, 5, 3), 5))


@pytest.mark.parametrize(
    ("e", "names", "message"),
    [
        (tokens(make((1, 5, 3), 5)), ["a", "b"], r"got tokens for 1 samples of \[2\] tokens, expected 5 names"),
        (tokens(make((2, 2, 3), 2)), [["a", "b"]] * 3, "got tokens for 3 samples"),
        (make((1, 5, 3), 15), ["a"] * 5, r"expected sequences \(T, D\) with groups of whole tokens"),
        (make((1, 5), 5), ["a"] * 5, r"got tokens for samples \(5,\)"),
    ],
)
def test_names_that_do_not_fit_are_refused(e: Explanation, names: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        e.plot(tokens=names)


def test_columns_of_a_sequence_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected none: these are tokens=\[\.\.\.\]"):
        tokens(make((1, 5, 3), 5)).plot(columns=["a"] * 15)
