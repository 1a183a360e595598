"""The panels of a sufficient set: the input, the groups that keep their values, and one adversarial example.

Necessary groups are blue and undecided groups are orange and hatched, so that both differ without colours. Free groups
are faded. All lengths are in inches, from the upper left corner.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_reason import reason_facts, shown_group
from proofmap.explainers.statements.proven_ranks import is_series, noun
from proofmap.plots import token_sequence
from proofmap.plots.explanation_drawing import ExplanationDrawing, Painter
from proofmap.plots.figure_look import LINE_COLOURS, Look, line_colour
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
from proofmap.plots.largest_scores import MAX_BARS, mask_of_sample
from proofmap.plots.overlay import Array, numbers, picture_of
from proofmap.plots.reasons.reason_picture import FREE_GREY, HATCH, kept_picture, outline_group, undecided_pixels
from proofmap.text.group_places import place
from proofmap.text.output_wording import explained_output
from proofmap.text.reason_wording import admitted, group_clause

PANELS = ("input", "kept", "adversary")
_CAPTIONS = {"input": "input", "kept": "the groups that keep their values"}
_MAX_SIDE = 2.3  # the longer side of an image, on a page of the natural width
_IMAGE_GAP = 0.2
_ROW_HEIGHT, _AXIS_HEIGHT = 0.2, 0.45  # a row of a table; its axis
_SERIES_HEIGHT = 1.0
_LEGEND_HEIGHT = 0.3
_MIN_LEGEND_WIDTH = 6.0  # on a narrower page each entry has a line of its own


class ReasonDrawing(ExplanationDrawing):
    """Draws sufficient sets. shown: the necessary group of each sample whose stored point is drawn."""

    def __init__(
        self,
        e: Explanation,
        look: Look,
        columns: Sequence[str] | None,
        tokens: Sequence[Sequence[str]] | None,
        group: int | Sequence[int] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(e, look, columns, tokens)
        assert e.reason is not None
        self._reason, self._names = e.reason, class_names
        asked = [group] * len(e) if group is None or isinstance(group, int) else list(group)
        self._shown: list[int | None] = [shown_group(e, k, one) for k, one in enumerate(asked)]
        necessary, undecided = look.pair
        self._colours: dict[str, Any] = {"necessary": necessary, "undecided": undecided}
        painters: dict[str, Painter]
        if is_series(e):
            painters = {"kept": self._kept_series, "adversary": self._adversary_series}
        elif tokens is not None:
            painters = {"kept": self._kept_tokens, "adversary": self._adversary_tokens}
        elif e.x.ndim in (3, 4):
            painters = {"input": self._input, "kept": self._kept_image, "adversary": self._adversary_image}
        else:
            painters = {"kept": self._kept_columns, "adversary": self._adversary_columns}
        self.painters = painters
        self.usual: list[str] = list(painters)

    # ---------------------------------------------------------------- captions

    def _caption(self, name: str, k: int) -> str:
        """Return the text below a panel of sample k."""
        if name != "adversary":
            return _CAPTIONS[name].replace("group", noun(self._e))
        group = self._shown[k]
        if group is None:
            return f"no {noun(self._e)} is proven to be necessary"
        sure = bool(self._reason.adversarial[k, group])
        return group_clause(reason_facts(self._e, k), self._place(k, group), adversarial=sure, became=self._class(k))

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

    def _class(self, k: int) -> str | None:
        """Return the class at the shown point; it is known while the explanation has its network."""
        e, group = self._e, self._shown[k]
        if explained_output(e.settings) is not None:
            return None
        if e.made_from is None or group is None or e.settings.get("objective", "margin") != "margin":
            return "another class"
        graph = e.made_from[0].to(e.x.device, e.x.dtype)
        with torch.no_grad():
            found = int(graph(self._reason.point(k, group)[None].to(e.x)).flatten(1).argmax())
        if found == int(e.target[k]):  # a tie
            return "another class as large"
        return f"class {found}" if self._names is None else str(self._names[found])

    def _point(self, k: int) -> torch.Tensor | None:
        group = self._shown[k]
        return None if group is None else self._reason.point(k, group)

    def _state(self, k: int, group: int) -> str:
        if bool(self._reason.free[k, group]):
            return "free"
        return "necessary" if bool(self._reason.necessary[k, group]) else "undecided"

    # ---------------------------------------------------------------- images

    def _kept_image(self, panel: Axes, k: int) -> None:
        mask = mask_of_sample(self._e, k)
        picture = picture_of(self._e.x[k], self._look.mean, self._look.std)
        free, undecided = numbers(self._reason.free[k]) > 0, numbers(self._reason.undecided[k]) > 0
        panel.imshow(kept_picture(picture, mask, free, undecided, self._colours), interpolation="nearest")
        for left, top, wide in undecided_pixels(mask, undecided):
            box: Any = {"facecolor": "none", "edgecolor": self._colours["undecided"], "hatch": HATCH, "linewidth": 0.0}
            panel.add_patch(Rectangle((left - 0.5, top - 0.5), wide, 1.0, **box))
        self._finish_image(panel)

    def _adversary_image(self, panel: Axes, k: int) -> None:
        point, group = self._point(k), self._shown[k]
        if point is None or group is None:
            _nothing(panel)
            return
        picture = picture_of(point, self._look.mean, self._look.std)
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        outline_group(panel, mask_of_sample(self._e, k) == group, self._colours["necessary"])
        self._finish_image(panel)

    # ---------------------------------------------------------------- tables

    def _column_names(self, k: int, groups: Sequence[int]) -> list[str]:
        own, mask = numbers(self._e.x[k]).ravel(), mask_of_sample(self._e, k).ravel()
        names = self._columns or [f"column {at}" for at in range(len(own))]
        inside = [np.flatnonzero(mask == group) for group in groups]
        return [group_name([names[int(at)] for at in each], own[each].tolist()) for each in inside]

    def _rows_of(self, k: int) -> list[int]:
        """Return the groups of a table in its rows: necessary, undecided, then the free ones that move most."""
        mask = mask_of_sample(self._e, k).ravel()
        moves = np.abs(self._moves(k)).ravel()
        largest = {int(group): float(moves[mask == group].max()) for group in np.unique(mask)}
        rank = {"necessary": 0, "undecided": 1, "free": 2}
        return sorted(largest, key=lambda group: (rank[self._state(k, group)], -largest[group]))[:MAX_BARS]

    def _moves(self, k: int) -> Array:
        """Return the shown point minus the input, in float64; 0 without a point."""
        point = self._point(k)
        x = numbers(self._e.x[k])
        return np.zeros_like(x) if point is None else numbers(point) - x

    def _kept_columns(self, panel: Axes, k: int) -> None:
        groups = self._rows_of(k)
        for at, group in enumerate(groups):
            state = self._state(k, group)
            panel.barh(at, 1.0, height=0.8, **self._style(state))
            ink = _ink(self._style(state)["facecolor"]) if state == "necessary" else "black"
            write_on: Any = {"fontsize": text_size(), "ha": "center", "va": "center_baseline", "color": ink}
            if state == "undecided":
                write_on["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            panel.text(0.5, at, state, **write_on)
        panel.set_xlim(0, 1)
        panel.set_ylim(len(groups) - 0.4, -0.6)
        panel.set_xticks([])
        panel.set_yticks(range(len(groups)), self._column_names(k, groups))
        panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)

    def _adversary_columns(self, panel: Axes, k: int) -> None:
        groups, mask, moves = self._rows_of(k), mask_of_sample(self._e, k).ravel(), self._moves(k).ravel()
        if self._point(k) is None:
            _nothing(panel)
            return
        for at, group in enumerate(groups):
            change = float(max(moves[mask == group], key=abs))
            state = "necessary" if group == self._shown[k] else "free"
            look = self._style(state) | ({} if state == "necessary" else {"facecolor": "0.6"})
            panel.barh(at, change, height=0.7, **look)
        most = float(np.abs(moves).max()) or 1.0
        panel.axvline(0, color=line_colour(), linewidth=0.8)
        panel.set_xlim(-1.08 * most, 1.08 * most)
        panel.set_ylim(len(groups) - 0.4, -0.6)
        panel.set_yticks([])
        panel.locator_params(axis="x", nbins=5)
        panel.spines[["top", "right", "left"]].set_visible(False)

    def _style(self, state: str) -> dict[str, Any]:
        """Return the style of a box or bar of a group."""
        if state == "necessary":
            return {"facecolor": self._colours["necessary"], "edgecolor": "none"}
        if state == "undecided":
            return {"facecolor": "white", "edgecolor": self._colours["undecided"], "hatch": HATCH}
        return {"facecolor": FREE_GREY, "edgecolor": "none"}

    # ---------------------------------------------------------------- series

    def _kept_series(self, panel: Axes, k: int) -> None:
        values, mask = self._series_of(self._e.x[k]), self._windows(k)
        for group in np.unique(mask):
            state, (start, stop) = self._state(k, int(group)), _span(mask, int(group))
            if state != "free":
                style = self._style(state) | ({"alpha": 0.35} if state == "necessary" else {})
                panel.axvspan(start, stop, linewidth=0.0, **style)
        free = np.isin(mask, np.flatnonzero(numbers(self._reason.free[k]) > 0))
        for channel, line in enumerate(values):
            colour = line_colour() if len(values) == 1 else LINE_COLOURS[(channel + 2) % len(LINE_COLOURS)]
            panel.plot(line, color="0.7", linewidth=0.9)
            panel.plot(np.where(free, np.nan, line), color=colour, linewidth=1.2, marker=".", markersize=2)
        _finish_series(panel, len(mask))

    def _adversary_series(self, panel: Axes, k: int) -> None:
        point, group, mask = self._point(k), self._shown[k], self._windows(k)
        if point is None or group is None:
            _nothing(panel)
            return
        start, stop = _span(mask, group)
        panel.axvspan(start, stop, linewidth=0.0, **(self._style("necessary") | {"alpha": 0.35}))
        pairs = zip(self._series_of(self._e.x[k]), self._series_of(point), strict=True)
        for channel, (before, after) in enumerate(pairs):
            panel.plot(before, color="0.7", linewidth=0.9)
            colour = (
                line_colour()
                if len(mask_of_sample(self._e, k).reshape(-1, len(mask))) == 1
                else LINE_COLOURS[(channel + 2) % len(LINE_COLOURS)]
            )
            panel.plot(after, color=colour, linewidth=1.0)
        _finish_series(panel, len(mask))

    def _series_of(self, sample: torch.Tensor) -> Array:
        return numbers(sample).reshape(-1, sample.shape[-1])

    def _windows(self, k: int) -> NDArray[Any]:
        mask = mask_of_sample(self._e, k)
        windows: NDArray[Any] = mask.reshape(-1, mask.shape[-1])[0]
        return windows

    # ---------------------------------------------------------------- tokens

    def _kept_tokens(self, panel: Axes, k: int) -> None:
        owner = token_sequence.owner_of(self._e, k)
        boxes = []
        for group in owner.tolist():
            state = self._state(k, group)
            box = self._style(state) | {"linewidth": 0.4}
            ink = _ink(box["facecolor"]) if state == "necessary" else "0.55" if state == "free" else "black"
            boxes.append((box, ink))
        self._draw_boxes(panel, k, boxes)

    def _adversary_tokens(self, panel: Axes, k: int) -> None:
        """Draw the tokens, darker the further their embedding moves."""
        if self._point(k) is None:
            _nothing(panel)
            return
        moved = np.abs(self._moves(k)).max(1)
        owner, most = token_sequence.owner_of(self._e, k), float(moved.max()) or 1.0
        boxes = []
        for at, group in enumerate(owner.tolist()):
            grey = 1.0 - 0.45 * moved[at] / most
            box: dict[str, Any] = {"facecolor": (grey, grey, grey), "edgecolor": "0.8", "linewidth": 0.4}
            if group == self._shown[k]:
                box |= {"edgecolor": self._colours["necessary"], "linewidth": 2.0}
            boxes.append((box, "black"))
        self._draw_boxes(panel, k, boxes)

    def _draw_boxes(self, panel: Axes, k: int, boxes: Sequence[tuple[dict[str, Any], Any]]) -> None:
        assert self._tokens is not None
        token_sequence.draw_boxes(panel, self._tokens[k], boxes, text_size())

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
        shares = {"kept": 0.35, "adversary": 0.65}
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
                if name == "adversary" and name == chosen[0]:
                    panel.set_yticks(range(len(rows[k])), self._column_names(k, rows[k]))
                write(figure, at + wide / 2, under + tall[k] + 0.2, text, size, ha="center")
                at += wide + _IMAGE_GAP
            top += heights[k]
        self._legend(figure, top)
        return figure

    def _note_of(self, name: str, k: int, wide: float) -> str:
        size = text_size()
        more = self._e.scores.shape[1] - len(self._rows_of(k))
        if name == "kept":
            rest = f", and {more} more of {self._e.scores.shape[1]} {noun(self._e)}s" if more else ""
            return fit(f"{self._caption(name, k)}{rest}", wide, size)
        change = "" if self._shown[k] is None else "change of each value; "
        return fit(f"{change}{self._caption(name, k)}", wide, size)

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
        facts = reason_facts(self._e, 0)
        entries = {}
        if bool(self._reason.necessary.any()):
            entries["necessary"] = f"necessary: freeing it as well admits {admitted(facts)}"
        if bool(self._reason.undecided.any()):
            entries["undecided"] = "undecided"
        entries["free"] = "free: all of these may move"
        handles = [Patch(**self._style(state)) for state in entries]
        at = (0.5, 1 - top / figure.get_figheight())
        wide = page_width() >= _MIN_LEGEND_WIDTH
        figure.legend(
            handles,
            list(entries.values()),
            loc="upper center",
            bbox_to_anchor=at,
            ncols=len(entries) if wide else 1,
            fontsize=text_size(),
            frameon=False,
            handlelength=1.6,
        )


def _nothing(panel: Axes) -> None:
    panel.set_axis_off()
    panel.text(0.5, 0.5, "none", ha="center", va="center", transform=panel.transAxes, fontsize=text_size(), color="0.5")


def _span(mask: NDArray[Any], group: int) -> tuple[float, float]:
    steps = np.flatnonzero(mask == group)
    return float(steps.min()) - 0.5, float(steps.max()) + 0.5


def _finish_series(panel: Axes, steps: int) -> None:
    panel.set_xlim(-0.5, steps - 0.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=4)


def _ink(colour: Any) -> str:
    return "white" if float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5 else "black"
