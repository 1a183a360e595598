"""The pages of figures of sets: images in a row, tables beside each other, series and sequences one below another.

A subclass draws the panels of one kind of set, and words their captions and the legend. All lengths are in inches, from
the upper left corner.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from proofmap.explainers.statements.proven_ranks import is_series, noun
from proofmap.plots import token_sequence
from proofmap.plots.explanation_drawing import ExplanationDrawing
from proofmap.plots.figure_look import LINE_COLOURS, line_colour
from proofmap.plots.figure_page import (
    MARGIN,
    PAGE_WIDTH,
    Heading,
    Picture,
    fit,
    page,
    page_width,
    panel_at,
    text_height,
    text_size,
    text_width,
    write,
)
from proofmap.plots.figure_titles import group_name
from proofmap.plots.largest_scores import mask_of_sample
from proofmap.plots.overlay import Array, numbers
from proofmap.text.group_places import place

_MAX_SIDE = 2.3  # the longer side of an image, on a page of the natural width
_IMAGE_GAP = 0.2
_ROW_HEIGHT, _AXIS_HEIGHT = 0.2, 0.45  # a row of a table; its axis
_SERIES_HEIGHT = 1.0
_LEGEND_HEIGHT = 0.3
_MIN_LEGEND_WIDTH = 6.0  # on a narrower page each entry has a line of its own
_LARGEST_MOVE_GREY = 0.45  # tokens get darker by up to this share of white


class SetDrawing(ExplanationDrawing):
    """Draws sets of groups of one sample after the other."""

    table_shares: ClassVar[Mapping[str, float]]  # the share of the width of each panel of a table
    change_panel: ClassVar[str]  # the panel that shows a point beside the input

    def _caption(self, name: str, k: int) -> str:
        """Return the text below a panel of sample k."""
        raise NotImplementedError

    def _rows_of(self, k: int) -> list[int]:
        """Return the groups of a table in its rows."""
        raise NotImplementedError

    def _legend_entries(self) -> list[tuple[Patch, str]]:
        """Return the styles of the legend with their meanings."""
        raise NotImplementedError

    def _point(self, k: int) -> torch.Tensor | None:
        """Return the stored point of sample k that is shown; None without one."""
        raise NotImplementedError

    # ---------------------------------------------------------------- places

    def _place(self, k: int, group: int) -> str:
        mask = mask_of_sample(self._e, k)
        if self._tokens is not None:
            return token_sequence.group_names(self._e, k, self._tokens[k], [group])[0]
        if is_series(self._e):
            steps = np.flatnonzero(mask.reshape(-1, mask.shape[-1])[0] == group)
            return f"steps {steps.min()} to {steps.max()}"
        if self._e.x.ndim == 2:
            return self._column_names(k, [group])[0]
        return place(mask == group)

    def _column_names(self, k: int, groups: Sequence[int]) -> list[str]:
        own, mask = numbers(self._e.x[k]).ravel(), mask_of_sample(self._e, k).ravel()
        names = self._columns or [f"column {at}" for at in range(len(own))]
        inside = [np.flatnonzero(mask == group) for group in groups]
        return [group_name([names[int(at)] for at in each], own[each].tolist()) for each in inside]

    def _moves(self, k: int) -> Array:
        """Return the shown point minus the input, in float64; 0 without a point."""
        point = self._point(k)
        x = numbers(self._e.x[k])
        return np.zeros_like(x) if point is None else numbers(point) - x

    def _series_of(self, sample: torch.Tensor) -> Array:
        return numbers(sample).reshape(-1, sample.shape[-1])

    def _windows(self, k: int) -> NDArray[Any]:
        mask = mask_of_sample(self._e, k)
        windows: NDArray[Any] = mask.reshape(-1, mask.shape[-1])[0]
        return windows

    def _draw_boxes(self, panel: Axes, k: int, boxes: Sequence[tuple[dict[str, Any], Any]]) -> None:
        assert self._tokens is not None
        token_sequence.draw_boxes(panel, self._tokens[k], boxes, text_size())

    # ---------------------------------------------------------------- a point beside the input

    def _bars_of_change(self, panel: Axes, k: int, looks: Mapping[int, Mapping[str, Any]]) -> None:
        """Draw the change of each row's value. looks: the style of each group."""
        groups, mask, moves = self._rows_of(k), mask_of_sample(self._e, k).ravel(), self._moves(k).ravel()
        for at, group in enumerate(groups):
            panel.barh(at, float(max(moves[mask == group], key=abs)), height=0.7, **looks[group])
        most = float(np.abs(moves).max()) or 1.0
        panel.axvline(0, color=line_colour(), linewidth=0.8)
        panel.set_xlim(-1.08 * most, 1.08 * most)
        panel.set_ylim(len(groups) - 0.4, -0.6)
        panel.set_yticks([])
        panel.locator_params(axis="x", nbins=5)
        panel.spines[["top", "right", "left"]].set_visible(False)

    def _states_of_rows(self, panel: Axes, k: int, states: Sequence[tuple[Mapping[str, Any], str, str]]) -> None:
        """Draw a box with a word for each row of a table. states: the style, the word and its colour."""
        for at, (look, word, ink) in enumerate(states):
            panel.barh(at, 1.0, height=0.8, **look)
            write_on: Any = {"fontsize": text_size(), "ha": "center", "va": "center_baseline", "color": ink}
            if "hatch" in look:
                write_on["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            panel.text(0.5, at, word, **write_on)
        panel.set_xlim(0, 1)
        panel.set_ylim(len(states) - 0.4, -0.6)
        panel.set_xticks([])
        panel.set_yticks(range(len(states)), self._column_names(k, self._rows_of(k)))
        panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)

    def _lines_of_change(self, panel: Axes, k: int, point: torch.Tensor) -> None:
        """Draw a series and its changed values."""
        before, after = self._series_of(self._e.x[k]), self._series_of(point)
        for channel, (first, second) in enumerate(zip(before, after, strict=True)):
            panel.plot(first, color="0.7", linewidth=0.9)
            panel.plot(second, color=channel_colour(channel, len(before)), linewidth=1.0)
        finish_series(panel, before.shape[1])

    def _tokens_of_change(self, panel: Axes, k: int, marked: Mapping[int, Mapping[str, Any]]) -> None:
        """Draw the tokens, darker the further their embedding moves. marked: the style of some groups."""
        moved = np.abs(self._moves(k)).max(1)
        owner, most = token_sequence.owner_of(self._e, k), float(moved.max()) or 1.0
        boxes = []
        for at, group in enumerate(owner.tolist()):
            grey = 1.0 - _LARGEST_MOVE_GREY * moved[at] / most
            box: dict[str, Any] = {"facecolor": (grey, grey, grey), "edgecolor": "0.8", "linewidth": 0.4}
            boxes.append((box | dict(marked.get(group, {})), "black"))
        self._draw_boxes(panel, k, boxes)

    # ---------------------------------------------------------------- pages

    def page(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        """Draw on a white page of its own."""
        if self._e.x.ndim in (3, 4) and self._tokens is None and not is_series(self._e):
            return self._image_rows(headings, note, chosen)
        if self._e.x.ndim == 2 and not is_series(self._e):
            return self._table_rows(headings, note, chosen)
        return self._stacked_rows(headings, note, chosen)

    def _image_rows(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:  # images
        width, size, legend = page_width(), text_size(), self._legend_height
        scale = max(1.0, width / PAGE_WIDTH)
        slot = min(
            (width - 2 * MARGIN - _IMAGE_GAP * (len(chosen) - 1)) / len(chosen), _MAX_SIDE * scale
        )  # the width of a panel
        rows, columns = self._e.x.shape[-2:]
        tall = min(slot * rows / columns, _MAX_SIDE * scale)
        wide = tall * columns / rows
        texts = [[fit(self._caption(name, k), slot, size) for name in chosen] for k in range(len(headings))]
        said = [max(text_height(text, size) for text in line) for line in texts]
        heights = [one.height + tall + more + 0.2 for one, more in zip(headings, said, strict=True)]
        figure = page(sum(heights) + legend, note)
        start = (width - slot * len(chosen) - _IMAGE_GAP * (len(chosen) - 1)) / 2
        top = 0.1
        for k, heading in enumerate(headings):
            heading.write(figure, top)
            under = top + heading.height
            for at, (name, text) in enumerate(zip(chosen, texts[k], strict=True)):
                left = start + at * (slot + _IMAGE_GAP) + (slot - wide) / 2
                self.painters[name](panel_at(figure, left, under, wide, tall), k)
                write(figure, left + wide / 2, under + tall + 0.06, text, size, ha="center")
            top += heights[k]
        self._legend(figure, top)
        return figure

    def _table_rows(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        size, width, samples = text_size(), page_width(), range(len(headings))
        rows = [self._rows_of(k) for k in samples]
        labels = [label for k in samples for label in self._column_names(k, rows[k])]
        left = MARGIN + 0.15 + max(text_width(label, size) for label in labels)
        shares = self.table_shares
        whole = sum(shares[name] for name in chosen)
        free = width - left - 0.35 - _IMAGE_GAP * (len(chosen) - 1)
        texts = [[self._note_of(name, k, free * shares[name] / whole) for name in chosen] for k in samples]
        said = [max(text_height(text, size) for text in line) for line in texts]
        tall = [_ROW_HEIGHT * len(groups) for groups in rows]
        heights = [
            one.height + body + _AXIS_HEIGHT + more for one, body, more in zip(headings, tall, said, strict=True)
        ]
        figure = page(sum(heights) + self._legend_height, note)
        top = 0.1
        for k, heading in enumerate(headings):
            heading.write(figure, top)
            under, at = top + heading.height + 0.05, left
            for name, text in zip(chosen, texts[k], strict=True):
                wide = free * shares[name] / whole
                panel = panel_at(figure, at, under, wide, tall[k])
                self.painters[name](panel, k)
                panel.tick_params(labelsize=size)
                if name == self.change_panel and name == chosen[0]:
                    panel.set_yticks(range(len(rows[k])), self._column_names(k, rows[k]))
                write(figure, at + wide / 2, under + tall[k] + 0.2, text, size, ha="center")
                at += wide + _IMAGE_GAP
            top += heights[k]
        self._legend(figure, top)
        return figure

    def _note_of(self, name: str, k: int, wide: float) -> str:
        size = text_size()
        more = self._e.scores.shape[1] - len(self._rows_of(k))
        if name == self.change_panel:
            change = "" if self._point(k) is None else "change of each value; "
            return fit(f"{change}{self._caption(name, k)}", wide, size)
        rest = f", and {more} more of {self._e.scores.shape[1]} {noun(self._e)}s" if more else ""
        return fit(f"{self._caption(name, k)}{rest}", wide, size)

    def _stacked_rows(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:  # series and sequences
        size, width = text_size(), page_width()
        inner = width - 2 * MARGIN - (0.0 if self._tokens is not None else 0.45)
        left = MARGIN if self._tokens is not None else MARGIN + 0.4
        tall = []
        for k in range(len(headings)):
            if self._tokens is None:
                tall.append(_SERIES_HEIGHT)
            else:
                lines = token_sequence.lines_of(self._tokens[k], inner, size)
                tall.append(lines * token_sequence.line_height(size))
        texts = [[fit(self._caption(name, k), inner, size) for name in chosen] for k in range(len(headings))]
        extra = 0.12 if self._tokens is not None else 0.3
        blocks = [
            sum(tall[k] + text_height(text, size) + extra for text in line) + heading.height
            for k, (line, heading) in enumerate(zip(texts, headings, strict=True))
        ]
        figure = page(sum(blocks) + 0.1 + self._legend_height, note)
        top = 0.1
        for k, heading in enumerate(headings):
            heading.write(figure, top)
            under = top + heading.height
            for name, text in zip(chosen, texts[k], strict=True):
                panel = panel_at(figure, left, under, inner, tall[k])
                self.painters[name](panel, k)
                panel.tick_params(labelsize=size, length=2)
                at = {"left": left} if self._tokens is not None else {"left": width / 2, "ha": "center"}
                write(figure, top=under + tall[k] + (extra - 0.08), text=text, size=size, **at)
                under += tall[k] + text_height(text, size) + extra
            top += blocks[k]
        self._legend(figure, top)
        return figure

    # ---------------------------------------------------------------- legend

    @property
    def _legend_height(self) -> float:
        return _LEGEND_HEIGHT * (1 if page_width() >= _MIN_LEGEND_WIDTH else 2)

    def _legend(self, figure: Picture, top: float) -> None:
        entries = self._legend_entries()
        at = (0.5, 1 - top / figure.get_figheight())
        wide = page_width() >= _MIN_LEGEND_WIDTH
        figure.legend(
            [style for style, _ in entries],
            [meaning for _, meaning in entries],
            loc="upper center",
            bbox_to_anchor=at,
            ncols=max(1, len(entries)) if wide else 1,
            fontsize=text_size(),
            frameon=False,
            handlelength=1.6,
        )


def nothing(panel: Axes) -> None:
    """Write "none" into an empty panel."""
    panel.set_axis_off()
    panel.text(0.5, 0.5, "none", ha="center", va="center", transform=panel.transAxes, fontsize=text_size(), color="0.5")


def span(mask: NDArray[Any], group: int) -> tuple[float, float]:
    """Return the first and the last step of a window, with half a step on both sides."""
    steps = np.flatnonzero(mask == group)
    return float(steps.min()) - 0.5, float(steps.max()) + 0.5


def finish_series(panel: Axes, steps: int) -> None:
    """Set the axes of a series."""
    panel.set_xlim(-0.5, steps - 0.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=4)


def ink_on(colour: Any) -> str:
    """Return the colour of a text on a ground: white on dark ones."""
    return "white" if float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5 else "black"


def channel_colour(channel: int, channels: int) -> Any:
    """Return the colour of a channel of a series."""
    return line_colour() if channels == 1 else LINE_COLOURS[(channel + 2) % len(LINE_COLOURS)]
