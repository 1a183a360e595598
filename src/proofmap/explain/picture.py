"""Explanations as figures: the input, the map and both together; a bar chart where there is no image.

Nothing here touches pyplot: a figure belongs to whoever asked for it.
All lengths are in inches, measured from the upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from proofmap.errors import InputError
from proofmap.explain.explanation import Explanation
from proofmap.explain.headline import caption, group_name, selection, title
from proofmap.explain.overlay import Array, bar_colour, colours, ends, numbers, overlaid, picture_of, pixels_of

__all__ = ["PLAIN", "ROWS", "Picture", "draw"]

ROWS = 16  # samples in one figure
BARS = 20  # bars of one sample
_DPI = 110
_WIDTH = 7.55
_MARGIN = 0.2
_PANEL = 2.05  # the width of an image
_GAP = 0.2
_BAR = 0.1  # the width of a colour bar
_LINE = 1.35 / 72  # the height of a line of text, for each point of its size
_TITLE, _SMALL = 9.5, 7.5  # sizes of text in points
# A style of the user's, a dark one perhaps, must not reach a figure that is white,
# and a dollar sign in a name starts no formula.
PLAIN: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), "inherit"),
    **dict.fromkeys(("text.usetex", "text.parse_math", "axes.grid"), False),
    **dict.fromkeys(("figure.autolayout", "figure.constrained_layout.use"), False),
    "axes.facecolor": "white",
    "image.origin": "upper",
}


class Picture(Figure):
    """A figure that a notebook shows by itself, on white whatever the page's colour."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        FigureCanvasAgg(self)
        self.savefig(buffer, format="png", dpi=_DPI, facecolor="white", edgecolor="none", bbox_inches=None)
        return buffer.getvalue()


def draw(
    explanation: Explanation, columns: Sequence[str] | None = None, class_names: Sequence[str] | None = None
) -> Picture:
    """One row a sample, at most 16: picture, heat map and overlay; for inputs that are no images, the largest scores.

    Samples (H, W) and (C, H, W) are images; with C other than 1 and 3 the mean over the channels is shown. A map
    without signs has a colour scale of its own, from 0; maps with signs share one, symmetric about 0.
    columns: names for the variables of an input that is no image. class_names: names for the classes. By default those
    of the origin.
    """
    shape = explanation.x.shape[1:]
    image = len(shape) in (2, 3)
    origin = explanation.origin
    if origin is not None:
        columns = origin.columns if columns is None and not image else columns
        class_names = origin.classes if class_names is None else class_names
    if columns is not None and (image or len(columns) != shape.numel()):
        expected = "none: these are images" if image else str(shape.numel())
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(shape)}, expected {expected}")
    labels = [label for k in range(len(explanation)) if (label := explanation.label(k)) is not None]
    highest = max(int(torch.maximum(explanation.target, explanation.predicted).max()), *labels, 0)
    if class_names is not None and len(class_names) <= highest:
        raise InputError(f"got {len(class_names)} names for the classes, expected one for each up to class {highest}")
    shown = explanation if len(explanation) <= ROWS else explanation[:ROWS]
    left_out = len(explanation) - len(shown)
    note = f"the first {ROWS} of {len(explanation)} samples: explanation[{ROWS}:].plot() shows more" if left_out else ""
    with matplotlib.rc_context(PLAIN):
        titles = [_fit(title(shown, k, class_names), _WIDTH - 2 * _MARGIN, _TITLE) for k in range(len(shown))]
        return _images(shown, titles, note) if image else _charts(shown, titles, note, columns)


def _images(e: Explanation, titles: list[str], note: str) -> Picture:
    pictures = [picture_of(sample) for sample in e.x]
    maps = [pixels_of(sample) for sample in e.attributions]
    ratio = maps[0].shape[1] / maps[0].shape[0]
    tall = min(max(_PANEL / ratio, 0.8), 2.6)
    wide = min(_PANEL, tall * ratio)
    shift = (_PANEL - wide) / 2  # narrow images stand in the middle of their place
    captions = ("input", caption(e), "overlay")
    heights = [_lines(headline, _TITLE) + tall + 0.2 for headline in titles]
    figure = _page(sum(heights) + max(_lines(text, _SMALL) for text in captions) - 0.1, note)
    lefts = (_MARGIN, _MARGIN + _PANEL + _GAP, _WIDTH - _MARGIN - _PANEL)
    top = 0.1
    for picture, values, headline, (low, high), height in zip(pictures, maps, titles, _scales(e), heights, strict=True):
        _write(figure, _MARGIN, top, headline, _TITLE)
        panels = [_panel(figure, left + shift, top + _lines(headline, _TITLE), wide, tall) for left in lefts]
        panels[0].imshow(picture, cmap="gray", vmin=0, vmax=1)
        heat = panels[1].imshow(values, cmap=colours(e.signed), vmin=low, vmax=high, interpolation="nearest")
        panels[2].imshow(overlaid(picture, values, high, e.signed))
        for panel in panels:
            panel.set_xticks([])
            panel.set_yticks([])
        beside = _panel(figure, lefts[1] + shift + wide + 0.08, top + _lines(headline, _TITLE), _BAR, tall)
        below = not e.signed and bool((values < 0).any())
        bar = figure.colorbar(heat, cax=beside, extend="min" if below else "neither", ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=_SMALL, length=2)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        top += height
    for left, text in zip(lefts, captions, strict=True):
        _write(figure, left + _PANEL / 2, top - 0.12, text, _SMALL, ha="center")
    return figure


def _charts(e: Explanation, titles: list[str], note: str, columns: Sequence[str] | None) -> Picture:
    names = columns or [str(k) for k in range(e.x[0].numel())]
    bars = min(BARS, e.scores.shape[1])
    labels: list[list[str]] = []
    order: list[Array] = []
    for k, scores in enumerate(numbers(e.scores)):
        largest = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:bars]
        mask = e.mask[k if len(e.mask) > 1 else 0].flatten().cpu().numpy()
        labels.append([group_name([names[int(i)] for i in np.flatnonzero(mask == group)]) for group in largest])
        order.append(scores[largest])
    left = _MARGIN + 0.1 + max(_width(label, _SMALL) for row in labels for label in row)
    tall = 0.25 + 0.17 * bars
    heights = [_lines(headline, _TITLE) + tall + 0.4 for headline in titles]
    text = f"{caption(e)}\n{selection(e, bars)}"
    figure = _page(sum(heights) + _lines(text, _SMALL) - 0.1, note)
    top = 0.1
    for values, row, headline, scale, height in zip(order, labels, titles, _scales(e), heights, strict=True):
        _write(figure, _MARGIN, top, headline, _TITLE)
        panel = _panel(figure, left, top + _lines(headline, _TITLE), _WIDTH - left - 0.35, tall)
        shades: Any = [bar_colour(value, e.signed) for value in values]
        panel.barh(range(bars), np.nan_to_num(values), color=shades, height=0.7)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_xlim(*_reach(np.nan_to_num(values), scale, e.signed))
        panel.set_ylim(bars - 0.4, -0.6)
        panel.set_yticks(range(bars), row)
        panel.tick_params(labelsize=_SMALL, length=2)
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        panel.spines[["top", "right"]].set_visible(False)
        top += height
    _write(figure, left + (_WIDTH - left - 0.35) / 2, top - 0.15, text, _SMALL, ha="center")
    return figure


def _scales(e: Explanation) -> list[tuple[float, float]]:
    """The ends of the colours of each row: its own from 0, or symmetric and the same for all."""
    scores = numbers(e.scores)  # (N, G)
    return [ends(scores if e.signed else row, e.signed) for row in scores]


def _reach(values: Array, scale: tuple[float, float], signed: bool) -> tuple[float, float]:
    """The ends of an axis of bars: symmetric for scores with signs, else from 0 to the longest."""
    low, high = scale if signed else (min(0.0, values.min()), max(0.0, values.max()))
    return 1.03 * low, 1.03 * (high if low or high else 1.0)


def _page(height: float, note: str) -> Picture:
    """A white figure with the note, if there is one, at its foot."""
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
    """The height that a text needs, with a little air under it."""
    return (text.count("\n") + 1) * size * _LINE + 0.06


def _width(text: str, size: float) -> float:
    scratch = Figure(dpi=_DPI)
    FigureCanvasAgg(scratch)
    return scratch.text(0, 0, text, fontsize=size).get_window_extent().width / _DPI


def _fit(text: str, width: float, size: float) -> str:
    """The text in as few lines as fit into the width."""
    for characters in range(120, 8, -4):
        lines = wrap(text, characters)
        if max(_width(line, size) for line in lines) <= width:
            break
    return "\n".join(lines)
