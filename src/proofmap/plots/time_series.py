"""Figures of time series with windows: the series shaded by its scores, and a bar for the score of each window."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import searched
from proofmap.plots.overlay import LINE_COLOURS, bar_colour, colours, numbers
from proofmap.plots.score_chart import MAX_WHISKER_RATIO, bars_of

_MAX_SHADE = 0.55  # position of the largest score in the colour map behind the series


def draw_series(above: Axes, below: Axes, e: Explanation, k: int, scale: tuple[float, float]) -> None:
    """Draw the channels of sample k over time, and below them the windows' scores; scale: the range of the scores."""
    values = numbers(e.x[k]).reshape(-1, e.x.shape[-1])  # (C, T)
    mask = e.mask[k if len(e.mask) > 1 else 0].cpu().numpy().reshape(-1, e.x.shape[-1])[0]
    groups = np.unique(mask).tolist()
    bars = bars_of(e, k, groups, searched(e))
    low, high = scale
    for group, score, solid in zip(groups, np.nan_to_num(bars.values), bars.solid, strict=True):
        steps = np.flatnonzero(mask == group)
        start, stop = float(steps.min()) - 0.5, float(steps.max()) + 0.5
        share = float(np.clip((score - low) / (high - low), 0, 1))
        colour = colours(signed=True)(share) if e.signed else colormaps["Purples"](_MAX_SHADE * share)
        above.axvspan(start, stop, color=colour, linewidth=0)
        paint: Any = bar_colour(score, e.signed)
        look: Any = {"color": paint} if solid else {"facecolor": "white", "edgecolor": paint, "hatch": "//////"}
        below.bar((start + stop) / 2, score, 0.9 * (stop - start), **look)
    for channel, line in enumerate(values):
        above.plot(
            line, color="black" if len(values) == 1 else LINE_COLOURS[channel % len(LINE_COLOURS)], linewidth=1.0
        )
    if bars.intervals is not None:
        centres = np.array([np.flatnonzero(mask == group).mean() for group in groups])
        most = MAX_WHISKER_RATIO * max(-low, high)
        first, last = np.clip(bars.intervals, -most, most).T
        look = {"color": "black", "linewidth": 1.1, "path_effects": [withStroke(linewidth=2.6, foreground="white")]}
        below.vlines(centres, first, last, zorder=3, **look)
        for ends in (first, last):
            below.hlines(ends, centres - 0.8, centres + 0.8, zorder=3, **look)
    below.axhline(0, color="black", linewidth=0.8)
    for panel in (above, below):
        panel.set_xlim(-0.5, len(mask) - 0.5)
        panel.spines[["top", "right"]].set_visible(False)
    above.set_xticks([])
    below.locator_params(axis="y", nbins=3)


def reading(e: Explanation) -> str:
    """Return a sentence that explains the figure."""
    bars = "bars: the score of each window"
    if not searched(e):
        return f"{bars}, also shown by the shade of the series"
    return f"{bars}, solid if proven to be among those that matter most; whiskers: proven interval of the true score"
