"""The atlas of `TargetedEVA.explain_all`: one row per sample, one column per class."""

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.plots.figure_look import Look, figure_of
from proofmap.plots.figure_page import (
    PLAIN_STYLE,
    Heading,
    Picture,
    fit,
    page_width,
    scaled,
    text_height,
    text_size,
    white_figure,
)
from proofmap.plots.figure_titles import importance
from proofmap.plots.overlay import draw_picture, ends, numbers, pixels_of
from proofmap.text.verdict import Verdict
from proofmap.text.verdict_wording import sentence
from proofmap.text.wording import around

_CELL_SIDE = 0.95  # inches
_MAX_SAMPLES = 12  # samples in one figure
_MIN_WIDTH = 6.0  # inches, for the caption


def atlas(every: Explanation, class_names: Sequence[str] | None = None, look: Look | None = None) -> Picture:
    """Draw the maps of `TargetedEVA.explain_all`, at most 12 samples, all on one scale.

    Red: adding there moves towards the column's class. Blue: removing does. A bold frame: it is proven that neither
    half of the ball contains an input of that class. The first column shows the samples; a sample's own class is blank.
    The panels of `look` are the columns: "input" and the numbers of classes.
    """
    look = look or Look()
    classes = int(every.target.max()) + 1
    count = len(every) // classes
    whole = count * classes == len(every) and every.signed and every.x.ndim in (3, 4)
    if not whole or every.target.tolist() != list(range(classes)) * count:
        raise InputError("got another explanation, expected images from TargetedEVA(...).explain_all(x)")
    columns: list[str | int] = look.chosen(["input", *range(classes)])
    names = [str(c) if c == "input" or class_names is None else class_names[int(c)] for c in columns]
    if look.ax is not None:
        rows = min(count, _MAX_SAMPLES)
        panels = look.axes(rows * len(columns))
        with rc_context({"text.parse_math": False}):
            _draw(every, look, [panels[row * len(columns) : (row + 1) * len(columns)] for row in range(rows)], columns)
            for panel, name in zip(panels, look.titles(names), strict=False):
                panel.set_title(name)
        return figure_of(panels)
    with rc_context(PLAIN_STYLE):
        return _page(every, look, columns, names, min(count, _MAX_SAMPLES))


def _page(every: Explanation, look: Look, columns: Sequence[str | int], names: Sequence[str], rows: int) -> Picture:
    """Draw on a white page of its own."""
    width, size = page_width(max(_CELL_SIDE * len(columns), _MIN_WIDTH)), text_size()
    side = min(_CELL_SIDE * max(1.0, width / (_CELL_SIDE * len(columns))), width / len(columns))
    text = fit(_caption(every, look), 0.98 * width, size)
    heading = Heading(look.heading("")).fitted()
    above, below = 0.25 + heading.height, text_height(text, size) + 0.1
    height = side * every.x.shape[-2] / every.x.shape[-1] * rows + above + below
    figure = white_figure(width, height)
    heading.write(figure, 0.05)
    panels = figure.subplots(rows, len(columns), squeeze=False)
    _draw(every, look, panels, columns)
    for panel, name in zip(panels[0], names, strict=True):
        panel.set_title(name, fontsize=scaled(9))
    across = side * len(columns) / width
    figure.subplots_adjust(0.01, below / height, 0.99 * across, 1 - above / height, 0.06, 0.06)
    figure.text(0.01, 0.05 / height, text, fontsize=size, va="bottom")
    return figure


def _draw(every: Explanation, look: Look, panels: Any, columns: Sequence[str | int]) -> None:
    """Draw the samples and the maps: one row per sample, one panel for each column."""
    classes = int(every.target.max()) + 1
    low, high = ends(numbers(every.scores[: len(panels) * classes]), signed=True)
    scale: Any = {"cmap": look.colours(signed=True), "vmin": low, "vmax": high, "interpolation": "nearest"}
    for row, line in enumerate(panels):
        first = row * classes
        for panel, c in zip(line, columns, strict=True):
            at = first if c == "input" else first + int(c)
            panel.set_xticks([])
            panel.set_yticks([])
            if c == "input":
                draw_picture(panel, every.x[at], look)
                continue
            if c == int(every.predicted[first]):
                panel.set_facecolor("0.93")
                panel.set_box_aspect(every.x.shape[-2] / every.x.shape[-1])
            else:
                panel.imshow(pixels_of(every.attributions[at]), **scale)
            panel.spines[:].set_linewidth(1.8 if every.proven[at] else 0.4)


def _caption(every: Explanation, look: Look) -> str:
    """Return the meaning of the colours, and the verdict that a bold frame stands for."""
    high, low = ("red", "blue") if look.cmap is None else ("above 0", "below 0")
    colours = f"Towards the class of the column: {high}, add ink; {low}, remove it ({importance(every)})."
    ball, proven = f"the ball ({around(every.settings, count=0)})", Verdict("targeted", "proven")
    rigorous = bool(every.settings.get("rigorous"))
    frame = f"Bold frame: {sentence(proven, ball, rigorous=rigorous, aim='that of the column')}."
    return f"{colours}\n{frame}"
