"""The figure of an explanation: per sample the image, the map and the overlay, or a bar chart of its scores.

Nothing here uses pyplot: a figure belongs to its caller.
"""

from collections.abc import Sequence

import matplotlib
import torch

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_inputs import variable_names
from proofmap.explainers.statements.proven_ranks import is_sequence, is_series
from proofmap.plots.explanation_drawing import ExplanationDrawing
from proofmap.plots.figure_look import Look
from proofmap.plots.figure_page import PLAIN_STYLE, Heading, Picture
from proofmap.plots.figure_titles import title
from proofmap.plots.reasons.contrast_drawing import ContrastDrawing
from proofmap.plots.reasons.reason_drawing import ReasonDrawing
from proofmap.plots.token_sequence import names_of

MAX_ROWS = 16  # samples in one figure


def draw(
    explanation: Explanation,
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    headings: Sequence[Heading] | None = None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    look: Look | None = None,
    group: int | Sequence[int] | None = None,
) -> Picture:
    """Draw one row per sample, at most 16: image, heat map and overlay; for other inputs, the largest scores as bars.

    If the scores have proven intervals, as with pm.bounds.Exact(), the largest scores and their intervals are also
    shown below an image. Groups that are proven to matter most are outlined in the map. Scores that are means, as with
    pm.SmoothEVA, are shown with 95 % intervals, and ties are hatched.

    Samples (H, W) and (C, H, W) are images; with C other than 1 and 3 the mean over the channels is shown. An unsigned
    map has its own colour scale, from 0. Signed maps share one scale, symmetric about 0. A series whose groups are
    windows is drawn over time, and a sequence whose groups are tokens as its tokens.

    columns: the names of the variables of an input that is not an image, shown with their values. class_names: the
    names of the classes. By default both are those of the origin. headings: the text above each sample, by default its
    verdict. tokens: the names of the tokens of a sequence. group: of a sufficient set, the necessary group whose stored
    point is drawn, one for all samples or one for each.
    """
    look = look or Look()
    columns, class_names = _names(explanation, columns, class_names, tokens)
    shown = explanation if len(explanation) <= MAX_ROWS else explanation[:MAX_ROWS]
    names = None
    if is_sequence(explanation):
        names = names_of(explanation, tokens)[:MAX_ROWS]
    drawing: ExplanationDrawing
    if explanation.reason is not None:
        drawing = ReasonDrawing(shown, look, columns, names, _chosen_groups(explanation, group), class_names)
    elif explanation.contrast is not None:
        _chosen_groups(explanation, group)
        drawing = ContrastDrawing(shown, look, columns, names, class_names)
    else:
        _chosen_groups(explanation, group)
        drawing = ExplanationDrawing(shown, look, columns, names)
    chosen = look.chosen(list(drawing.painters), drawing.usual)
    if look.ax is not None:
        return drawing.draw_into(look.axes(len(shown) * len(chosen)), chosen, class_names)
    left_out = len(explanation) - len(shown)
    note = (
        f"the first {MAX_ROWS} of {len(explanation)} samples: explanation[{MAX_ROWS}:].plot() shows more"
        if left_out
        else ""
    )
    with matplotlib.rc_context(PLAIN_STYLE):
        given = list(headings or [Heading(title(shown, k, class_names)) for k in range(len(shown))])[:MAX_ROWS]
        texts = look.titles([heading.title for heading in given])
        fitted = [Heading(text, one.subtitle).fitted() for text, one in zip(texts, given, strict=True)]
        return drawing.page(fitted, note, chosen)


def _chosen_groups(e: Explanation, group: int | Sequence[int] | None) -> int | list[int] | None:
    """Return the groups of the shown samples; raise InputError if they do not fit."""
    if group is not None and e.reason is None:
        raise InputError(f"got group={group!r} for {e.method}, expected it with Sufficient, which stores its examples")
    if group is None or isinstance(group, int):
        return group
    given = list(group)
    if len(given) != len(e):
        raise InputError(f"got {len(given)} groups for {len(e)} samples, expected one for each, or one number for all")
    return given[:MAX_ROWS]


def _names(
    e: Explanation, columns: Sequence[str] | None, class_names: Sequence[str] | None, tokens: object
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the names of columns and classes, by default those of the origin; raise InputError if they do not fit."""
    shape = e.x.shape[1:]
    series, sequence = is_series(e), is_sequence(e)
    image = len(shape) in (2, 3) and not series and not sequence
    origin = e.origin
    columns = variable_names(e) if columns is None else columns
    if origin is not None:
        columns = origin.columns if columns is None and not image else columns
        class_names = origin.classes if class_names is None else class_names
    if columns is not None and (image or series or sequence or len(columns) != shape.numel()):
        expected: object = shape.numel()
        if image or series or sequence:
            kinds = "these are images" if image else "its groups are windows" if series else "these are tokens=[...]"
            expected = f"none: {kinds}"
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(shape)}, expected {expected}")
    if tokens is not None and not sequence:
        raise InputError(
            f"got tokens for samples {tuple(shape)}, expected sequences (T, D) with groups of whole tokens, such as "
            "pm.groups.tokens()"
        )
    labels = [label for k in range(len(e)) if (label := e.label(k)) is not None]
    highest = max(int(torch.maximum(e.target, e.predicted).max()), *labels, 0)
    if class_names is not None and len(class_names) <= highest:
        raise InputError(f"got {len(class_names)} names for the classes, expected one for each up to class {highest}")
    return columns, class_names
