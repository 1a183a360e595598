"""The summary of many explanations in one figure: the mean score of each group, and each sample's score as a dot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_inputs import variable_names
from proofmap.explainers.statements.proven_ranks import searched
from proofmap.inputs.domain import common_beginning
from proofmap.plots.explanation_figure import MAX_BARS
from proofmap.plots.figure_page import PLAIN_STYLE, Picture
from proofmap.plots.figure_titles import caption, group_name
from proofmap.plots.overlay import Array, numbers
from proofmap.plots.score_chart import Bars, draw_bars
from proofmap.text.group_places import place

_WIDTH = 9.0  # inches
_ROW_HEIGHT = 0.26  # inches per group
_TEXT_SIZE = 7.5  # points
_BINS = 80  # bins along the scores: the dots of a bin are drawn side by side
_MAX_OFFSET = 0.38  # the largest distance of a dot from the middle of its row, in row heights
_DOT_DISTANCE = 0.07  # the distance of two dots side by side, in row heights
_COLOUR_MAP = "coolwarm"  # low values are blue, high values are red


def summary(e: Explanation, columns: Sequence[str] | None = None) -> Picture:
    """Draw the groups with the largest mean |score|, at most 20.

    Left: the mean score. If the overlaps were searched from both sides, with the proven interval of the mean true
    score. Right: each sample as a dot at its score. Its colour is the group's mean value in the sample, between the 5th
    and the 95th percentile of the samples.

    columns: the names of the variables of a flat input.
    """
    if len(e.mask) > 1:
        raise InputError(f"got {len(e)} samples with groups of their own, expected the same groups in all of them")
    origin = e.origin
    columns = variable_names(e) if columns is None else columns
    columns = origin.columns if columns is None and origin is not None and e.x.ndim == 2 else columns
    if columns is not None and (e.x.ndim != 2 or len(columns) != e.x.shape[1]):
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(e.x.shape[1:])}")
    scores, mask, x = numbers(e.scores), e.mask[0].cpu().numpy(), numbers(e.x.flatten(1))
    means = np.nan_to_num(np.abs(scores)).mean(axis=0)
    order = np.argsort(-means, kind="stable")[:MAX_BARS]
    inside = [mask == group for group in order]
    named = columns or [str(k) for k in range(x.shape[1])]
    labels = [_label(x[:, each], np.array(named)[each].tolist()) if e.x.ndim == 2 else place(each) for each in inside]
    values = np.stack([x[:, each.ravel()].mean(axis=1) for each in inside], axis=1)
    ends = numbers(e.intervals.mean(dim=0))[order] if searched(e) and not e.signed else None
    with matplotlib.rc_context(PLAIN_STYLE):
        height = _ROW_HEIGHT * len(order) + 1.35
        figure = Picture(figsize=(_WIDTH, height), dpi=110, facecolor="white")
        FigureCanvasAgg(figure)
        low, high, widths = 0.85 / height, 1 - 0.3 / height, (0.27, 0.24, 0.40)
        left = figure.add_axes((widths[0], low, widths[1], high - low))
        bars = Bars(tuple(map(int, order)), means[order], ends)
        draw_bars(left, bars, labels, (0.0, float(means.max()) or 1.0), signed=False)
        left.set_title("mean |score|" if e.signed else "mean score", fontsize=_TEXT_SIZE)
        right = figure.add_axes((widths[0] + widths[1] + 0.02, low, widths[2], high - low))
        _swarm(right, scores[:, order], values)
        right.set_ylim(left.get_ylim())
        right.set_title(f"score of each of {len(e)} samples", fontsize=_TEXT_SIZE)
        _colours(figure, low, high - low)
        for panel in (left, right):
            panel.tick_params(labelsize=_TEXT_SIZE, length=2)
        which = (
            f"the {len(order)} largest of {scores.shape[1]} groups" if len(order) < scores.shape[1] else "all groups"
        )
        proven = "; whiskers: proven interval of the mean of the true scores" if ends is not None else ""
        note = f"{caption(e)}\n{which}{proven}"
        figure.text(0.5, 0.06 / height, note, fontsize=_TEXT_SIZE, ha="center", va="bottom", linespacing=1.25)
    return figure


def _label(values: Array, names: list[str]) -> str:
    """Name a column, or a block that is one-hot in all samples by the common prefix of its columns."""
    block = len(names) > 1 and bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all())
    return group_name([common_beginning(names)] if block else names)


def _swarm(panel: Axes, scores: Array, values: Array) -> None:
    """Draw scores (N, B) as dots, one row per group, with equal scores side by side."""
    known = np.nan_to_num(scores)
    panel.axvline(0, color="black", linewidth=0.8)
    edges = np.linspace(known.min(), known.max() or 1.0, _BINS)
    for row in range(known.shape[1]):
        low, high = np.percentile(values[:, row], (5, 95))
        share = np.clip((values[:, row] - low) / (high - low), 0, 1) if high > low else None
        look: Any = {"c": "0.55"} if share is None else {"c": share, "cmap": _COLOUR_MAP, "vmin": 0, "vmax": 1}
        panel.scatter(known[:, row], row + _aside(np.digitize(known[:, row], edges)), s=7, linewidths=0, **look)
    panel.set_yticks([])
    panel.spines[["top", "right", "left"]].set_visible(False)


def _aside(bins: Any) -> Array:
    """Return the offset of each dot from the middle of its row: the dots of a bin alternate 0, 1, -1, 2, -2, ..."""
    offsets = np.zeros(len(bins))
    for each in np.unique(bins):
        members = np.flatnonzero(bins == each)
        rank = np.arange(len(members))
        side = (rank + 1) // 2 * np.where(rank % 2, 1.0, -1.0)
        offsets[members] = side * min(_DOT_DISTANCE, _MAX_OFFSET / max(1.0, np.abs(side).max()))
    return offsets


def _colours(figure: Picture, low: float, tall: float) -> None:
    beside = figure.add_axes((0.945, low, 0.012, tall))
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colormaps[_COLOUR_MAP]), cax=beside, ticks=[0, 1])
    bar.ax.set_yticklabels(["low", "high"], fontsize=_TEXT_SIZE)
    bar.set_label("value in the sample", fontsize=_TEXT_SIZE, labelpad=-8)
    bar.outline.set_visible(False)
