"""The panels of a sufficient set: the input, the groups that keep their values, and one adversarial example.

Necessary groups are blue and undecided groups are orange and hatched, so that both differ without colours. Free groups
are faded. All lengths are in inches, from the upper left corner.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_reason import reason_facts, shown_group
from proofmap.explainers.statements.proven_ranks import is_series, noun
from proofmap.plots import token_sequence
from proofmap.plots.explanation_drawing import Painter
from proofmap.plots.figure_look import Look
from proofmap.plots.largest_scores import MAX_BARS, mask_of_sample
from proofmap.plots.overlay import numbers, picture_of
from proofmap.plots.reasons.reason_picture import FREE_GREY, HATCH, kept_picture, outline_group, undecided_pixels
from proofmap.plots.reasons.set_drawing import SetDrawing, channel_colour, finish_series, ink_on, nothing, span
from proofmap.text.output_wording import explained_output
from proofmap.text.reason_wording import admitted, group_clause

_CAPTIONS = {"input": "input", "kept": "the groups that keep their values"}


class ReasonDrawing(SetDrawing):
    """Draws sufficient sets. shown: the necessary group of each sample whose stored point is drawn."""

    table_shares: ClassVar[Mapping[str, float]] = {"kept": 0.35, "adversary": 0.65}
    change_panel: ClassVar[str] = "adversary"

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
            nothing(panel)
            return
        picture = picture_of(point, self._look.mean, self._look.std)
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        outline_group(panel, mask_of_sample(self._e, k) == group, self._colours["necessary"])
        self._finish_image(panel)

    # ---------------------------------------------------------------- tables

    def _rows_of(self, k: int) -> list[int]:
        """Return the groups of a table in its rows: necessary, undecided, then the free ones that move most."""
        mask = mask_of_sample(self._e, k).ravel()
        moves = np.abs(self._moves(k)).ravel()
        largest = {int(group): float(moves[mask == group].max()) for group in np.unique(mask)}
        rank = {"necessary": 0, "undecided": 1, "free": 2}
        return sorted(largest, key=lambda group: (rank[self._state(k, group)], -largest[group]))[:MAX_BARS]

    def _kept_columns(self, panel: Axes, k: int) -> None:
        states = []
        for group in self._rows_of(k):
            state = self._state(k, group)
            ink = ink_on(self._style(state)["facecolor"]) if state == "necessary" else "black"
            states.append((self._style(state), state, ink))
        self._states_of_rows(panel, k, states)

    def _adversary_columns(self, panel: Axes, k: int) -> None:
        if self._point(k) is None:
            nothing(panel)
            return
        other = self._style("free") | {"facecolor": "0.6"}
        looks = {group: self._style("necessary") if group == self._shown[k] else other for group in self._rows_of(k)}
        self._bars_of_change(panel, k, looks)

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
            state, (start, stop) = self._state(k, int(group)), span(mask, int(group))
            if state != "free":
                style = self._style(state) | ({"alpha": 0.35} if state == "necessary" else {})
                panel.axvspan(start, stop, linewidth=0.0, **style)
        free = np.isin(mask, np.flatnonzero(numbers(self._reason.free[k]) > 0))
        for channel, line in enumerate(values):
            panel.plot(line, color="0.7", linewidth=0.9)
            colour = channel_colour(channel, len(values))
            panel.plot(np.where(free, np.nan, line), color=colour, linewidth=1.2, marker=".", markersize=2)
        finish_series(panel, len(mask))

    def _adversary_series(self, panel: Axes, k: int) -> None:
        point, group, mask = self._point(k), self._shown[k], self._windows(k)
        if point is None or group is None:
            nothing(panel)
            return
        start, stop = span(mask, group)
        panel.axvspan(start, stop, linewidth=0.0, **(self._style("necessary") | {"alpha": 0.35}))
        self._lines_of_change(panel, k, point)

    # ---------------------------------------------------------------- tokens

    def _kept_tokens(self, panel: Axes, k: int) -> None:
        owner = token_sequence.owner_of(self._e, k)
        boxes = []
        for group in owner.tolist():
            state = self._state(k, group)
            box = self._style(state) | {"linewidth": 0.4}
            ink = ink_on(box["facecolor"]) if state == "necessary" else "0.55" if state == "free" else "black"
            boxes.append((box, ink))
        self._draw_boxes(panel, k, boxes)

    def _adversary_tokens(self, panel: Axes, k: int) -> None:
        """Draw the tokens, darker the further their embedding moves."""
        if self._point(k) is None:
            nothing(panel)
            return
        shown = self._shown[k]
        own = {"edgecolor": self._colours["necessary"], "linewidth": 2.0}
        self._tokens_of_change(panel, k, {} if shown is None else {shown: own})

    def _legend_entries(self) -> list[tuple[Patch, str]]:
        facts = reason_facts(self._e, 0)
        entries = {}
        if bool(self._reason.necessary.any()):
            entries["necessary"] = f"necessary: freeing it as well admits {admitted(facts)}"
        if bool(self._reason.undecided.any()):
            entries["undecided"] = "undecided"
        entries["free"] = "free: all of these may move"
        return [(Patch(**self._style(state)), meaning) for state, meaning in entries.items()]
