"""The panels of a contrastive set: the input with the groups that change, the changed input, and the difference.

The groups of the smallest set found are blue, and those of further sets orange and dashed, so that both differ without
colours. All lengths are in inches, from the upper left corner.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.proven_ranks import is_series
from proofmap.plots import token_sequence
from proofmap.plots.explanation_drawing import Painter
from proofmap.plots.figure_look import Look
from proofmap.plots.largest_scores import MAX_BARS, mask_of_sample
from proofmap.plots.overlay import numbers, picture_of, pixels_of
from proofmap.plots.reasons.reason_picture import FREE_GREY, outline_group
from proofmap.plots.reasons.set_drawing import SetDrawing, channel_colour, finish_series, ink_on, nothing, span
from proofmap.text.contrast_wording import changed_caption

_STATES = ("first", "further", "unchanged")


class ContrastDrawing(SetDrawing):
    """Draws contrastive sets, the smallest one of each sample with its changed input."""

    table_shares: ClassVar[Mapping[str, float]] = {"input": 0.35, "changed": 0.65}
    change_panel: ClassVar[str] = "changed"

    def __init__(
        self,
        e: Explanation,
        look: Look,
        columns: Sequence[str] | None,
        tokens: Sequence[Sequence[str]] | None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(e, look, columns, tokens)
        assert e.contrast is not None
        self._contrast, self._names = e.contrast, class_names
        first, further = look.pair
        self._colours: dict[str, Any] = {"first": first, "further": further}
        painters: dict[str, Painter]
        if is_series(e):
            painters = {"input": self._input_series, "changed": self._changed_series}
        elif tokens is not None:
            painters = {"input": self._input_tokens, "changed": self._changed_tokens}
        elif e.x.ndim in (3, 4):
            painters = {"input": self._input_image, "changed": self._changed_image, "difference": self._difference}
        else:
            painters = {"input": self._input_columns, "changed": self._changed_columns}
        self.painters = painters
        self.usual: list[str] = list(painters)

    def _caption(self, name: str, k: int) -> str:
        """Return the text below a panel of sample k."""
        facts = contrast_facts(self._e, k, name=self._class)
        if name == "changed":
            return changed_caption(facts)
        if name == "difference":
            most = float(np.abs(self._moves(k)).max())
            return "" if not facts.found else f"difference, up to {most:.3g}; red: raised, blue: lowered"
        if not facts.found:
            return "input"
        many = "s that change" if facts.size > 1 else " that changes"
        return f"input, with the {facts.noun}{many}"

    def _class(self, number: int) -> str:
        return f"class {number}" if self._names is None else " ".join(str(self._names[number]).split())

    def _point(self, k: int) -> torch.Tensor | None:
        return self._contrast.point(k) if bool(self._contrast.found[k]) else None

    def _state(self, k: int, group: int) -> str:
        """Return the set of a group: the smallest one, a further one, or none."""
        own = self._contrast.sets[self._contrast.owner == k][:, group].nonzero().flatten().tolist()
        return _STATES[min(own[0], 1)] if own else _STATES[2]

    def _style(self, state: str) -> dict[str, Any]:
        """Return the style of a box or bar of a group."""
        if state == "first":
            return {"facecolor": self._colours["first"], "edgecolor": "none"}
        if state == "further":
            return {"facecolor": "white", "edgecolor": self._colours["further"], "linestyle": "--", "linewidth": 1.2}
        return {"facecolor": FREE_GREY, "edgecolor": "none"}

    def _marked(self, k: int, state: str) -> NDArray[np.bool_]:
        """Return the values whose group is in such a set, in the shape of the mask."""
        mask = mask_of_sample(self._e, k)
        groups = [group for group in range(self._contrast.groups) if self._state(k, group) == state]
        return np.isin(mask, groups)

    # ---------------------------------------------------------------- images

    def _input_image(self, panel: Axes, k: int) -> None:
        picture = picture_of(self._e.x[k], self._look.mean, self._look.std)
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        self._outline(panel, k)

    def _changed_image(self, panel: Axes, k: int) -> None:
        point = self._point(k)
        if point is None:
            nothing(panel)
            return
        picture = picture_of(point, self._look.mean, self._look.std)
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        outline_group(panel, self._marked(k, "first"), self._colours["first"])
        self._finish_image(panel)

    def _difference(self, panel: Axes, k: int) -> None:
        if self._point(k) is None:
            nothing(panel)
            return
        moves = pixels_of(torch.from_numpy(self._moves(k)))
        most = float(np.abs(moves).max()) or 1.0
        panel.imshow(moves, cmap=self._look.colours(signed=True), vmin=-most, vmax=most, interpolation="nearest")
        self._finish_image(panel)

    def _outline(self, panel: Axes, k: int) -> None:
        for state, line in (("further", "--"), ("first", "-")):
            member = self._marked(k, state)
            if member.any():
                outline_group(panel, member, self._colours[state], line)
        self._finish_image(panel)

    # ---------------------------------------------------------------- tables

    def _rows_of(self, k: int) -> list[int]:
        """Return the groups of a table in its rows: the smallest set by the largest change, then the others."""
        mask = mask_of_sample(self._e, k).ravel()
        moves = np.abs(self._moves(k)).ravel()
        largest = {int(group): float(moves[mask == group].max()) for group in np.unique(mask)}
        return sorted(largest, key=lambda group: (_STATES.index(self._state(k, group)), -largest[group]))[:MAX_BARS]

    def _input_columns(self, panel: Axes, k: int) -> None:
        states = []
        for group in self._rows_of(k):
            state = self._state(k, group)
            words = {"first": self._change_of(k, group), "further": "in a further set", "unchanged": "unchanged"}
            ink = ink_on(self._style(state)["facecolor"])
            states.append((self._style(state), words[state], ink))
        self._states_of_rows(panel, k, states)

    def _change_of(self, k: int, group: int) -> str:
        """Return "0.12 → 0.17" for a group of one value."""
        point, own = self._point(k), mask_of_sample(self._e, k).ravel() == group
        if point is None or own.sum() != 1:
            return "changes"
        before, after = (float(numbers(one).ravel()[own][0]) for one in (self._e.x[k], point))
        return f"{before:.4g} → {after:.4g}"

    def _changed_columns(self, panel: Axes, k: int) -> None:
        if self._point(k) is None:
            nothing(panel)
            return
        unmoved = {"facecolor": FREE_GREY, "edgecolor": "none"}
        first = self._style("first")
        self._bars_of_change(
            panel, k, {group: first if self._state(k, group) == "first" else unmoved for group in self._rows_of(k)}
        )

    # ---------------------------------------------------------------- series

    def _shade(self, panel: Axes, k: int, states: Sequence[str]) -> None:
        mask = self._windows(k)
        for group in np.unique(mask):
            state = self._state(k, int(group))
            if state in states:
                alpha = {"alpha": 0.35} if state == "first" else {"fill": False}
                panel.axvspan(*span(mask, int(group)), **(self._style(state) | alpha))

    def _input_series(self, panel: Axes, k: int) -> None:
        self._shade(panel, k, ("first", "further"))
        values = self._series_of(self._e.x[k])
        for channel, line in enumerate(values):
            colour = channel_colour(channel, len(values))
            panel.plot(line, color=colour, linewidth=1.2, marker=".", markersize=2)
        finish_series(panel, values.shape[1])

    def _changed_series(self, panel: Axes, k: int) -> None:
        point = self._point(k)
        if point is None:
            nothing(panel)
            return
        self._shade(panel, k, ("first",))
        self._lines_of_change(panel, k, point)

    # ---------------------------------------------------------------- tokens

    def _input_tokens(self, panel: Axes, k: int) -> None:
        boxes = []
        for group in token_sequence.owner_of(self._e, k).tolist():
            box = {"linewidth": 0.4} | self._style(self._state(k, group))
            boxes.append((box, ink_on(box["facecolor"])))
        self._draw_boxes(panel, k, boxes)

    def _changed_tokens(self, panel: Axes, k: int) -> None:
        """Draw the tokens, darker the further their embedding moves."""
        if self._point(k) is None:
            nothing(panel)
            return
        own = {"edgecolor": self._colours["first"], "linewidth": 2.0}
        moved = self._contrast.moved[k].nonzero().flatten().tolist()
        self._tokens_of_change(panel, k, dict.fromkeys(moved, own))

    def _legend_entries(self) -> list[tuple[Patch, str]]:
        entries = {}
        if bool(self._contrast.found.any()):
            entries["first"] = "changes: the smallest set that was found"
        if bool((self._contrast.owner.bincount(minlength=len(self._e)) > 1).any()):
            entries["further"] = "a further set that can change it as well"
        entries["unchanged"] = "keeps its value"
        images = "difference" in self.painters
        shown = [state for state in entries if not (images and state == "unchanged")]
        styles = [self._style(state) | ({"facecolor": "none"} if images else {}) for state in shown]
        if images:
            styles = [style | {"edgecolor": self._colours[state]} for style, state in zip(styles, shown, strict=True)]
        return [(Patch(**style), entries[state]) for style, state in zip(styles, shown, strict=True)]
