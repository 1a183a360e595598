"""Every class of every sample in one picture: a row a sample, a column a class."""

from __future__ import annotations

from collections.abc import Sequence

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.plots.explanation_figure import Picture
from proofmap.plots.overlay import colours, ends, numbers, picture_of, pixels_of
from proofmap.text.figure_titles import importance
from proofmap.text.wording import around, rounding_note

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
    height = _CELL * rows + 0.75
    figure = Picture(figsize=(_CELL * (classes + 1), height))
    panels = figure.subplots(rows, classes + 1, squeeze=False, subplot_kw={"xticks": [], "yticks": []})
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
            panel.spines[:].set_linewidth(1.8 if proven[first + c] else 0.4)
    names = map(str, range(classes)) if class_names is None else class_names[:classes]
    for panel, name in zip(panels[0], ["input", *names], strict=True):
        panel.set_title(name, fontsize=9)
    figure.subplots_adjust(0.01, 0.62 / height, 0.99, 1 - 0.25 / height, 0.06, 0.06)
    figure.text(
        0.01,
        0.05 / height,
        f"towards the class of the column: red, add ink; blue, remove it ({importance(every)})\n"
        f"bold frame: proven for {around(every.settings, count=0)}{rounding_note(every.settings)} that\n"
        "no input of either half of the ball is classified as that class",
        fontsize=8,
        va="bottom",
    )
    return figure
