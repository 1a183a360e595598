"""Bar charts of scores with their intervals, and outlines around the groups of a map.

Solid: proven to be among the groups that matter most. Hatched or dashed: not proven. Both are visible without colours.
"""

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
from proofmap.explainers.proven_scores import between
from proofmap.explainers.statements.proven_ranks import Ranks, ranks
from proofmap.plots.figure_look import Look, line_colour
from proofmap.plots.outline import outline
from proofmap.plots.overlay import Array, numbers

MAX_WHISKER_RATIO = 3.0  # whiskers are cut at this multiple of the longest bar
# A white line on a wider black line, visible on dark and on bright colours: (upper line, lower line).
_PROVEN_LINES: Any = ({"color": "white", "linewidth": 1.5}, {"color": "black", "linewidth": 3.0})
_OPEN_LINES: Any = (
    {"color": "white", "linewidth": 1.0, "linestyle": (0, (2, 2))},
    {"color": "black", "linewidth": 2.0},
)


@dataclass(frozen=True, eq=False)
class Bars:
    """The largest scores of one sample, the largest first."""

    groups: tuple[int, ...]
    values: Array  # (B,)
    intervals: Array | None = None  # (B, 2), if they are known
    ranks: Ranks | None = None
    ties: tuple[bool, ...] | None = None  # (B,) for scores that are means: not significantly different from a neighbour

    @property
    def solid(self) -> list[bool]:
        """The bars that are drawn solid: all of them if there are neither ranks nor ties."""
        if self.ties is not None:
            return [not tie for tie in self.ties]
        return [self.ranks is None or group in self.ranks.proven for group in self.groups]


def bars_of(e: Explanation, k: int, groups: Sequence[int], known: bool) -> Bars:
    """Return the bars of sample k; known: with proven intervals and ranks."""
    scores = numbers(e.scores[k])[list(groups)]
    if e.errors is not None:
        ends = numbers(between(e.scores[k], e.errors[k]))[list(groups)]
        return Bars(tuple(groups), scores, ends, ties=tuple(e.ties[k][list(groups)].tolist()))
    if not known:
        return Bars(tuple(groups), scores)
    return Bars(tuple(groups), scores, numbers(e.intervals[k])[list(groups)], ranks(e, k))


def draw_bars(
    panel: Axes, bars: Bars, labels: Sequence[str], scale: tuple[float, float], signed: bool, look: Look
) -> None:
    """Draw horizontal bars; scale: the range of the scores, symmetric for signed scores."""
    values, count = np.nan_to_num(bars.values), len(bars.groups)
    low, high = _reach(values, bars.intervals, scale, signed)
    for at, (value, solid) in enumerate(zip(values, bars.solid, strict=True)):
        panel.barh(at, value, height=0.7, **bar_style(look.bar(value, signed), solid))
    if bars.intervals is not None:
        _whiskers(panel, bars.intervals, low, high)
    panel.axvline(0, color=line_colour(), linewidth=0.8)
    panel.set_xlim(low, high)
    panel.set_ylim(count - 0.4, -0.6)
    panel.set_yticks(range(count), labels)
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    panel.spines[["top", "right"]].set_visible(False)


def bar_style(colour: Any, solid: bool) -> dict[str, Any]:
    """Return the style of a bar: solid, or hatched without a fill."""
    return {"color": colour} if solid else {"facecolor": "white", "edgecolor": colour, "hatch": "//////"}


def _reach(values: Array, intervals: Array | None, scale: tuple[float, float], signed: bool) -> tuple[float, float]:
    """Return the range of the axis: symmetric for signed scores, else from 0 to the largest value."""
    low, high = scale if signed else (min(0.0, values.min()), max(0.0, values.max()))
    if intervals is not None:
        most = MAX_WHISKER_RATIO * max(-low, high)
        ends = intervals[np.isfinite(intervals)]
        low, high = max(-most, min(low, *ends)), min(most, max(high, *ends))
        low, high = (-max(-low, high), max(-low, high)) if signed else (low, high)
    return 1.03 * low, 1.03 * (high if low or high else 1.0)


def _whiskers(panel: Axes, intervals: Array, low: float, high: float) -> None:
    """Draw the intervals as lines with caps; an end outside the axis has no cap."""
    at = np.arange(len(intervals))
    first, last = np.clip(intervals[:, 0], low, high), np.clip(intervals[:, 1], low, high)
    look: Any = {"color": "black", "linewidth": 1.1, "path_effects": [withStroke(linewidth=2.6, foreground="white")]}
    panel.hlines(at, first, last, zorder=3, **look)
    for ends in (intervals[:, 0], intervals[:, 1]):
        inside = (ends >= low) & (ends <= high)
        panel.vlines(ends[inside], at[inside] - 0.22, at[inside] + 0.22, zorder=3, **look)


def mark(panel: Axes, mask: NDArray[Any], found: Ranks) -> None:
    """Draw outlines in an image (H, W) around the groups of its mask (H, W) or (C, H, W)."""
    for groups, (over, under) in ((found.open, _OPEN_LINES), (found.proven, _PROVEN_LINES)):
        members = [mask == group for group in groups]
        lines = [line for each in members for line in outline(each if each.ndim == 2 else each.any(0))]
        for look in (under, over):
            ends = list(np.array(lines, dtype=float).reshape(-1, 2, 2) - 0.5)
            cap: Any = "butt" if "linestyle" in look else "projecting"
            panel.add_collection(LineCollection(ends, capstyle=cap, zorder=4, clip_on=False, **look))


def legend(found: Sequence[Ranks], signed: bool, outlined: bool, look: Look) -> tuple[list[Any], list[str]]:
    """Return the handles and texts of the legend. found: the proven ranks; empty for scores that are means."""
    colour = look.bar(1.0, signed)
    solid, hatched = Patch(**bar_style(colour, solid=True)), Patch(**bar_style(colour, solid=False))
    whisker = Line2D([], [], color="black", linewidth=1.1, marker="|", markersize=6)
    if not found:
        texts = ["differs from its neighbours in rank", "a tie", "95 % confidence interval of the mean"]
        return [solid, hatched, whisker], texts
    most = {each.most for each in found}
    noun = found[0].noun
    among = (
        f"among the {most.pop()} {noun}s that matter most" if len(most) == 1 else f"among the {noun}s that matter most"
    )
    handles: list[Any] = [solid, hatched, whisker]
    if outlined:
        handles = [(solid, _sample(_PROVEN_LINES)), (hatched, _sample(_OPEN_LINES)), whisker]
    return handles, [f"proven to be {among}", "not proven to be", "proven interval of the true score"]


def _sample(look: Any) -> Line2D:
    over, under = look
    return Line2D([], [], **over, path_effects=[withStroke(linewidth=under["linewidth"], foreground="black")])
