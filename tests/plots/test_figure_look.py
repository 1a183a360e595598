"""The options of all figures: axes, colour maps, titles, panels and rcParams."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import colormaps, style
from matplotlib.figure import Figure
from numpy.typing import NDArray

from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.upsampling import spread
from proofmap.plots.figure_look import LINE_COLOURS, Look, colours
from proofmap.plots.figure_page import PAGE_WIDTH, Picture
from tests.explainers.making import make, make_signed, ranked

Array = NDArray[np.float64]


def sequence() -> Explanation:
    """Two sequences of three tokens with two features."""
    mask = torch.arange(3)[None, :, None].expand(1, 3, 2)
    return make((2, 3, 2), 3, mask=mask, attributions=spread(make((2, 3, 2), 3, mask=mask).scores, mask))


def series() -> Explanation:
    mask = (torch.arange(16) // 4)[None]
    return make((2, 16), 4, mask=mask, settings={"eps": 0.01, "norm": "inf", "groups": "Windows(length=4)"})


@dataclass(frozen=True)
class Kind:
    """A kind of figure: an explanation, its method, and all its panels."""

    e: Callable[[], Explanation]
    panels: tuple[str, ...]
    count: int  # samples with panels of their own
    method: str = "plot"

    def draw(self, **options: Any) -> Picture:
        figure: Picture = getattr(self.e(), self.method)(**options)
        return figure


KINDS = {
    "images": Kind(lambda: make((2, 1, 4, 4)), ("input", "map", "overlay", "scores"), 2),
    "colour images": Kind(lambda: make_signed((2, 3, 4, 4)), ("input", "map", "overlay", "scores"), 2),
    "searched images": Kind(lambda: ranked([1.0, 2.0, 3.0, 4.0], 0.1, (1, 1, 4, 4)), ("input", "map", "scores"), 1),
    "tables": Kind(lambda: make((2, 7), 7), ("scores",), 2),
    "series": Kind(series, ("series", "scores"), 2),
    "sequences": Kind(sequence, ("tokens", "scores"), 2),
    "summaries": Kind(lambda: make((9, 7), 7), ("mean", "samples"), 1, "summary"),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_panel_is_drawn_into_given_axes(kind: Kind) -> None:
    """No figure of its own is made, and no other axes appear beside the given ones."""
    figure = Figure()
    panels = figure.subplots(kind.count, len(kind.panels), squeeze=False)
    assert kind.draw(ax=panels, panels=kind.panels) is figure
    assert figure.axes == panels.ravel().tolist()
    assert all(panel.has_data() or panel.texts for panel in figure.axes)
    assert all(line[0].get_title() for line in panels)
    assert not any(panel.get_title() for line in panels for panel in line[1:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_panel_can_be_left_out(kind: Kind) -> None:
    for name in kind.panels:
        assert kind.draw(panels=name)._repr_png_()[1:4] == b"PNG"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_unknown_panels_are_refused_with_the_known_ones(kind: Kind) -> None:
    known = ", ".join(map(repr, kind.panels[:1]))
    for wrong in (["else"], [], [kind.panels[0]] * 2):
        with pytest.raises(InputError, match=f"expected one or more of {known}"):
            kind.draw(panels=wrong)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_wrong_numbers_of_axes_and_titles_are_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match=f"got {kind.count * len(kind.panels) + 1} axes"):
        kind.draw(ax=Figure().subplots(1, kind.count * len(kind.panels) + 1), panels=kind.panels)
    with pytest.raises(InputError, match=r"got 0 axes"):
        kind.draw(ax=[])
    with pytest.raises(InputError, match=f"got 3 titles, expected one for each of {kind.count}"):
        kind.draw(title=["a", "b", "c"])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_titles_replace_the_verdicts(kind: Kind) -> None:
    mine = [f"mine {k}" for k in range(kind.count)]
    said = [text.get_text() for text in kind.draw(title=mine).texts]
    assert said[: kind.count] == mine or set(mine) <= set(said)
    assert not any(" · " in text for text in said)


def test_the_titles_of_given_axes_are_short_verdicts() -> None:
    panel = Figure().subplots()
    e = make((1, 1, 4, 4), settings={"eps": 0.1, "norm": "inf", "rigorous": True})
    e.plot(ax=panel, panels="map")
    assert panel.get_title() == "class 0 · proven"
    e.plot(ax=panel, panels="map", class_names=["cat"])
    assert panel.get_title() == "cat · proven"
    make((1, 1, 4, 4)).plot(ax=panel, panels="map")
    assert panel.get_title() == "class 0 · proven (floating-point rounding is not covered)"
    e.plot(ax=panel, panels="map", title="")
    assert panel.get_title() == ""


def test_given_axes_keep_the_style_of_their_figure() -> None:
    """A page of our own is white; the axes of the user are not repainted."""
    with matplotlib.rc_context():
        style.use("dark_background")
        panel = Figure().subplots()
        before = panel.get_facecolor()
        make((1, 5), 5).plot(ax=panel)
        assert panel.get_facecolor() == before
        assert panel.lines[0].get_color() == "white"
        assert make((1, 5), 5).plot().axes[0].get_facecolor() != before


@pytest.mark.parametrize("make_one", [make, make_signed])
def test_a_colour_map_is_used_for_maps_overlays_and_bars(make_one: Callable[..., Explanation]) -> None:
    e = make_one((1, 1, 4, 4))
    figure = e.plot(cmap="cividis", panels=["map", "overlay", "scores"])
    heat, overlay, bars = figure.axes[0], figure.axes[1], figure.axes[-1]
    assert heat.images[0].get_cmap().name == "cividis"
    used = overlay.images[1].get_cmap()(np.linspace(0, 1, 7))
    known = colormaps["cividis"](np.linspace(0, 1, 2001))
    assert all(np.abs(known - colour).max(axis=1).min() < 0.01 for colour in used)
    assert all(np.abs(known - np.array(bar.get_facecolor())).max(axis=1).min() < 0.01 for bar in bars.patches)
    assert not any("red:" in text.get_text() for text in figure.texts)
    with pytest.raises(InputError, match="got cmap='nothing', expected the name of a matplotlib colour map"):
        e.plot(cmap="nothing")


def test_rcparams_determine_colours_width_and_text() -> None:
    plain = make((1, 1, 4, 4)).plot()
    assert plain.get_figwidth() == PAGE_WIDTH
    changed: Any = {"image.cmap": "cividis", "figure.figsize": (5.0, 1.0), "font.size": 20.0}
    with matplotlib.rc_context(changed):
        figure = make((1, 1, 4, 4)).plot()
        assert figure.get_figwidth() == 5.0
        assert figure.axes[1].images[0].get_cmap().name == "cividis"
        assert figure.texts[0].get_fontsize() == pytest.approx(2 * plain.texts[0].get_fontsize())
        assert make_signed((1, 1, 4, 4)).plot().axes[1].images[0].get_cmap().name == "RdBu_r"
        assert make((9, 7), 7).summary().get_figwidth() == 5.0


# Machado, Oliveira and Fernandes (2009): linear RGB as seen without one of the three kinds of cones.
DEFICIENCIES: dict[str, list[float]] = {
    "none": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "protanopia": [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
    "deuteranopia": [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881],
    "tritanopia": [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900],
}


def seen(rgb: Array, deficiency: str) -> Array:
    """Return CIELAB coordinates of colours (K, 3) as a person with the deficiency sees them."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = linear @ np.reshape(DEFICIENCIES[deficiency], (3, 3)).T
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = np.clip(linear, 0, 1) @ xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def readable(name: str, signed: bool, deficiency: str) -> bool:
    """Return whether lightness orders the scores of each sign, and the two signs have different colours."""
    lab = seen(colormaps[name](np.linspace(0, 1, 33))[:, :3], deficiency)
    light = np.diff(lab[:, 0])
    if not signed:
        return bool((light > 0).all())
    apart = np.linalg.norm(lab[:13] - lab[:19:-1], axis=1)  # equal sizes of both signs, without the pale ones
    return bool((light[:15] > 0).all() and (light[17:] < 0).all() and (apart > 15).all())


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_default_colour_maps_are_readable_without_some_colours(deficiency: str) -> None:
    assert readable(colours(signed=False).name, False, deficiency)
    assert readable(colours(signed=True).name, True, deficiency)
    lines = seen(np.array([matplotlib.colors.to_rgb(colour) for colour in LINE_COLOURS[:2]]), deficiency)
    assert np.linalg.norm(lines[0] - lines[1]) > 30


def test_other_colour_maps_would_not_be() -> None:
    """The test above can fail."""
    assert not readable("jet", False, "none")
    assert not readable("RdYlGn", True, "deuteranopia")


def test_normalised_images_are_shown_as_they_were() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0))
    e = make((1, 3, 4, 4))
    x = (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    normalised = Explanation(**{**vars(e), "x": x[None]})
    shown = np.asarray(normalised.plot(mean=mean, std=torch.tensor(std)).axes[0].images[0].get_array())
    np.testing.assert_allclose(shown, pixels.movedim(0, 2).numpy(), atol=1e-6)
    assert np.abs(np.asarray(normalised.plot().axes[0].images[0].get_array()) - shown).max() > 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": (0.5, 0.5), "std": 0.2}, "expected a number or one for each of 3 channels"),
        ({"mean": 0.5, "std": 0.0}, "and std > 0"),
        ({"mean": 128.0, "std": 64.0}, r"x · std \+ mean is from 1\d\d to 1\d\d, expected 0 to 1"),
    ],
)
def test_a_wrong_normalisation_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make((1, 3, 4, 4)).plot(**options)


def test_no_option_means_the_defaults() -> None:
    assert (Look().chosen(["a", "b"]), Look().chosen(["a", "b"], ["b"])) == (["a", "b"], ["b"])
    assert Look(panels=["b", "a"]).chosen(["a", "b"]) == ["b", "a"]
    assert (Look().heading("x"), Look(title="y").heading("x")) == ("x", "y")
