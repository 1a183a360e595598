"""Explanations as figures: the input, the map and both together; a bar chart where there is no image.

Nothing here touches pyplot: a figure belongs to whoever asked for it.
All lengths are in inches, measured from the upper left corner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explain.explanation import Explanation, rounded
from proofmap.explain.overlay import NEGATIVE_TOO, POSITIVE, Array, overlaid
from proofmap.explain.wording import around, beside
from proofmap.overlaps import Overlap, decides

__all__ = ["PLAIN", "ROWS", "Picture", "draw"]

ROWS = 16  # samples in one figure
BARS = 20  # bars of one sample
_DPI = 110
_WIDTH = 7.55
_MARGIN = 0.2
_PANEL = 2.05  # the width of an image
_GAP = 0.2
_BAR = 0.1  # the width of a colour bar
_LINE = 1.35 / 72  # the height of a line of text, for each point of its size
_TITLE, _SMALL = 9.5, 7.5  # sizes of text in points
# A style of the user's, a dark one perhaps, must not reach a figure that is white,
# and a dollar sign in a name starts no formula.
PLAIN: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), "inherit"),
    **dict.fromkeys(("text.usetex", "text.parse_math", "axes.grid"), False),
    **dict.fromkeys(("figure.autolayout", "figure.constrained_layout.use"), False),
    "axes.facecolor": "white",
    "image.origin": "upper",
}


class Picture(Figure):
    """A figure that a notebook shows by itself, on white whatever the page's colour."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        FigureCanvasAgg(self)
        self.savefig(buffer, format="png", dpi=_DPI, facecolor="white", edgecolor="none", bbox_inches=None)
        return buffer.getvalue()


def draw(
    explanation: Explanation,
    columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> Picture:
    """One row a sample, at most 16: picture, heat map and overlay; for inputs that are no images, the largest scores.

    Samples (H, W) and (C, H, W) are images; with C other than 1 and 3 the mean over the channels is shown. A map
    without signs has a colour scale of its own, from 0; maps with signs share one, symmetric about 0.
    columns: names for the variables of an input that is no image. class_names: names for the classes. By default those
    of the origin.
    """
    shape = explanation.x.shape[1:]
    image = len(shape) in (2, 3)
    origin = explanation.origin
    if origin is not None:
        columns = origin.columns if columns is None and not image else columns
        class_names = origin.classes if class_names is None else class_names
    if columns is not None and (image or len(columns) != shape.numel()):
        expected = "none: these are images" if image else str(shape.numel())
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(shape)}, expected {expected}")
    labels = [label for k in range(len(explanation)) if (label := explanation.label(k)) is not None]
    highest = max(int(torch.maximum(explanation.target, explanation.predicted).max()), *labels, 0)
    if class_names is not None and len(class_names) <= highest:
        raise InputError(f"got {len(class_names)} names for the classes, expected one for each up to class {highest}")
    shown = explanation if len(explanation) <= ROWS else explanation[:ROWS]
    left_out = len(explanation) - len(shown)
    note = f"the first {ROWS} of {len(explanation)} samples: explanation[{ROWS}:].plot() shows more" if left_out else ""
    with matplotlib.rc_context(PLAIN):
        titles = [_fit(_title(shown, k, class_names), _WIDTH - 2 * _MARGIN, _TITLE) for k in range(len(shown))]
        return _images(shown, titles, note) if image else _charts(shown, titles, note, columns)


def _images(e: Explanation, titles: list[str], note: str) -> Picture:
    pictures = [picture_of(sample) for sample in e.x]
    maps = [pixels_of(sample) for sample in e.attributions]
    ratio = maps[0].shape[1] / maps[0].shape[0]
    tall = min(max(_PANEL / ratio, 0.8), 2.6)
    wide = min(_PANEL, tall * ratio)
    shift = (_PANEL - wide) / 2  # narrow images stand in the middle of their place
    captions = ("input", _caption(e), "overlay")
    heights = [_lines(title, _TITLE) + tall + 0.2 for title in titles]
    figure = _page(sum(heights) + max(_lines(text, _SMALL) for text in captions) - 0.1, note)
    lefts = (_MARGIN, _MARGIN + _PANEL + _GAP, _WIDTH - _MARGIN - _PANEL)
    top = 0.1
    for picture, values, title, norm, height in zip(pictures, maps, titles, _scales(e), heights, strict=True):
        _write(figure, _MARGIN, top, title, _TITLE)
        panels = [_panel(figure, left + shift, top + _lines(title, _TITLE), wide, tall) for left in lefts]
        colours = matplotlib.colormaps[NEGATIVE_TOO if e.signed else POSITIVE]
        panels[0].imshow(picture, cmap="gray", vmin=0, vmax=1)
        heat = panels[1].imshow(values, cmap=colours, norm=norm, interpolation="nearest")
        panels[2].imshow(overlaid(picture, values, norm.vmax or 1.0, e.signed))
        for panel in panels:
            panel.set_xticks([])
            panel.set_yticks([])
        beside = _panel(figure, lefts[1] + shift + wide + 0.08, top + _lines(title, _TITLE), _BAR, tall)
        below = not e.signed and bool((values < 0).any())
        bar = figure.colorbar(heat, cax=beside, extend="min" if below else "neither", ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=_SMALL, length=2)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        top += height
    for left, text in zip(lefts, captions, strict=True):
        _write(figure, left + _PANEL / 2, top - 0.12, text, _SMALL, ha="center")
    return figure


def _charts(e: Explanation, titles: list[str], note: str, columns: Sequence[str] | None) -> Picture:
    names = columns or [str(k) for k in range(e.x[0].numel())]
    bars = min(BARS, e.scores.shape[1])
    labels: list[list[str]] = []
    order: list[Array] = []
    for k, scores in enumerate(_numbers(e.scores)):
        largest = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:bars]
        mask = e.mask[k if len(e.mask) > 1 else 0].flatten().cpu().numpy()
        labels.append([_label([names[int(i)] for i in np.flatnonzero(mask == group)]) for group in largest])
        order.append(scores[largest])
    left = _MARGIN + 0.1 + max(_width(label, _SMALL) for row in labels for label in row)
    tall = 0.25 + 0.17 * bars
    heights = [_lines(title, _TITLE) + tall + 0.4 for title in titles]
    caption = f"{_caption(e)}\n{_selection(e, bars)}"
    figure = _page(sum(heights) + _lines(caption, _SMALL) - 0.1, note)
    top = 0.1
    for values, row, title, norm, height in zip(order, labels, titles, _scales(e), heights, strict=True):
        _write(figure, _MARGIN, top, title, _TITLE)
        panel = _panel(figure, left, top + _lines(title, _TITLE), _WIDTH - left - 0.35, tall)
        colours = matplotlib.colormaps[NEGATIVE_TOO]
        shades = [colours(0.88 if value > 0 else 0.12) for value in values] if e.signed else "#5c2482"
        panel.barh(range(bars), np.nan_to_num(values), color=shades, height=0.7)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_xlim(*_reach(e, np.nan_to_num(values), norm))
        panel.set_ylim(bars - 0.4, -0.6)
        panel.set_yticks(range(bars), row)
        panel.tick_params(labelsize=_SMALL, length=2)
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        panel.spines[["top", "right"]].set_visible(False)
        top += height
    _write(figure, left + (_WIDTH - left - 0.35) / 2, top - 0.15, caption, _SMALL, ha="center")
    return figure


def _reach(e: Explanation, values: Array, norm: Normalize) -> tuple[float, float]:
    """The ends of an axis of bars: symmetric for scores with signs, else from 0 to the longest."""
    low, high = (norm.vmin, norm.vmax) if e.signed else (min(0.0, values.min()), max(0.0, values.max()))
    assert low is not None
    assert high is not None
    return 1.03 * low, 1.03 * (high if low or high else 1.0)


def _selection(e: Explanation, bars: int) -> str:
    groups = e.scores.shape[1]
    which = f"the {bars} largest of {groups} scores" if bars < groups else f"all {groups} scores"
    return f"{which}, by {'column' if e.x.ndim == 2 else 'variable'}"


def _label(names: list[str]) -> str:
    """The columns of a group, cut where they are many."""
    text = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
    return _cut(text, 32)


def _title(e: Explanation, k: int, names: Sequence[str] | None) -> str:
    target, predicted = int(e.target[k]), int(e.predicted[k])
    label = beside(e.label(k), predicted, lambda number: _class(number, names))
    if e.opposite is not None:
        aim = _class(target, names)
        return f"{_class(predicted, names)}{label}, aimed at {aim} · {_targeted(e, e.opposite, k, aim)}"
    said = label if target == predicted else f" (predicted: {_class(predicted, names)}{label})"
    return f"{_class(target, names)}{said} · {_meaning(e, k)}"


def _meaning(e: Explanation, k: int) -> str:
    value, ball = float(e.overlap.full[k]), around(e.settings, k, len(e))
    if e.guarantee != "certified":
        refuted = e.guarantee == "sampled" and value > 0
        return f"{_unproven(e, value, ball)}: {'refuted' if refuted else 'nothing proven'}"
    objective = e.settings.get("objective", "margin")
    if not decides(objective):
        bound = f"bound ≤ {rounded(value, e.guarantee)} of the objective {objective!r} for {ball}"
        return f"{bound}: not about the decision"
    if value <= 0:
        answer = f"proven for {ball}, no input of the ball is classified otherwise"
    elif float(e.overlap.nominal[k]) > 0:
        answer = f"refuted for {ball}, the input itself is classified otherwise"
    else:
        answer = f"undecided for {ball}"
    return f"AO ≤ {rounded(value, e.guarantee)}: {answer}"


def _targeted(e: Explanation, opposite: Overlap, k: int, aim: str) -> str:
    if int(e.target[k]) == int(e.overlap.target[k]):
        return "its own class: nothing is asked"
    added, removed, ball = float(e.overlap.full[k]), float(opposite.full[k]), around(e.settings, k, len(e))
    if e.guarantee != "certified":
        return f"adding: {_unproven(e, added, ball)}, removing: {_unproven(e, removed, ball)}: nothing proven"
    proven = {
        (True, True): f"proven for {ball}, no input of either half of the ball is classified as {aim}",
        (True, False): f"proven for adding alone, {ball}",
        (False, True): f"proven for removing alone, {ball}",
        (False, False): f"undecided for {ball}",
    }[added <= 0, removed <= 0]
    return f"adding: AO ≤ {rounded(added, e.guarantee)}, removing: AO ≤ {rounded(removed, e.guarantee)}: {proven}"


def _unproven(e: Explanation, value: float, ball: str) -> str:
    if math.isnan(value):
        return "AO unknown"
    if e.guarantee == "sampled":
        return f"AO ≥ {rounded(value, e.guarantee)} seen in samples of {ball}"
    return f"AO ≈ {rounded(value, e.guarantee)} estimated for {ball}"


def _class(k: int, names: Sequence[str] | None) -> str:
    if names is None:
        return f"class {k}"
    return _cut(str(names[k]), 60)


def _cut(text: str, most: int) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _caption(e: Explanation) -> str:
    """What a score is: a difference of overlaps only where it is one."""
    same = _agree(e.scores, _drop(e.overlap) - (0 if e.opposite is None else _drop(e.opposite)))
    if not same:
        formula = f"score of {_cut(e.method, 32)}"
    elif e.opposite is None:
        formula = "score = AO(B) - AO(B_u)"
    else:
        formula = "score = φ(+) - φ(-), φ = AO(B) - AO(B_u)"
    lines = [f"{formula},", "an importance, not itself proven"]
    if e.signed:
        ink = e.x.ndim == 3 or (e.x.ndim == 4 and e.x.shape[1] == 1)
        add, remove = ("add ink", "remove it") if ink else ("raise it", "lower it")
        lines.append(f"red: {add}, blue: {remove}" if e.opposite else "red: positive, blue: negative")
    return "\n".join(lines)


def _drop(bounds: Overlap) -> Tensor:
    return bounds.full[:, None] - bounds.frozen  # (N, G)


def _agree(scores: Tensor, drop: Tensor) -> bool:
    if scores.shape != drop.shape or not bool(drop.isfinite().all()):
        return False
    return torch.allclose(scores.double(), drop.double(), rtol=1e-4, atol=1e-5 * float(drop.abs().max()))


def _scales(e: Explanation) -> list[Normalize]:
    """The colours' range for each row: from 0, or symmetric and the same for all."""
    finite = np.where(np.isfinite(_numbers(e.scores)), _numbers(e.scores), 0.0)  # (N, G)
    if e.signed:
        most = float(np.abs(finite).max()) or 1.0
        return [Normalize(-most, most) for _ in finite]
    return [Normalize(0.0, max(float(row.max()), 0.0) or 1.0) for row in finite]


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def pixels_of(sample: Tensor) -> Array:
    """(H, W), the mean over the channels."""
    values = _numbers(sample)
    return values if values.ndim == 2 else values.mean(0)


def picture_of(sample: Tensor) -> Array:
    """(H, W) or (H, W, 3) in [0, 1]; values outside are brought there by the sample's own range."""
    colour = sample.ndim == 3 and sample.shape[0] == 3
    values = np.moveaxis(_numbers(sample), 0, 2) if colour else pixels_of(sample)
    low, high = float(values.min()), float(values.max())
    return values if low >= 0 and high <= 1 else (values - low) / ((high - low) or 1.0)


def _page(height: float, note: str) -> Picture:
    """A white figure with the note, if there is one, at its foot."""
    height += 0.1 + (_lines(note, _SMALL) if note else 0.0)
    figure = Picture(figsize=(_WIDTH, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if note:
        _write(figure, _WIDTH / 2, height - _lines(note, _SMALL), note, _SMALL, ha="center", style="italic")
    return figure


def _panel(figure: Picture, left: float, top: float, width: float, height: float) -> Axes:
    whole = figure.get_figheight()
    return figure.add_axes((left / _WIDTH, 1 - (top + height) / whole, width / _WIDTH, height / whole))


def _write(figure: Picture, left: float, top: float, text: str, size: float, **style: Any) -> Text:
    at = (left / _WIDTH, 1 - top / figure.get_figheight())
    return figure.text(*at, text, fontsize=size, va="top", linespacing=1.25, **style)


def _lines(text: str, size: float) -> float:
    """The height that a text needs, with a little air under it."""
    return (text.count("\n") + 1) * size * _LINE + 0.06


def _width(text: str, size: float) -> float:
    scratch = Figure(dpi=_DPI)
    FigureCanvasAgg(scratch)
    return scratch.text(0, 0, text, fontsize=size).get_window_extent().width / _DPI


def _fit(text: str, width: float, size: float) -> str:
    """The text in as few lines as fit into the width."""
    for characters in range(120, 8, -4):
        lines = wrap(text, characters)
        if max(_width(line, size) for line in lines) <= width:
            break
    return "\n".join(lines)
