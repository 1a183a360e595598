"""Every class of every sample in one picture: a row a sample, a column a class."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from proofmap.errors import InputError
from proofmap.explain.explanation import Explanation
from proofmap.explain.overlay import colours, ends, numbers, picture_of, pixels_of
from proofmap.explain.picture import Picture
from proofmap.explain.wording import around

_CELL = 0.95  # inches
_MOST = 12


def atlas(every: Explanation, class_names: Sequence[str] | None = None) -> Picture:
    """The maps of `TargetedEVA.explain_all`: red where ink must be added to become the column's class, blue where it
    must be removed, on one scale; a bold frame where neither half of the ball holds an input of that class, proven.

    The first column shows the samples, at most 12; a sample's own class is left blank.
    """
    classes = int(every.target.max()) + 1
    count = len(every) // classes
    whole = count * classes == len(every) and every.signed and every.x.ndim in (3, 4)
    if not whole or every.target.tolist() != list(range(classes)) * count:
        raise InputError("got an explanation of other things, expected images from TargetedEVA(...).explain_all(x)")
    rows = min(count, _MOST)
    low, high = ends(numbers(every.scores[: rows * classes]), signed=True)
    proven = every.proven
    figure = Picture(figsize=(_CELL * (classes + 1), _CELL * rows + 0.75))
    panels = figure.subplots(rows, classes + 1, squeeze=False)
    for row in range(rows):
        first = row * classes
        panels[row][0].imshow(picture_of(every.x[first]), cmap="gray", vmin=0, vmax=1)
        for c in range(classes):
            panel = panels[row][1 + c]
            if c == int(every.predicted[first]):
                panel.set_facecolor("0.93")
                panel.set_aspect("equal")
                panel.set_box_aspect(every.x.shape[-2] / every.x.shape[-1])
            else:
                values = pixels_of(every.attributions[first + c])
                panel.imshow(values, cmap=colours(signed=True), vmin=low, vmax=high, interpolation="nearest")
            _frame(panel, bool(proven[first + c]))
    for c in range(classes):
        name = str(c) if class_names is None else class_names[c]
        panels[0][1 + c].set_title(name, fontsize=9)
    panels[0][0].set_title("input", fontsize=9)
    for panel in panels.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    figure.subplots_adjust(0.01, 0.62 / (_CELL * rows + 0.75), 0.99, 1 - 0.25 / (_CELL * rows + 0.75), 0.06, 0.06)
    figure.text(
        0.01,
        0.05 / (_CELL * rows + 0.75),
        "towards the class of the column: red, add ink; blue, remove it (an importance, not itself proven)\n"
        f"bold frame: proven for {around(every.settings, count=0)} that\n"
        "no input of either half of the ball is classified as that class",
        fontsize=8,
        va="bottom",
    )
    return figure


def _frame(panel: Axes, bold: bool) -> None:
    for spine in panel.spines.values():
        spine.set_linewidth(1.8 if bold else 0.4)
