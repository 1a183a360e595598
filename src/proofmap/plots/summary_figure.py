"""The summary of many explanations in one figure: the mean score of each group, and each sample's score as a dot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_inputs import variable_names
from proofmap.explainers.statements.proven_ranks import is_sequence, searched
from proofmap.inputs.domain import common_beginning
from proofmap.plots import token_sequence
from proofmap.plots.figure_look import Look, figure_of, line_colour
from proofmap.plots.figure_page import (
    MARGIN,
    PLAIN_STYLE,
    Heading,
    Picture,
    fit,
    page_width,
    panel_at,
    text_height,
    text_size,
    text_width,
    white_figure,
    write,
)
from proofmap.plots.figure_titles import caption, group_name
from proofmap.plots.largest_scores import MAX_BARS
from proofmap.plots.overlay import Array, numbers
from proofmap.plots.score_chart import Bars, draw_bars
from proofmap.text.group_places import place
from proofmap.text.wording import plural

_FIGURE_WIDTH = 9.0  # inches
_ROW_HEIGHT = 0.26  # inches per group
_WIDTHS = {"mean": 0.24, "samples": 0.4}  # the panels with their relative widths
_GAP, _COLOUR_BAR_ROOM = 0.18, 0.65  # inches
_BINS = 80  # bins along the scores: the dots of a bin are drawn side by side
_MAX_OFFSET = 0.38  # the largest distance of a dot from the middle of its row, in row heights
_DOT_DISTANCE = 0.07  # the distance of two dots side by side, in row heights
_COLOUR_MAP = "coolwarm"  # low values are blue, high values are red


def summary(e: Explanation, columns: Sequence[str] | None = None, look: Look | None = None) -> Picture:
    """Draw the groups with the largest mean |score|, at most 20.

    Panel "mean": the mean score. If the overlaps were searched from both sides, with the proven interval of the mean
    true score. Panel "samples": each sample as a dot at its score. Its colour is the group's mean value in the sample,
    between the 5th and the 95th percentile of the samples.

    columns: the names of the variables of a flat input. The colour map of `look` is that of the dots.
    """
    look = look or Look()
    if len(e.mask) > 1:
        raise InputError(f"got {len(e)} samples with groups of their own, expected the same groups in all of them")
    origin = e.origin
    columns = variable_names(e) if columns is None else columns
    columns = origin.columns if columns is None and origin is not None and e.x.ndim == 2 else columns
    if columns is not None and (e.x.ndim != 2 or len(columns) != e.x.shape[1]):
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(e.x.shape[1:])}")
    drawing = _Summary.of(e, columns, replace(look, cmap=look.cmap or _COLOUR_MAP))
    chosen = look.chosen(list(_WIDTHS))
    if look.ax is not None:
        panels = look.axes(len(chosen))
        with matplotlib.rc_context({"text.parse_math": False}):
            for panel, name in zip(panels, chosen, strict=True):
                drawing.draw(panel, name, labelled=name == chosen[0])
            panels[0].set_title(look.heading(drawing.titles[chosen[0]]))
        return figure_of(panels)
    with matplotlib.rc_context(PLAIN_STYLE):
        return drawing.page(chosen, look)


@dataclass(frozen=True, eq=False)
class _Summary:
    """The numbers of the figure, for the groups with the largest mean |score|."""

    e: Explanation
    order: NDArray[np.int64]  # (B,) the groups
    labels: list[str]
    means: Array  # (B,)
    ends: Array | None  # (B, 2) the proven interval of the mean true score
    scores: Array  # (N, B)
    values: Array  # (N, B) the mean value of the group in the sample
    look: Look

    @classmethod
    def of(cls, e: Explanation, columns: Sequence[str] | None, look: Look) -> _Summary:
        scores, mask, x = numbers(e.scores), e.mask[0].cpu().numpy(), numbers(e.x.flatten(1))
        means = np.nan_to_num(np.abs(scores)).mean(axis=0)
        order = np.argsort(-means, kind="stable")[:MAX_BARS]
        inside = [mask == group for group in order]
        named = np.array(columns or [str(k) for k in range(x.shape[1])])
        if e.x.ndim == 2:
            labels = [_label(x[:, each], named[each].tolist()) for each in inside]
        elif is_sequence(e):
            labels = token_sequence.group_names(e, 0, token_sequence.names_of(e, None)[0], order.tolist())
        else:
            labels = [place(each) for each in inside]
        values = np.stack([x[:, each.ravel()].mean(axis=1) for each in inside], axis=1)
        ends = numbers(e.intervals.mean(dim=0))[order] if searched(e) and not e.signed else None
        return cls(e, order, labels, means[order], ends, scores[:, order], values, look)

    @property
    def titles(self) -> dict[str, str]:
        mean = "mean |score|" if self.e.signed else "mean score"
        return {"mean": mean, "samples": f"score of each of {plural(len(self.e), 'sample')}"}

    def draw(self, panel: Axes, name: str, labelled: bool) -> None:
        """Draw a panel; labelled: with the names of the groups."""
        if name == "mean":
            bars = Bars(tuple(map(int, self.order)), self.means, self.ends)
            draw_bars(panel, bars, self.labels, (0.0, float(self.means.max()) or 1.0), signed=False, look=Look())
        else:
            _swarm(panel, self.scores, self.values, self.look)
            panel.set_ylim(len(self.order) - 0.4, -0.6)
            panel.set_yticks(range(len(self.order)), self.labels)
        if not labelled:
            panel.set_yticks([])

    def page(self, chosen: Sequence[str], look: Look) -> Picture:
        """Draw on a white page of its own."""
        e, size, width = self.e, text_size(), page_width(_FIGURE_WIDTH)
        which = f"the {len(self.order)} largest of {e.scores.shape[1]} groups"
        which = which if len(self.order) < e.scores.shape[1] else "all groups"
        proven = "; whiskers: proven interval of the mean of the true scores" if self.ends is not None else ""
        note = fit(f"{caption(e)}\n{which}{proven if 'mean' in chosen else ''}", width - 2 * MARGIN, size)
        heading = Heading(look.heading("")).fitted()
        above, below = 0.3 + heading.height, 0.35 + text_height(note, size)
        height = above + _ROW_HEIGHT * len(self.order) + below
        figure = white_figure(width, height)
        heading.write(figure, 0.1)
        left = MARGIN + 0.1 + max(text_width(label, size) for label in self.labels)
        bar = _COLOUR_BAR_ROOM if "samples" in chosen else 0.2
        free = width - left - bar - _GAP * (len(chosen) - 1)
        for at, name in enumerate(chosen):
            wide = free * _WIDTHS[name] / sum(_WIDTHS[each] for each in chosen)
            panel = panel_at(figure, left, above, wide, _ROW_HEIGHT * len(self.order))
            self.draw(panel, name, labelled=at == 0)
            panel.set_title(self.titles[name], fontsize=size)
            panel.tick_params(labelsize=size, length=2)
            left += wide + _GAP
        if "samples" in chosen:
            beside = panel_at(figure, width - bar + 0.12, above, 0.11, _ROW_HEIGHT * len(self.order))
            _colours(figure, beside, self.look)
        write(figure, width / 2, height - text_height(note, size), note, size, ha="center")
        return figure


def _label(values: Array, names: list[str]) -> str:
    """Name a column, or a block that is one-hot in all samples by the common prefix of its columns."""
    block = len(names) > 1 and bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all())
    return group_name([common_beginning(names)] if block else names)


def _swarm(panel: Axes, scores: Array, values: Array, look: Look) -> None:
    """Draw scores (N, B) as dots, one row per group, with equal scores side by side."""
    known = np.nan_to_num(scores)
    panel.axvline(0, color=line_colour(), linewidth=0.8)
    edges = np.linspace(known.min(), known.max() or 1.0, _BINS)
    for row in range(known.shape[1]):
        low, high = np.percentile(values[:, row], (5, 95))
        share = np.clip((values[:, row] - low) / (high - low), 0, 1) if high > low else None
        cmap = look.colours(signed=False)
        colour: Any = {"c": "0.55"} if share is None else {"c": share, "cmap": cmap, "vmin": 0, "vmax": 1}
        panel.scatter(known[:, row], row + _aside(np.digitize(known[:, row], edges)), s=7, linewidths=0, **colour)
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


def _colours(figure: Picture, beside: Axes, look: Look) -> None:
    scale = ScalarMappable(Normalize(0, 1), look.colours(signed=False))
    bar = figure.colorbar(scale, cax=beside, ticks=[0, 1])
    bar.ax.set_yticklabels(["low", "high"], fontsize=text_size())
    bar.set_label("value in the sample", fontsize=text_size(), labelpad=-8)
    bar.outline.set_visible(False)
