"""What is proven of scores, drawn: bars with the intervals of their true scores, and outlines around groups of a map.

Solid: proven to be among those that matter most. Hatched, or dashed: not proven to be. Both are seen without colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from proofmap.explainers.explanation import Explanation
from proofmap.plots.outline import outline
from proofmap.plots.overlay import Array, bar_colour, numbers
from proofmap.text.proven_ranks import Ranks, ranks
from proofmap.text.score_ties import between

__all__ = ["BEYOND", "Bars", "bars_of", "draw_bars", "legend", "mark"]

BEYOND = 3.0  # times the longest bar, at which a whisker runs out of the chart
# White on black, which is seen on dark colours and on bright ones: (the line, and the wider one under it).
_PROVEN: Any = ({"color": "white", "linewidth": 1.5}, {"color": "black", "linewidth": 3.0})
_OPEN: Any = ({"color": "white", "linewidth": 1.0, "linestyle": (0, (2, 2))}, {"color": "black", "linewidth": 2.0})


@dataclass(frozen=True, eq=False)
class Bars:
    """The largest scores of one sample, the largest first."""

    groups: tuple[int, ...]
    values: Array  # (B,)
    intervals: Array | None = None  # (B, 2), where both sides were searched
    ranks: Ranks | None = None
    ties: tuple[bool, ...] | None = None  # (B,) of which it is open which is the larger, where scores are means

    @property
    def solid(self) -> list[bool]:
        """Everything, where nothing is told apart."""
        if self.ties is not None:
            return [not tie for tie in self.ties]
        return [self.ranks is None or group in self.ranks.proven for group in self.groups]


def bars_of(e: Explanation, k: int, groups: Sequence[int], known: bool) -> Bars:
    """Those of sample k; known: with what is proven of them."""
    scores = numbers(e.scores[k])[list(groups)]
    if e.errors is not None:
        ends = numbers(between(e.scores[k], e.errors[k]))[list(groups)]
        return Bars(tuple(groups), scores, ends, ties=tuple(e.ties[k][list(groups)].tolist()))
    if not known:
        return Bars(tuple(groups), scores)
    return Bars(tuple(groups), scores, numbers(e.intervals[k])[list(groups)], ranks(e, k))


def draw_bars(panel: Axes, bars: Bars, labels: Sequence[str], scale: tuple[float, float], signed: bool) -> None:
    """One below the other; scale: the ends of the scores, symmetric for scores with signs."""
    values, count = np.nan_to_num(bars.values), len(bars.groups)
    low, high = _reach(values, bars.intervals, scale, signed)
    for at, (value, solid) in enumerate(zip(values, bars.solid, strict=True)):
        colour: Any = bar_colour(value, signed)
        look: Any = {"color": colour} if solid else {"facecolor": "white", "edgecolor": colour, "hatch": "//////"}
        panel.barh(at, value, height=0.7, **look)
    if bars.intervals is not None:
        _whiskers(panel, bars.intervals, low, high)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_xlim(low, high)
    panel.set_ylim(count - 0.4, -0.6)
    panel.set_yticks(range(count), labels)
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    panel.spines[["top", "right"]].set_visible(False)


def _reach(values: Array, intervals: Array | None, scale: tuple[float, float], signed: bool) -> tuple[float, float]:
    """The ends of the axis: symmetric for scores with signs, else from 0 to the longest."""
    low, high = scale if signed else (min(0.0, values.min()), max(0.0, values.max()))
    if intervals is not None:
        most = BEYOND * max(-low, high)
        ends = intervals[np.isfinite(intervals)]
        low, high = max(-most, min(low, *ends)), min(most, max(high, *ends))
        low, high = (-max(-low, high), max(-low, high)) if signed else (low, high)
    return 1.03 * low, 1.03 * (high if low or high else 1.0)


def _whiskers(panel: Axes, intervals: Array, low: float, high: float) -> None:
    """Lines with a stroke at each end; one that leaves the axis has none there."""
    at = np.arange(len(intervals))
    first, last = np.clip(intervals[:, 0], low, high), np.clip(intervals[:, 1], low, high)
    look: Any = {"color": "black", "linewidth": 1.1, "path_effects": [withStroke(linewidth=2.6, foreground="white")]}
    panel.hlines(at, first, last, zorder=3, **look)
    for ends in (intervals[:, 0], intervals[:, 1]):
        inside = (ends >= low) & (ends <= high)
        panel.vlines(ends[inside], at[inside] - 0.22, at[inside] + 0.22, zorder=3, **look)


def mark(panel: Axes, mask: NDArray[Any], found: Ranks) -> None:
    """Outlines in an image (H, W) around the groups of its mask (H, W) or (C, H, W)."""
    for groups, (over, under) in ((found.open, _OPEN), (found.proven, _PROVEN)):
        members = [mask == group for group in groups]
        lines = [line for each in members for line in outline(each if each.ndim == 2 else each.any(0))]
        for look in (under, over):
            ends = list(np.array(lines, dtype=float).reshape(-1, 2, 2) - 0.5)
            cap: Any = "butt" if "linestyle" in look else "projecting"
            panel.add_collection(LineCollection(ends, capstyle=cap, zorder=4, clip_on=False, **look))


def legend(found: Sequence[Ranks], signed: bool, outlined: bool) -> tuple[list[Any], list[str]]:
    """What the looks mean: handles and texts. found: what is proven; nothing where scores are means."""
    colour: Any = bar_colour(1.0, signed)
    solid, hatched = Patch(color=colour), Patch(facecolor="white", edgecolor=colour, hatch="//////")
    whisker = Line2D([], [], color="black", linewidth=1.1, marker="|", markersize=6)
    if not found:
        texts = ["told apart from its neighbours in rank", "a tie", "the mean lies between, with 95 % confidence"]
        return [solid, hatched, whisker], texts
    most = {each.most for each in found}
    noun = found[0].noun
    among = (
        f"among the {most.pop()} {noun}s that matter most" if len(most) == 1 else f"among the {noun}s that matter most"
    )
    handles: list[Any] = [solid, hatched, whisker]
    if outlined:
        handles = [(solid, _sample(_PROVEN)), (hatched, _sample(_OPEN)), whisker]
    return handles, [f"proven to be {among}", "not proven to be", "the true score lies between, proven"]


def _sample(look: Any) -> Line2D:
    over, under = look
    return Line2D([], [], **over, path_effects=[withStroke(linewidth=under["linewidth"], foreground="black")])
