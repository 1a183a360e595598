"""The figure of an explanation: per sample the image, the map and the overlay, or a bar chart of its scores.

Nothing here uses pyplot: a figure belongs to its caller. All lengths are in inches, from the upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST, is_series, ranks, searched
from proofmap.plots.figure_titles import caption, group_name, selection, title
from proofmap.plots.overlay import colours, ends, numbers, overlaid, picture_of, pixels_of
from proofmap.plots.score_chart import Bars, bars_of, draw_bars, legend, mark
from proofmap.plots.time_series import draw_series, reading
from proofmap.text.group_places import largest

ROWS = 16  # samples in one figure
BARS = 20  # bars of one sample
_DPI = 110
_WIDTH = 7.55
_MARGIN = 0.2
_PANEL = 2.05  # the width of an image
_GAP = 0.2
_BAR = 0.1  # the width of a colour bar
_LINE_HEIGHT = 1.35 / 72  # inches for each point of the text size
_LEGEND_HEIGHT = 0.3
_TITLE, _SMALL = 9.5, 7.5  # sizes of text in points
# The user's matplotlib style must not change the white figure, and a dollar sign in a name does not start a formula.
PLAIN: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), "inherit"),
    **dict.fromkeys(("text.usetex", "text.parse_math", "axes.grid"), False),
    **dict.fromkeys(("figure.autolayout", "figure.constrained_layout.use"), False),
    "axes.facecolor": "white",
    "image.origin": "upper",
}


class Picture(Figure):
    """A matplotlib figure that displays itself in notebooks, on a white background."""

    if TYPE_CHECKING:  # matplotlib does not state the type of `fname`, which strict type checkers report

        def savefig(
            self, fname: str | PathLike[str] | IO[bytes], *, transparent: bool | None = None, **kwargs: Any
        ) -> None: ...

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        FigureCanvasAgg(self)
        self.savefig(buffer, format="png", dpi=_DPI, facecolor="white", edgecolor="none", bbox_inches=None)
        return buffer.getvalue()


@dataclass(frozen=True)
class Heading:
    """The text above one sample: a title, and a smaller subtitle, fitted to the width of the figure."""

    title: str
    subtitle: str = ""

    def fitted(self) -> Heading:
        """Return the heading with the line breaks that the width needs."""
        width = _WIDTH - 2 * _MARGIN
        return Heading(_fit(self.title, width, _TITLE), _fit(self.subtitle, width, _SMALL) if self.subtitle else "")

    @property
    def height(self) -> float:
        return _lines(self.title, _TITLE) + (_lines(self.subtitle, _SMALL) if self.subtitle else 0.0)

    def write(self, figure: Picture, top: float) -> None:
        _write(figure, _MARGIN, top, self.title, _TITLE)
        if self.subtitle:
            _write(figure, _MARGIN, top + _lines(self.title, _TITLE), self.subtitle, _SMALL, color="0.35")


def draw(
    explanation: Explanation,
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    headings: Sequence[Heading] | None = None,
) -> Picture:
    """Draw one row per sample, at most 16: image, heat map and overlay; for other inputs, the largest scores as bars.

    If the scores have proven intervals, as with pm.bounds.Exact(), the largest scores and their intervals are also
    shown below an image. Groups that are proven to matter most are outlined in the map. Scores that are means, as with
    pm.SmoothEVA, are shown with 95 % intervals, and ties are hatched.

    Samples (H, W) and (C, H, W) are images; with C other than 1 and 3 the mean over the channels is shown. An unsigned
    map has its own colour scale, from 0. Signed maps share one scale, symmetric about 0. A series whose groups are
    windows is drawn over time.

    columns: the names of the variables of an input that is not an image, shown with their values. class_names: the
    names of the classes. By default both are those of the origin. headings: the text above each sample, by default its
    verdict.
    """
    shape = explanation.x.shape[1:]
    series = is_series(explanation)
    image = len(shape) in (2, 3) and not series
    origin = explanation.origin
    if origin is not None:
        columns = origin.columns if columns is None and not image else columns
        class_names = origin.classes if class_names is None else class_names
    if columns is not None and (image or series or len(columns) != shape.numel()):
        expected = "none: these are images" if image else "none: its groups are windows" if series else shape.numel()
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(shape)}, expected {expected}")
    labels = [label for k in range(len(explanation)) if (label := explanation.label(k)) is not None]
    highest = max(int(torch.maximum(explanation.target, explanation.predicted).max()), *labels, 0)
    if class_names is not None and len(class_names) <= highest:
        raise InputError(f"got {len(class_names)} names for the classes, expected one for each up to class {highest}")
    shown = explanation if len(explanation) <= ROWS else explanation[:ROWS]
    left_out = len(explanation) - len(shown)
    note = f"the first {ROWS} of {len(explanation)} samples: explanation[{ROWS}:].plot() shows more" if left_out else ""
    with matplotlib.rc_context(PLAIN):
        given = headings or [Heading(title(shown, k, class_names)) for k in range(len(shown))]
        fitted = [heading.fitted() for heading in given[:ROWS]]
        if series:
            return _series(shown, fitted, note)
        return _images(shown, fitted, note) if image else _charts(shown, fitted, note, columns)


def _images(e: Explanation, headings: list[Heading], note: str) -> Picture:
    pictures = [picture_of(sample) for sample in e.x]
    maps = [pixels_of(sample) for sample in e.attributions]
    ratio = maps[0].shape[1] / maps[0].shape[0]
    tall = min(max(_PANEL / ratio, 0.8), 2.6)
    wide = min(_PANEL, tall * ratio)
    shift = (_PANEL - wide) / 2  # centres narrow images
    captions = ("input", caption(e), "overlay")
    charts = _largest(e, MAX_LARGEST) if searched(e) or e.errors is not None else []
    said = max(_lines(text, _SMALL) for text in captions)
    below = said + _chart_height(charts) if charts else 0.0
    heights = [heading.height + tall + below + 0.2 for heading in headings]
    figure = _page(sum(heights) - 0.1 + (_LEGEND_HEIGHT if charts else said), note)
    lefts = (_MARGIN, _MARGIN + _PANEL + _GAP, _WIDTH - _MARGIN - _PANEL)
    top = 0.1
    for k, (picture, values, heading, scale) in enumerate(zip(pictures, maps, headings, _scales(e), strict=True)):
        low, high = scale
        heading.write(figure, top)
        under = top + heading.height
        panels = [_panel(figure, left + shift, under, wide, tall) for left in lefts]
        panels[0].imshow(picture, cmap="gray", vmin=0, vmax=1)
        heat = panels[1].imshow(values, cmap=colours(e.signed), vmin=low, vmax=high, interpolation="nearest")
        panels[2].imshow(overlaid(picture, values, high, e.signed))
        for panel in panels:
            panel.set_xticks([])
            panel.set_yticks([])
        beside = _panel(figure, lefts[1] + shift + wide + 0.08, under, _BAR, tall)
        cut = not e.signed and bool((values < 0).any())
        bar = figure.colorbar(heat, cax=beside, extend="min" if cut else "neither", ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=_SMALL, length=2)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        if charts or k == len(e) - 1:
            for left, text in zip(lefts, captions, strict=True):
                _write(figure, left + _PANEL / 2, under + tall + 0.08, text, _SMALL, ha="center")
        if charts:
            if searched(e):
                mark(panels[1], _mask(e, k), ranks(e, k))
            _chart(figure, under + tall + said + 0.1, charts, k, scale, e.signed)
        top += heights[k]
    if charts:
        _key(figure, top - 0.15, charts, e)
    return figure


def _charts(e: Explanation, headings: list[Heading], note: str, columns: Sequence[str] | None) -> Picture:
    charts = _largest(e, BARS, columns or [str(k) for k in range(e.x[0].numel())], valued=columns is not None)
    known = charts[0][0].intervals is not None
    heights = [heading.height + _chart_height(charts) + 0.15 for heading in headings]
    text = f"{caption(e)}\n{selection(e, len(charts[0][1]))}"
    figure = _page(sum(heights) + _lines(text, _SMALL) - 0.1 + _LEGEND_HEIGHT * known, note)
    top = 0.1
    for k, (heading, scale) in enumerate(zip(headings, _scales(e), strict=True)):
        heading.write(figure, top)
        _chart(figure, top + heading.height, charts, k, scale, e.signed)
        top += heights[k]
    left = _beside(charts)
    _write(figure, left + (_WIDTH - left - 0.35) / 2, top - 0.15, text, _SMALL, ha="center")
    if known:
        _key(figure, top - 0.15 + _lines(text, _SMALL), charts, e)
    return figure


def _series(e: Explanation, headings: list[Heading], note: str) -> Picture:
    wide, tall, low = _WIDTH - 2 * _MARGIN - 0.45, 1.1, 0.75
    heights = [heading.height + tall + low + 0.35 for heading in headings]
    text = f"{caption(e)}\n{reading(e)}"
    figure = _page(sum(heights) + _lines(text, _SMALL), note)
    top = 0.1
    for k, (heading, scale) in enumerate(zip(headings, _scales(e), strict=True)):
        heading.write(figure, top)
        under = top + heading.height
        above = _panel(figure, _MARGIN + 0.4, under, wide, tall)
        below = _panel(figure, _MARGIN + 0.4, under + tall + 0.06, wide, low)
        draw_series(above, below, e, k, scale)
        for panel in (above, below):
            panel.tick_params(labelsize=_SMALL, length=2)
        top += heights[k]
    _write(figure, _WIDTH / 2, top, text, _SMALL, ha="center")
    return figure


def _largest(
    e: Explanation, most: int, names: Sequence[str] | None = None, valued: bool = False
) -> list[tuple[Bars, list[str]]]:
    """Return the largest scores of each sample as bars with their labels.

    names: the names of the variables of an input that is not an image; valued: show their values.
    """
    known, found = searched(e), []
    for k, scores in enumerate(numbers(e.scores)):
        mask = _mask(e, k)
        if names is None:
            groups, labels = map(list, zip(*largest(scores, mask, most), strict=True))
        else:
            groups = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:most].tolist()
            own, inside = numbers(e.x[k]).ravel(), [np.flatnonzero(mask.ravel() == group) for group in groups]
            labels = [
                group_name([names[int(i)] for i in each], own[each].tolist() if valued else None) for each in inside
            ]
        found.append((bars_of(e, k, groups, known), labels))
    return found


def _mask(e: Explanation, k: int) -> NDArray[Any]:
    return e.mask[k if len(e.mask) > 1 else 0].cpu().numpy()


def _chart_height(charts: list[tuple[Bars, list[str]]]) -> float:
    return 0.5 + 0.17 * max(len(labels) for _, labels in charts)


def _beside(charts: list[tuple[Bars, list[str]]]) -> float:
    """Return the left edge of the bars: right of the longest label."""
    return _MARGIN + 0.1 + max(_width(label, _SMALL) for _, labels in charts for label in labels)


def _chart(
    figure: Picture, top: float, charts: list[tuple[Bars, list[str]]], k: int, scale: tuple[float, float], signed: bool
) -> None:
    left = _beside(charts)
    panel = _panel(figure, left, top, _WIDTH - left - 0.35, _chart_height(charts) - 0.25)
    draw_bars(panel, *charts[k], scale, signed)
    panel.tick_params(labelsize=_SMALL, length=2)


def _key(figure: Picture, top: float, charts: list[tuple[Bars, list[str]]], e: Explanation) -> None:
    """Draw the legend of solid and hatched bars, outlines and whiskers."""
    found = [bars.ranks for bars, _ in charts if bars.ranks is not None]
    handles, texts = legend(found, e.signed, outlined=e.x.ndim in (3, 4))
    at = (0.5, 1 - top / figure.get_figheight())
    look: Any = {
        "fontsize": _SMALL,
        "frameon": False,
        "numpoints": 2,
        "handlelength": 3.6,
        "handler_map": {tuple: HandlerTuple(None)},
    }
    figure.legend(handles, texts, loc="upper center", bbox_to_anchor=at, ncols=3, **look)


def _scales(e: Explanation) -> list[tuple[float, float]]:
    """Return the colour range of each row: its own from 0, or a symmetric one for all rows."""
    scores = numbers(e.scores)  # (N, G)
    return [ends(scores if e.signed else row, e.signed) for row in scores]


def _page(height: float, note: str) -> Picture:
    """Return a white figure with the note, if there is one, at its bottom."""
    height += 0.1 + (_lines(note, _SMALL) if note else 0.0)
    figure = Picture(figsize=(_WIDTH, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if note:
        _write(figure, _WIDTH / 2, height - _lines(note, _SMALL), note, _SMALL, ha="center", style="italic")
    return figure


def _panel(figure: Picture, left: float, top: float, width: float, height: float) -> Axes:
    whole = figure.get_figheight()
    return figure.add_axes((left / _WIDTH, 1 - (top + height) / whole, width / _WIDTH, height / whole))


def _write(figure: Picture, left: float, top: float, text: str, size: float, **style: Any) -> None:
    at = (left / _WIDTH, 1 - top / figure.get_figheight())
    figure.text(*at, text, fontsize=size, va="top", linespacing=1.25, **style)


def _lines(text: str, size: float) -> float:
    """Return the height of a text, with a small margin below."""
    return (text.count("\n") + 1) * size * _LINE_HEIGHT + 0.06


def _width(text: str, size: float) -> float:
    scratch = Figure(dpi=_DPI)
    FigureCanvasAgg(scratch)
    return scratch.text(0, 0, text, fontsize=size).get_window_extent().width / _DPI


def _fit(text: str, width: float, size: float) -> str:
    """Wrap the text into as few lines as fit into the width."""
    for characters in range(120, 8, -4):
        lines = wrap(text, characters)
        if max(_width(line, size) for line in lines) <= width:
            break
    return "\n".join(lines)
