"""Figures of time series with windows: the series shaded by its scores, and a bar for the score of each window."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import searched
from proofmap.plots.figure_look import LINE_COLOURS, Look, line_colour
from proofmap.plots.overlay import numbers
from proofmap.plots.score_chart import MAX_WHISKER_RATIO, Bars, bar_style, bars_of

_MAX_SHADE = 0.55  # position of the largest score in the colour map behind the series


def draw_series(panel: Axes, e: Explanation, k: int, scale: tuple[float, float], look: Look) -> None:
    """Draw the channels of sample k over time, with each window in the colour of its score.

    scale: the range of the scores.
    """
    values = numbers(e.x[k]).reshape(-1, e.x.shape[-1])  # (C, T)
    mask, bars = _windows(e, k)
    low, high = scale
    for group, score in zip(bars.groups, np.nan_to_num(bars.values), strict=True):
        steps = np.flatnonzero(mask == group)
        share = float(np.clip((score - low) / (high - low), 0, 1))
        colour = shade(share, e.signed, look)
        panel.axvspan(float(steps.min()) - 0.5, float(steps.max()) + 0.5, color=colour, linewidth=0)
    for channel, line in enumerate(values):
        panel.plot(
            line, color=line_colour() if len(values) == 1 else LINE_COLOURS[channel % len(LINE_COLOURS)], linewidth=1.0
        )
    panel.set_xlim(-0.5, len(mask) - 0.5)
    panel.spines[["top", "right"]].set_visible(False)


def draw_windows(panel: Axes, e: Explanation, k: int, scale: tuple[float, float], look: Look) -> None:
    """Draw the score of each window of sample k as a bar over its steps."""
    mask, bars = _windows(e, k)
    low, high = scale
    for group, score, solid in zip(bars.groups, np.nan_to_num(bars.values), bars.solid, strict=True):
        steps = np.flatnonzero(mask == group)
        start, stop = float(steps.min()) - 0.5, float(steps.max()) + 0.5
        panel.bar((start + stop) / 2, score, 0.9 * (stop - start), **bar_style(look.bar(score, e.signed), solid))
    if bars.intervals is not None:
        centres = np.array([np.flatnonzero(mask == group).mean() for group in bars.groups])
        most = MAX_WHISKER_RATIO * max(-low, high)
        first, last = np.clip(bars.intervals, -most, most).T
        line: Any = {
            "color": "black",
            "linewidth": 1.1,
            "path_effects": [withStroke(linewidth=2.6, foreground="white")],
        }
        panel.vlines(centres, first, last, zorder=3, **line)
        for ends in (first, last):
            panel.hlines(ends, centres - 0.8, centres + 0.8, zorder=3, **line)
    panel.axhline(0, color=line_colour(), linewidth=0.8)
    panel.set_xlim(-0.5, len(mask) - 0.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=3)


def _windows(e: Explanation, k: int) -> tuple[NDArray[Any], Bars]:
    """Return the window of each step (T,), and the scores of the windows."""
    mask = e.mask[k if len(e.mask) > 1 else 0].cpu().numpy().reshape(-1, e.x.shape[-1])[0]
    return mask, bars_of(e, k, np.unique(mask).tolist(), searched(e))


def shade(share: float, signed: bool, look: Look) -> Any:
    """Return the colour behind a text or a line: pale for unsigned scores near 0, so that black stays readable."""
    if signed or look.cmap is not None:
        return look.colours(signed)(share)
    return colormaps["Purples"](_MAX_SHADE * share)


def reading(e: Explanation) -> str:
    """Return a sentence that explains the figure."""
    bars = "bars: the score of each window"
    if not searched(e):
        return f"{bars}, also shown by the shade of the series"
    return f"{bars}, solid if proven to be among those that matter most; whiskers: proven interval of the true score"
