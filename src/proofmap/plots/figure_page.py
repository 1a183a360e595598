"""White figures with headings: text that is fitted to the width, and panels at positions in inches.

All lengths are in inches, from the upper left corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FIGURE_WIDTH = 7.55
MARGIN = 0.2
TITLE_SIZE, TEXT_SIZE = 9.5, 7.5  # points
_DPI = 110
_LINE_HEIGHT = 1.35 / 72  # inches for each point of the text size
# The user's matplotlib style must not change the white figure, and a dollar sign in a name does not start a formula.
PLAIN_STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), "inherit"),
    **dict.fromkeys(("text.usetex", "text.parse_math", "axes.grid"), False),
    **dict.fromkeys(("figure.autolayout", "figure.constrained_layout.use"), False),
    "axes.facecolor": "white",
    "image.origin": "upper",
}


class Picture(Figure):
    """A matplotlib figure that displays itself in notebooks, on a white background."""

    if TYPE_CHECKING:  # matplotlib does not state the type of `fname`, which strict type checkers report

        def savefig(
            self, fname: str | PathLike[str] | IO[bytes], *, transparent: bool | None = None, **kwargs: Any
        ) -> None: ...

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        FigureCanvasAgg(self)
        self.savefig(buffer, format="png", dpi=_DPI, facecolor="white", edgecolor="none", bbox_inches=None)
        return buffer.getvalue()


@dataclass(frozen=True)
class Heading:
    """The text above one sample: a title, and a smaller subtitle, fitted to the width of the figure."""

    title: str
    subtitle: str = ""

    def fitted(self) -> Heading:
        """Return the heading with the line breaks that the width needs."""
        width = FIGURE_WIDTH - 2 * MARGIN
        return Heading(
            _fit(self.title, width, TITLE_SIZE), _fit(self.subtitle, width, TEXT_SIZE) if self.subtitle else ""
        )

    @property
    def height(self) -> float:
        return text_height(self.title, TITLE_SIZE) + (text_height(self.subtitle, TEXT_SIZE) if self.subtitle else 0.0)

    def write(self, figure: Picture, top: float) -> None:
        write(figure, MARGIN, top, self.title, TITLE_SIZE)
        if self.subtitle:
            write(figure, MARGIN, top + text_height(self.title, TITLE_SIZE), self.subtitle, TEXT_SIZE, color="0.35")


def page(height: float, note: str) -> Picture:
    """Return a white figure with the note, if there is one, at its bottom."""
    height += 0.1 + (text_height(note, TEXT_SIZE) if note else 0.0)
    figure = Picture(figsize=(FIGURE_WIDTH, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if note:
        write(
            figure,
            FIGURE_WIDTH / 2,
            height - text_height(note, TEXT_SIZE),
            note,
            TEXT_SIZE,
            ha="center",
            style="italic",
        )
    return figure


def panel_at(figure: Picture, left: float, top: float, width: float, height: float) -> Axes:
    """Add a panel at a position."""
    whole = figure.get_figheight()
    return figure.add_axes((left / FIGURE_WIDTH, 1 - (top + height) / whole, width / FIGURE_WIDTH, height / whole))


def write(figure: Picture, left: float, top: float, text: str, size: float, **style: Any) -> None:
    """Write a text at a position."""
    at = (left / FIGURE_WIDTH, 1 - top / figure.get_figheight())
    figure.text(*at, text, fontsize=size, va="top", linespacing=1.25, **style)


def text_height(text: str, size: float) -> float:
    """Return the height of a text, with a small margin below."""
    return (text.count("\n") + 1) * size * _LINE_HEIGHT + 0.06


def text_width(text: str, size: float) -> float:
    """Return the width of a text's longest line."""
    scratch = Figure(dpi=_DPI)
    FigureCanvasAgg(scratch)
    return scratch.text(0, 0, text, fontsize=size).get_window_extent().width / _DPI


def _fit(text: str, width: float, size: float) -> str:
    """Wrap the text into as few lines as fit into the width."""
    for characters in range(120, 8, -4):
        lines = wrap(text, characters)
        if max(text_width(line, size) for line in lines) <= width:
            break
    return "\n".join(lines)
