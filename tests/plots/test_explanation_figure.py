"""Figures of explanations: panels, bars, texts, and no text that is cut or overlaps another."""

import math
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.image import imread

from proofmap.errors import InputError
from proofmap.explainers import Explanation, Origin, Source
from proofmap.explainers.statements.proven_ranks import ranks
from proofmap.explainers.upsampling import spread
from proofmap.plots import explanation_figure as picture
from proofmap.plots.explanation_figure import MAX_ROWS, draw
from proofmap.plots.figure_page import Picture
from proofmap.plots.figure_titles import caption, title
from proofmap.plots.summary_figure import summary
from tests.explainers.making import certified, make, make_signed, ranked

PNG = b"\x89PNG\r\n\x1a\n"
LONG = [f"the {'very ' * 20}long name of class {k}" for k in range(30)]
UNBROKEN = ["x" * 300] * 30
SCORES = [float(k * k) for k in range(25)]


def titles(figure: Picture) -> list[str]:
    return [" ".join(text.get_text().split()) for text in figure.texts if " · " in text.get_text()]


def words(figure: Picture) -> str:
    return " | ".join(" ".join(text.get_text().split()) for text in figure.texts)


def windowed(shape: tuple[int, ...], e: Explanation | None = None) -> Explanation:
    """Return scores of windows of 8 steps."""
    mask = (torch.arange(shape[-1]) // 8).expand(1, *shape[1:])
    e = make(shape, 5) if e is None else e
    again = spread(e.scores, mask, smooth=False)
    return replace(e, mask=mask, attributions=again, settings={**e.settings, "groups": "Windows(length=8)"})


def row(figure: Picture, k: int) -> list[Axes]:
    """Return the panels of a row: image, map and overlay. The colour bar comes after them."""
    return figure.axes[4 * k : 4 * k + 3]


def pixels(png: bytes) -> np.ndarray[Any, np.dtype[Any]]:
    return np.asarray(imread(BytesIO(png), format="png"))


FIGURES: dict[str, Callable[[], Picture]] = {
    "one": lambda: draw(make((1, 1, 28, 28), 784)),
    "four": lambda: draw(make((4, 1, 28, 28), 144)),
    "many": lambda: draw(make((MAX_ROWS + 1, 1, 8, 8), 4)),
    "flat image": lambda: draw(make((2, 6, 5), 30)),
    "wide": lambda: draw(make((2, 1, 4, 40), 10)),
    "tall": lambda: draw(make((2, 1, 40, 4), 10)),
    "colour": lambda: draw(make((1, 3, 16, 16), 16)),
    "channels": lambda: draw(make((1, 5, 16, 16), 16)),
    "signed": lambda: draw(make_signed((3, 1, 8, 8), 64)),
    "long names": lambda: draw(make((2, 1, 8, 8), 4), class_names=LONG),
    "signed, long names": lambda: draw(make_signed((2, 3, 8, 8), 4), class_names=LONG),
    "unbroken names": lambda: draw(make_signed((2, 1, 8, 8), 4), class_names=UNBROKEN),
    "names with signs": lambda: draw(make((1, 1, 8, 8), 4), class_names=["$\\frac$ % & é\n日"]),
    "table": lambda: draw(make((2, 57), 57)),
    "short table": lambda: draw(make_signed((1, 3), 3)),
    "table, long names": lambda: draw(make((1, 30), 30), columns=LONG),
    "table, unbroken names": lambda: draw(make((1, 30), 15), columns=UNBROKEN),
    "video": lambda: draw(make((1, 2, 3, 4, 4), 7)),
    "nan": lambda: draw(make(scores=torch.full((3, 5), math.nan), guarantee="none")),
    "zero": lambda: draw(make_signed(scores=torch.zeros(3, 5))),
    "tiny": lambda: draw(make_signed(scores=torch.linspace(-1e-9, 1e-9, 15).reshape(3, 5))),
    "huge": lambda: draw(make_signed(scores=torch.linspace(-1e12, 1e12, 15).reshape(3, 5))),
    "negative": lambda: draw(make(scores=torch.linspace(-1, 0, 15).reshape(3, 5))),
    "intervals": lambda: draw(ranked(SCORES, 0.5, (1, 1, 10, 10))),
    "open intervals": lambda: draw(ranked(SCORES, 90.0, (1, 1, 10, 10))),
    "intervals of a wide picture": lambda: draw(ranked(SCORES, 0.5, (1, 3, 5, 45)), class_names=LONG),
    "intervals of a table": lambda: draw(ranked(SCORES, 0.5)),
    "intervals of a table, long names": lambda: draw(ranked(SCORES, 0.5), columns=LONG[:25]),
    "values of a table": lambda: draw(make((2, 30), 30), columns=[f"column {k}" for k in range(30)]),
    "series": lambda: draw(windowed((3, 40)), class_names=LONG),
    "series of channels": lambda: draw(windowed((1, 3, 40), ranked([3.0, 1.0, 2.0, 9.0, 0.5], 0.5, (1, 3, 40)))),
    "signed series": lambda: draw(windowed((1, 1, 40), make_signed((1, 1, 40), 5))),
    "summary": lambda: summary(make((50, 30), 30), columns=LONG),
    "summary of a signed table": lambda: summary(make_signed((50, 3), 3)),
    "summary of pictures": lambda: summary(make((9, 1, 8, 8), 16)),
    "summary of one": lambda: summary(ranked(SCORES, 0.5), columns=UNBROKEN[:25]),
    "negative table": lambda: draw(make((3, 5), scores=torch.linspace(-1, 0, 15).reshape(3, 5))),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph .* missing")  # one name has a character that the font lacks
@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_or_hidden(name: str) -> None:
    figure = FIGURES[name]()
    assert figure._repr_png_().startswith(PNG)
    page = figure.bbox
    parts = [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    parts += [(str(panel), box) for panel in figure.axes if (box := panel.get_tightbbox()) is not None]
    parts += [(str(key), key.get_window_extent()) for key in figure.legends]
    for k, (said, box) in enumerate(parts):
        assert page.x0 <= box.x0 < box.x1 <= page.x1, f"{said!r} leaves the page"
        assert page.y0 <= box.y0 < box.y1 <= page.y1, f"{said!r} leaves the page"
        for other, area in parts[k + 1 :]:
            assert not box.overlaps(area), f"{said!r} lies over {other!r}"


@pytest.mark.parametrize("count", [1, 4])
def test_a_row_of_panels_for_each_image(count: int) -> None:
    e = make((count, 1, 4, 4))
    figure = draw(e)
    assert len(figure.axes) == 4 * count
    for k in range(count):
        image, heat, overlay = row(figure, k)
        assert [len(panel.images) for panel in (image, heat, overlay)] == [1, 1, 2]  # an overlay has two layers
        np.testing.assert_array_equal(overlay.images[1].get_array(), heat.images[0].get_array())
        assert np.asarray(overlay.images[1].get_alpha()).shape == (4, 4)
        np.testing.assert_array_equal(np.asarray(image.images[0].get_array()), e.x[k, 0].numpy())
        np.testing.assert_allclose(np.asarray(heat.images[0].get_array()), e.attributions[k, 0].numpy(), rtol=1e-6)
        assert heat.images[0].get_clim() == pytest.approx((0, float(e.scores[k].max())))


@pytest.mark.parametrize("sign", [1, -1])
def test_signed_maps_share_one_symmetric_scale(sign: int) -> None:
    e = make_signed(scores=sign * make_signed().scores)
    figure = draw(e)
    most = float(e.scores.abs().max())
    for k in range(3):
        heat = row(figure, k)[1].images[0]
        assert heat.get_clim() == pytest.approx((-most, most))
        assert heat.get_cmap().name == "RdBu_r"
    red, _, _, _ = heat.to_rgba(np.array([most]))[0]
    _, _, blue, _ = heat.to_rgba(np.array([-most]))[0]
    assert red > 0.3
    assert blue > 0.3


def test_colours() -> None:
    e = make((1, 3, 4, 4))
    np.testing.assert_array_equal(np.asarray(draw(e).axes[0].images[0].get_array()), e.x[0].permute(1, 2, 0).numpy())


def test_other_channels_are_averaged() -> None:
    e = make((1, 5, 4, 4))
    for panel, values in zip(draw(e).axes, (e.x, e.attributions), strict=False):
        np.testing.assert_allclose(np.asarray(panel.images[0].get_array()), values[0].mean(0).numpy(), rtol=1e-6)


def test_values_outside_0_and_1_are_rescaled() -> None:
    e = make((1, 1, 4, 4))
    shown = np.asarray(draw(replace(e, x=e.x * 9 - 4)).axes[0].images[0].get_array())
    assert (shown.min(), shown.max()) == (0, 1)


def test_bars_of_the_largest_scores() -> None:
    e = make_signed((1, 30), 30)
    (panel,) = draw(e).axes
    best = e.scores[0].abs().argsort(descending=True)[:20]
    assert [label.get_text() for label in panel.get_yticklabels()] == [str(int(k)) for k in best]
    assert [getattr(bar, "get_width", float)() for bar in panel.patches] == pytest.approx(e.scores[0, best].tolist())
    assert panel.get_xlim()[0] == pytest.approx(-panel.get_xlim()[1])
    assert "the 20 largest of 30 scores, by column" in words(draw(e))


def test_bars_start_at_0() -> None:
    (panel,) = draw(make((1, 30), 30)).axes
    assert panel.get_xlim()[0] == 0


def test_columns_have_names() -> None:
    e = make((1, 4), 2, scores=torch.tensor([[1.0, 2.0]]))
    (panel,) = draw(e, columns=["age", "income", "height", "weight"]).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["income, weight", "age, height"]


def test_named_columns_have_their_values_beside_them() -> None:
    """A one-hot block is named by its active category."""
    x = torch.tensor([[0.25, 1200.0, 0.0, 1.0, 0.0]])
    mask, scores = torch.tensor([[0, 1, 2, 2, 2]]), torch.tensor([[1.0, 2.0, 3.0]])
    e = replace(make((1, 5), 3, scores=scores, mask=mask), x=x)
    names = ["age", "income", "hue_red", "hue_green", "hue_blue"]
    (panel,) = draw(e, columns=names).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["hue_green", "income = 1200", "age = 0.25"]
    assert "all 3 scores, by group" in words(draw(e, columns=names))
    assert [label.get_text() for label in summary(e, names).axes[0].get_yticklabels()] == ["hue", "income", "age"]


def test_a_series_is_drawn_along_its_time() -> None:
    e = windowed((1, 2, 40))
    above, below = draw(e).axes
    for line, channel in zip(above.lines, e.x[0], strict=True):
        np.testing.assert_array_equal(np.asarray(line.get_ydata()), channel.numpy())
    assert [getattr(bar, "get_height", float)() for bar in below.patches] == pytest.approx(e.scores[0].tolist())
    assert [getattr(b, "get_x", float)() + 3.6 for b in below.patches] == pytest.approx([3.5, 11.5, 19.5, 27.5, 35.5])
    assert below.get_xlim() == (-0.5, 39.5)
    with pytest.raises(InputError, match="expected none: its groups are windows"):
        draw(e, columns=["a"])


def test_a_summary_has_the_means_and_every_sample() -> None:
    e = make((40, 30), 30)
    means, swarm, _ = summary(e).axes
    order = e.scores.abs().mean(0).argsort(descending=True)[:20]
    lengths = [getattr(bar, "get_width", float)() for bar in means.patches]
    assert lengths == pytest.approx(e.scores.mean(0)[order].tolist(), rel=1e-5)
    for at, (dots, group) in enumerate(zip(swarm.collections, order.tolist(), strict=True)):
        places = np.asarray(dots.get_offsets())
        np.testing.assert_allclose(places[:, 0], e.scores[:, group].numpy(), rtol=1e-6)
        assert np.abs(places[:, 1] - at).max() < 0.5
        values, shown = e.x[:, group].numpy(), np.asarray(dots.get_array())
        low, high = np.percentile(values, (5, 95))
        np.testing.assert_allclose(shown, np.clip((values - low) / (high - low), 0, 1), atol=1e-5)
    assert "the 20 largest of 30 groups" in words(summary(e))


def test_a_summary_shows_where_the_mean_of_true_scores_lies() -> None:
    e = ranked(SCORES, 0.5)
    assert "whiskers: proven interval of the mean of the true scores" in words(summary(e))
    lines = summary(e).axes[0].collections[0].get_segments()  # type: ignore[attr-defined]
    assert lines[0][:, 0] == pytest.approx(e.intervals[0, -1].tolist())
    assert "whiskers" not in words(summary(make((3, 5), 5)))


@pytest.mark.parametrize(
    ("e", "columns", "message"),
    [
        (make((3, 4), 2), ["a"], r"got 1 names for the columns of samples \(4,\)"),
        (make((3, 1, 4, 4), 2), ["a"], r"got 1 names for the columns of samples \(1, 4, 4\)"),
        (make((2, 4), 2, mask=torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])), None, "2 samples with groups of their own"),
    ],
)
def test_explanations_without_a_summary_are_refused(e: Explanation, columns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        e.summary(columns)


def test_long_names_of_columns_are_cut() -> None:
    (panel,) = draw(make((1, 30), 15), columns=UNBROKEN).axes
    assert {label.get_text() for label in panel.get_yticklabels()} == {"x" * 31 + "…"}
    (panel,) = draw(make((1, 30), 2)).axes
    assert {label.get_text() for label in panel.get_yticklabels()} == {"0, 2, 4…", "1, 3, 5…"}


def test_bars_of_negative_scores_end_at_0() -> None:
    (panel,) = draw(make((1, 5), scores=torch.linspace(-1, -0.2, 5)[None])).axes
    assert panel.get_xlim() == pytest.approx((-1.03, 0))


@pytest.mark.parametrize("shape", [(1, 25), (1, 1, 10, 10)])
def test_bars_have_the_intervals_of_their_scores(shape: tuple[int, ...]) -> None:
    e = ranked(SCORES, 0.5, shape)
    panel = draw(e).axes[-1]
    shown = e.scores[0].argsort(descending=True)[: len(panel.patches)]
    lines = [line for part in panel.collections for line in getattr(part, "get_segments", list)()]
    across = [line for line in lines if line[0][1] == line[1][1]]
    np.testing.assert_allclose([(line[0][0], line[1][0]) for line in across], e.intervals[0, shown].numpy())
    assert [bool(bar.get_hatch()) for bar in panel.patches] == [k not in range(15, 25) for k in shown.tolist()]


def test_proven_groups_have_solid_outlines() -> None:
    """Outlines are solid for proven groups, dashed for the other largest groups, and absent without a search."""
    e = ranked([*SCORES[:14], 15.0**2 - 0.2, *SCORES[15:]], 0.5, (1, 1, 10, 10))
    assert (len(ranks(e, 0).proven), ranks(e, 0).open) == (9, (15,))
    looks = [
        (np.allclose(np.asarray(part.get_edgecolor())[0, :3], 1), "None" in str(part.get_linestyle()))
        for part in draw(e).axes[1].collections
    ]
    assert looks == [(False, True), (True, False), (False, True), (True, True)]  # dashed and solid, each on black
    assert not draw(make((1, 1, 10, 10), 25)).axes[1].collections
    said = [text.get_text() for key in draw(e).legends for text in key.get_texts()]
    assert said == [
        "proven to be among the 10 groups that matter most",
        "not proven to be",
        "proven interval of the true score",
    ]


def test_a_very_long_whisker_is_cut() -> None:
    assert draw(ranked([1.0, 2.0, 3.0, 4.0], 100.0)).axes[-1].get_xlim()[1] == pytest.approx(3 * 1.03 * 4)


def test_every_row_has_its_title() -> None:
    """Titles are wrapped. Their class names are the given ones, or else those of the origin."""
    e = certified(-3.2099, 0.9)
    assert titles(draw(e)) == [title(e, k, None) for k in range(2)]
    names = ("cat", "dog")
    assert titles(draw(e, class_names=names)) == [title(e, k, names) for k in range(2)]
    labelled = replace(e, origin=Origin(Source("net.onnx"), (Source("x.png"),) * 2, (0, 0), classes=names))
    assert titles(draw(labelled)) == [title(labelled, k, names) for k in range(2)]
    assert titles(draw(labelled))[1].startswith("dog, but labelled cat · undecided: ")


def test_the_caption_defines_the_score() -> None:
    for e in (make(), make_signed()):
        assert " ".join(caption(e).split()) in words(draw(e))


@pytest.mark.parametrize("shape", [(1, 4, 4), (5,)])
def test_only_the_first_samples_are_drawn(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MAX_ROWS", 2)
    figure = draw(make((5, *shape)))
    assert len(titles(figure)) == 2
    assert "the first 2 of 5 samples: explanation[2:].plot() shows more" in words(figure)
    assert "the first" not in words(draw(make((2, *shape))))


@pytest.mark.parametrize(
    ("shape", "names", "match"),
    [
        ((1, 1, 4, 4), {"columns": ["a"]}, r"got 1 names for the columns of samples \(1, 4, 4\), expected none"),
        ((1, 7), {"columns": ["a"]}, r"got 1 names for the columns of samples \(7,\), expected 7"),
        ((4, 7), {"class_names": ["a", "b"]}, r"got 2 names for the classes, expected one for each up to class 3"),
    ],
)
def test_wrong_numbers_of_names_are_refused(shape: tuple[int, ...], names: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make(shape).plot(**names)


def test_pyplot_state_is_unchanged() -> None:
    before = dict(matplotlib.rcParams)
    make().plot()._repr_png_()
    make((2, 9), 9).plot()._repr_png_()
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_the_page_is_white_in_a_dark_notebook() -> None:
    plain = draw(make())._repr_png_()
    with matplotlib.rc_context():
        matplotlib.style.use("dark_background")
        matplotlib.rcParams["savefig.transparent"] = True
        np.testing.assert_array_equal(pixels(draw(make())._repr_png_()), pixels(plain))
    np.testing.assert_array_equal(pixels(plain)[[0, 0, -1, -1], [0, -1, 0, -1]], 1.0)


def test_notebooks() -> None:
    e = make(method="<b>EVA</b>")
    png, html = e._repr_png_(), e._repr_html_()
    assert png is not None
    assert png.startswith(PNG)
    assert html.startswith('<img src="data:image/png;base64,iVBORw0KGgo')
    assert "guarantee=&#x27;certified&#x27;" in html
    assert "<b>" not in html
    assert pixels(png).shape[1] == 830
