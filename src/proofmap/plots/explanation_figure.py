"""The figure of an explanation: per sample the image, the map and the overlay, or a bar chart of its scores.

Nothing here uses pyplot: a figure belongs to its caller. All lengths are in inches, from the upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.legend_handler import HandlerTuple
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST, is_series, ranks, searched
from proofmap.plots.figure_page import (
    FIGURE_WIDTH,
    MARGIN,
    PLAIN_STYLE,
    TEXT_SIZE,
    Heading,
    Picture,
    page,
    panel_at,
    text_height,
    text_width,
    write,
)
from proofmap.plots.figure_titles import caption, group_name, selection, title
from proofmap.plots.output_position import CAPTION, mark_output, output_box
from proofmap.plots.overlay import colours, ends, numbers, overlaid, picture_of, pixels_of
from proofmap.plots.score_chart import Bars, bars_of, draw_bars, legend, mark
from proofmap.plots.time_series import draw_series, reading
from proofmap.text.group_places import largest

MAX_ROWS = 16  # samples in one figure
MAX_BARS = 20  # bars of one sample
_IMAGE_WIDTH = 2.05  # inches
_IMAGE_GAP = 0.2
_COLOUR_BAR_WIDTH = 0.1
_LEGEND_HEIGHT = 0.3


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
    shown = explanation if len(explanation) <= MAX_ROWS else explanation[:MAX_ROWS]
    left_out = len(explanation) - len(shown)
    note = (
        f"the first {MAX_ROWS} of {len(explanation)} samples: explanation[{MAX_ROWS}:].plot() shows more"
        if left_out
        else ""
    )
    with matplotlib.rc_context(PLAIN_STYLE):
        given = headings or [Heading(title(shown, k, class_names)) for k in range(len(shown))]
        fitted = [heading.fitted() for heading in given[:MAX_ROWS]]
        if series:
            return _series(shown, fitted, note)
        return _images(shown, fitted, note) if image else _charts(shown, fitted, note, columns)


def _images(e: Explanation, headings: list[Heading], note: str) -> Picture:
    pictures = [picture_of(sample) for sample in e.x]
    maps = [pixels_of(sample) for sample in e.attributions]
    ratio = maps[0].shape[1] / maps[0].shape[0]
    tall = min(max(_IMAGE_WIDTH / ratio, 0.8), 2.6)
    wide = min(_IMAGE_WIDTH, tall * ratio)
    shift = (_IMAGE_WIDTH - wide) / 2  # centres narrow images
    box = output_box(e.settings, *maps[0].shape)
    captions = ("input" if box is None else CAPTION, caption(e), "overlay")
    charts = _largest(e, MAX_LARGEST) if searched(e) or e.errors is not None else []
    said = max(text_height(text, TEXT_SIZE) for text in captions)
    below = said + _chart_height(charts) if charts else 0.0
    heights = [heading.height + tall + below + 0.2 for heading in headings]
    figure = page(sum(heights) - 0.1 + (_LEGEND_HEIGHT if charts else said), note)
    lefts = (MARGIN, MARGIN + _IMAGE_WIDTH + _IMAGE_GAP, FIGURE_WIDTH - MARGIN - _IMAGE_WIDTH)
    top = 0.1
    for k, (picture, values, heading, scale) in enumerate(zip(pictures, maps, headings, _scales(e), strict=True)):
        low, high = scale
        heading.write(figure, top)
        under = top + heading.height
        panels = [panel_at(figure, left + shift, under, wide, tall) for left in lefts]
        panels[0].imshow(picture, cmap="gray", vmin=0, vmax=1)
        heat = panels[1].imshow(values, cmap=colours(e.signed), vmin=low, vmax=high, interpolation="nearest")
        panels[2].imshow(overlaid(picture, values, high, e.signed))
        if box is not None:
            mark_output(panels, box)
        for panel in panels:
            panel.set_xticks([])
            panel.set_yticks([])
        beside = panel_at(figure, lefts[1] + shift + wide + 0.08, under, _COLOUR_BAR_WIDTH, tall)
        cut = not e.signed and bool((values < 0).any())
        bar = figure.colorbar(heat, cax=beside, extend="min" if cut else "neither", ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=TEXT_SIZE, length=2)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        if charts or k == len(e) - 1:
            for left, text in zip(lefts, captions, strict=True):
                write(figure, left + _IMAGE_WIDTH / 2, under + tall + 0.08, text, TEXT_SIZE, ha="center")
        if charts:
            if searched(e):
                mark(panels[1], _mask(e, k), ranks(e, k))
            _chart(figure, under + tall + said + 0.1, charts, k, scale, e.signed)
        top += heights[k]
    if charts:
        _key(figure, top - 0.15, charts, e)
    return figure


def _charts(e: Explanation, headings: list[Heading], note: str, columns: Sequence[str] | None) -> Picture:
    charts = _largest(e, MAX_BARS, columns or [str(k) for k in range(e.x[0].numel())], valued=columns is not None)
    known = charts[0][0].intervals is not None
    heights = [heading.height + _chart_height(charts) + 0.15 for heading in headings]
    text = f"{caption(e)}\n{selection(e, len(charts[0][1]))}"
    figure = page(sum(heights) + text_height(text, TEXT_SIZE) - 0.1 + _LEGEND_HEIGHT * known, note)
    top = 0.1
    for k, (heading, scale) in enumerate(zip(headings, _scales(e), strict=True)):
        heading.write(figure, top)
        _chart(figure, top + heading.height, charts, k, scale, e.signed)
        top += heights[k]
    left = _beside(charts)
    write(figure, left + (FIGURE_WIDTH - left - 0.35) / 2, top - 0.15, text, TEXT_SIZE, ha="center")
    if known:
        _key(figure, top - 0.15 + text_height(text, TEXT_SIZE), charts, e)
    return figure


def _series(e: Explanation, headings: list[Heading], note: str) -> Picture:
    wide, tall, low = FIGURE_WIDTH - 2 * MARGIN - 0.45, 1.1, 0.75
    heights = [heading.height + tall + low + 0.35 for heading in headings]
    text = f"{caption(e)}\n{reading(e)}"
    figure = page(sum(heights) + text_height(text, TEXT_SIZE), note)
    top = 0.1
    for k, (heading, scale) in enumerate(zip(headings, _scales(e), strict=True)):
        heading.write(figure, top)
        under = top + heading.height
        above = panel_at(figure, MARGIN + 0.4, under, wide, tall)
        below = panel_at(figure, MARGIN + 0.4, under + tall + 0.06, wide, low)
        draw_series(above, below, e, k, scale)
        for panel in (above, below):
            panel.tick_params(labelsize=TEXT_SIZE, length=2)
        top += heights[k]
    write(figure, FIGURE_WIDTH / 2, top, text, TEXT_SIZE, ha="center")
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
    return MARGIN + 0.1 + max(text_width(label, TEXT_SIZE) for _, labels in charts for label in labels)


def _chart(
    figure: Picture, top: float, charts: list[tuple[Bars, list[str]]], k: int, scale: tuple[float, float], signed: bool
) -> None:
    left = _beside(charts)
    panel = panel_at(figure, left, top, FIGURE_WIDTH - left - 0.35, _chart_height(charts) - 0.25)
    draw_bars(panel, *charts[k], scale, signed)
    panel.tick_params(labelsize=TEXT_SIZE, length=2)


def _key(figure: Picture, top: float, charts: list[tuple[Bars, list[str]]], e: Explanation) -> None:
    """Draw the legend of solid and hatched bars, outlines and whiskers."""
    found = [bars.ranks for bars, _ in charts if bars.ranks is not None]
    handles, texts = legend(found, e.signed, outlined=e.x.ndim in (3, 4))
    at = (0.5, 1 - top / figure.get_figheight())
    look: Any = {
        "fontsize": TEXT_SIZE,
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
