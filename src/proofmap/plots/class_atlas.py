"""The atlas of `TargetedEVA.explain_all`: one row per sample, one column per class."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.plots.figure_page import Picture
from proofmap.plots.figure_titles import importance
from proofmap.plots.overlay import colours, ends, numbers, picture_of, pixels_of
from proofmap.text.verdict import Verdict
from proofmap.text.verdict_wording import sentence
from proofmap.text.wording import around

_CELL_SIDE = 0.95  # inches
_MAX_SAMPLES = 12
_CAPTION_LINE = 84  # characters of a line below the maps


def atlas(every: Explanation, class_names: Sequence[str] | None = None) -> Picture:
    """Draw the maps of `TargetedEVA.explain_all`, at most 12 samples, all on one scale.

    Red: adding there moves towards the column's class. Blue: removing does. A bold frame: it is proven that neither
    half of the ball contains an input of that class. The first column shows the samples; a sample's own class is blank.
    """
    classes = int(every.target.max()) + 1
    count = len(every) // classes
    whole = count * classes == len(every) and every.signed and every.x.ndim in (3, 4)
    if not whole or every.target.tolist() != list(range(classes)) * count:
        raise InputError("got another explanation, expected images from TargetedEVA(...).explain_all(x)")
    rows = min(count, _MAX_SAMPLES)
    low, high = ends(numbers(every.scores[: rows * classes]), signed=True)
    proven = every.proven
    height = _CELL_SIDE * rows + 0.75
    figure = Picture(figsize=(_CELL_SIDE * (classes + 1), height))
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
        _caption(every),
        fontsize=8,
        va="bottom",
    )
    return figure


def _caption(every: Explanation) -> str:
    """Return the meaning of the colours, and the verdict that a bold frame stands for."""
    colours = f"Towards the class of the column: red, add ink; blue, remove it ({importance(every)})."
    ball, proven = f"the ball ({around(every.settings, count=0)})", Verdict("targeted", "proven")
    rigorous = bool(every.settings.get("rigorous"))
    frame = f"Bold frame: {sentence(proven, ball, rigorous=rigorous, aim='that of the column')}."
    return "\n".join([colours, *wrap(frame, _CAPTION_LINE)])
