"""Many explanations in one picture: how much each group matters in the mean, and in every sample."""

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
from proofmap.inputs.domain import beginning
from proofmap.plots.explanation_figure import BARS, PLAIN, Picture
from proofmap.plots.overlay import Array, numbers
from proofmap.plots.score_chart import Bars, draw_bars
from proofmap.text.figure_titles import caption, group_name
from proofmap.text.group_places import place
from proofmap.text.proven_ranks import searched

__all__ = ["summary"]

_WIDTH = 9.0  # inches
_ROW = 0.26  # the height of a group
_SMALL = 7.5  # points
_BINS = 80  # along the scores, in which dots stand side by side
_ROOM = 0.38  # of a row's height, to either side, for dots
_STEP = 0.07  # between two dots side by side
_COLOURS = "coolwarm"  # of values from low to high


def summary(e: Explanation, columns: Sequence[str] | None = None) -> Picture:
    """The groups with the largest mean |score|, at most 20. Left: that mean, with the interval in which the mean of the
    true scores lies where both sides of the overlaps were searched. Right: each sample as a dot at its score, coloured
    by the group's mean value in it, from the 5th percentile of the samples to the 95th.

    columns: names for the variables of a flat input.
    """
    if len(e.mask) > 1:
        raise InputError(f"got {len(e)} samples with groups of their own, expected the same groups in all of them")
    origin = e.origin
    columns = origin.columns if columns is None and origin is not None and e.x.ndim == 2 else columns
    if columns is not None and (e.x.ndim != 2 or len(columns) != e.x.shape[1]):
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(e.x.shape[1:])}")
    scores, mask, x = numbers(e.scores), e.mask[0].cpu().numpy(), numbers(e.x.flatten(1))
    means = np.nan_to_num(np.abs(scores)).mean(axis=0)
    order = np.argsort(-means, kind="stable")[:BARS]
    inside = [mask == group for group in order]
    named = columns or [str(k) for k in range(x.shape[1])]
    labels = [_label(x[:, each], np.array(named)[each].tolist()) if e.x.ndim == 2 else place(each) for each in inside]
    values = np.stack([x[:, each.ravel()].mean(axis=1) for each in inside], axis=1)
    ends = numbers(e.intervals.mean(dim=0))[order] if searched(e) and not e.signed else None
    with matplotlib.rc_context(PLAIN):
        height = _ROW * len(order) + 1.35
        figure = Picture(figsize=(_WIDTH, height), dpi=110, facecolor="white")
        FigureCanvasAgg(figure)
        low, high, widths = 0.85 / height, 1 - 0.3 / height, (0.27, 0.24, 0.40)
        left = figure.add_axes((widths[0], low, widths[1], high - low))
        bars = Bars(tuple(map(int, order)), means[order], ends)
        draw_bars(left, bars, labels, (0.0, float(means.max()) or 1.0), signed=False)
        left.set_title("mean |score|" if e.signed else "mean score", fontsize=_SMALL)
        right = figure.add_axes((widths[0] + widths[1] + 0.02, low, widths[2], high - low))
        _swarm(right, scores[:, order], values)
        right.set_ylim(left.get_ylim())
        right.set_title(f"score of each of {len(e)} samples", fontsize=_SMALL)
        _colours(figure, low, high - low)
        for panel in (left, right):
            panel.tick_params(labelsize=_SMALL, length=2)
        which = (
            f"the {len(order)} largest of {scores.shape[1]} groups" if len(order) < scores.shape[1] else "all groups"
        )
        proven = "; whiskers: the mean of the true scores lies between, proven" if ends is not None else ""
        note = f"{caption(e)}\n{which}{proven}"
        figure.text(0.5, 0.06 / height, note, fontsize=_SMALL, ha="center", va="bottom", linespacing=1.25)
    return figure


def _label(values: Array, names: list[str]) -> str:
    """The name of a column, or of a block that is one-hot in all samples, by what the names of its columns share."""
    block = len(names) > 1 and bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all())
    return group_name([beginning(names)] if block else names)


def _swarm(panel: Axes, scores: Array, values: Array) -> None:
    """Scores (N, B) as dots, a row a group, side by side where they are alike."""
    known = np.nan_to_num(scores)
    panel.axvline(0, color="black", linewidth=0.8)
    edges = np.linspace(known.min(), known.max() or 1.0, _BINS)
    for row in range(known.shape[1]):
        low, high = np.percentile(values[:, row], (5, 95))
        share = np.clip((values[:, row] - low) / (high - low), 0, 1) if high > low else None
        look: Any = {"c": "0.55"} if share is None else {"c": share, "cmap": _COLOURS, "vmin": 0, "vmax": 1}
        panel.scatter(known[:, row], row + _aside(np.digitize(known[:, row], edges)), s=7, linewidths=0, **look)
    panel.set_yticks([])
    panel.spines[["top", "right", "left"]].set_visible(False)


def _aside(bins: Any) -> Array:
    """How far each dot stands off the middle of its row, by how many of its bin came before it: 0, 1, -1, 2, -2, ..."""
    offsets = np.zeros(len(bins))
    for each in np.unique(bins):
        members = np.flatnonzero(bins == each)
        rank = np.arange(len(members))
        side = (rank + 1) // 2 * np.where(rank % 2, 1.0, -1.0)
        offsets[members] = side * min(_STEP, _ROOM / max(1.0, np.abs(side).max()))
    return offsets


def _colours(figure: Picture, low: float, tall: float) -> None:
    beside = figure.add_axes((0.945, low, 0.012, tall))
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colormaps[_COLOURS]), cax=beside, ticks=[0, 1])
    bar.ax.set_yticklabels(["low", "high"], fontsize=_SMALL)
    bar.set_label("value in the sample", fontsize=_SMALL, labelpad=-8)
    bar.outline.set_visible(False)
