"""Figures of token sequences: the tokens in reading order as boxes in the colours of their scores.

A sample (T, D) is a sequence of T tokens with D features each, such as embedded words or one-hot letters. Each group
consists of whole tokens, as with `pm.groups.tokens()`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.plots.figure_look import Look
from proofmap.plots.figure_page import text_width
from proofmap.plots.overlay import numbers
from proofmap.plots.time_series import shade

_LINE_HEIGHT = 2.1  # height of a line of tokens, as a multiple of the text size
_PADDING = 0.7  # padding of a token's box, both sides together, as a multiple of the text size
_MAX_NAME = 24  # characters of a token that are shown
_MIN_DARK = 0.5  # below this brightness of a box, its text is white
_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)


def names_of(e: Explanation, tokens: Sequence[str] | Sequence[Sequence[str]] | None) -> list[list[str]]:
    """Return the names of the tokens of each sample; without names, their positions."""
    count, length = e.x.shape[:2]
    if tokens is None:
        return [[str(at) for at in range(length)]] * count
    given = [list(tokens)] * count if all(isinstance(each, str) for each in tokens) else [list(one) for one in tokens]
    if len(given) != count or any(len(one) != length for one in given):
        raise InputError(
            f"got tokens for {len(given)} samples of {sorted({len(one) for one in given})} tokens, expected "
            f"{length} names for each of {count} samples, or {length} for all"
        )
    return [[_name(str(each)) for each in one] for one in given]


def _name(token: str) -> str:
    line = token.strip() or "␣"
    return line if len(line) <= _MAX_NAME else f"{line[: _MAX_NAME - 1]}…"


def group_names(e: Explanation, k: int, names: Sequence[str], groups: Sequence[int]) -> list[str]:
    """Name groups of sample k by their tokens and the position of the first."""
    owner = owner_of(e, k)
    labels = []
    for group in groups:
        at = np.flatnonzero(owner == group)
        words = " ".join(names[int(i)] for i in at[:3]) + ("…" if len(at) > 3 else "")
        number = str(at[0]) if len(at) else "-"
        labels.append(words if words == number else f"{words} ({number})")
    return labels


def lines_of(names: Sequence[str], width: float, size: float) -> int:
    """Return the number of lines that the tokens take within a width in inches."""
    return len(_broken(names, width, size))


def line_height(size: float) -> float:
    """Return the height of a line of tokens in inches."""
    return _LINE_HEIGHT * size / 72


def draw_tokens(
    panel: Axes, e: Explanation, k: int, names: Sequence[str], scale: tuple[float, float], look: Look, size: float
) -> None:
    """Draw the tokens of sample k; scale: the range of the scores; size: of the text, in points."""
    low, high = scale
    owner, scores = owner_of(e, k), np.nan_to_num(numbers(e.scores[k]))
    boxes = []
    for at in range(len(names)):
        share = float(np.clip((scores[owner[at]] - low) / (high - low), 0, 1))
        colour = to_rgb(shade(share, e.signed, look))
        dark = float(np.dot(colour, _LUMA)) < _MIN_DARK
        box = {"facecolor": colour, "edgecolor": "0.8", "linewidth": 0.4}
        boxes.append((box, "white" if dark else "black"))
    draw_boxes(panel, names, boxes, size)


def draw_boxes(panel: Axes, names: Sequence[str], boxes: Sequence[tuple[Mapping[str, Any], Any]], size: float) -> None:
    """Draw tokens in reading order, each as a box with a style and a colour of its text."""
    width = panel.get_window_extent().width / panel.figure.figure.dpi
    lines, tall = _broken(names, width, size), line_height(size)
    panel.set_xlim(0, width)
    panel.set_ylim(max(len(lines), 1) * tall, 0)
    panel.set_axis_off()
    for row, line in enumerate(lines):
        for at, left, wide in line:
            box, ink = boxes[at]
            panel.add_patch(Rectangle((left, (row + 0.1) * tall), wide, 0.8 * tall, **box))
            middle: Any = {"ha": "center", "va": "center_baseline", "color": ink}
            panel.text(left + wide / 2, (row + 0.5) * tall, names[at], fontsize=size, **middle)


def owner_of(e: Explanation, k: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the group of each token (T,)."""
    owner: np.ndarray[tuple[int], np.dtype[np.int64]] = e.mask[k if len(e.mask) > 1 else 0][:, 0].cpu().numpy()
    return owner


def _broken(names: Sequence[str], width: float, size: float) -> list[list[tuple[int, float, float]]]:
    """Break the tokens into lines: (token, left edge, width) in inches."""
    lines: list[list[tuple[int, float, float]]] = [[]]
    left, gap = 0.0, 0.15 * size / 72
    for at, name in enumerate(names):
        wide = min(width, text_width(name, size) + _PADDING * size / 72)
        if left and left + wide > width:
            lines.append([])
            left = 0.0
        lines[-1].append((at, left, wide))
        left += wide + gap
    return lines
