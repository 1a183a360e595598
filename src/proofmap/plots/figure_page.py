"""White figures with headings: text that is fitted to the width, and panels at positions in inches.

All lengths are in inches, from the upper left corner. rcParams determine the width of the page (`figure.figsize`) and
the sizes of texts (`font.size`), if they differ from matplotlib's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from textwrap import wrap
from typing import IO, Any

from matplotlib import rc_context, rcParams, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PAGE_WIDTH = 7.55  # inches
MARGIN = 0.2  # inches
_TITLE_SIZE, _TEXT_SIZE = 9.5, 7.5  # points, for matplotlib's own font size
_DPI = 110  # pixels per inch of a saved figure
_USED_WIDTH = 0.97  # share of the width that a text may take
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


# Settings that matplotlib reads when a figure is saved, not when it is drawn: a figure keeps those of its creation.
_SAVED_STYLE = ("pdf.fonttype", "ps.fonttype", "svg.fonttype", "svg.hashsalt")


def page_width(natural: float = PAGE_WIDTH) -> float:
    """Return the width of a figure: that of rcParams if it was changed, else its natural width."""
    return float(rcParams["figure.figsize"][0]) if _is_changed("figure.figsize") else natural


def title_size() -> float:
    """Return the size of titles in points."""
    return scaled(_TITLE_SIZE)


def text_size() -> float:
    """Return the size of all other texts in points."""
    return scaled(_TEXT_SIZE)


def scaled(points: float) -> float:
    """Return a text size, scaled by rcParams' font size."""
    return points * float(rcParams["font.size"]) / float(rcParamsDefault["font.size"])


def _is_changed(name: str) -> bool:
    settings: Any = rcParams
    defaults: Any = rcParamsDefault
    given, default = settings[name], defaults[name]
    return list(given) != list(default) if isinstance(default, list | tuple) else bool(given != default)


def _dpi() -> float:
    return float(rcParams["figure.dpi"]) if _is_changed("figure.dpi") else _DPI


def white_figure(width: float, height: float, **layout: Any) -> Picture:
    """Return an empty white figure."""
    figure = Picture(figsize=(width, height), dpi=_dpi(), facecolor="white", **layout)
    FigureCanvasAgg(figure)
    return figure


class Picture(Figure):
    """A matplotlib figure that displays itself in notebooks, on a white background."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings: Any = rcParams
        self._saved_style: Any = {name: settings[name] for name in _SAVED_STYLE}

    def savefig(
        self, fname: str | PathLike[str] | IO[bytes], *, transparent: bool | None = None, **kwargs: Any
    ) -> None:
        """Save the figure, with the kinds of fonts that rcParams stated when it was drawn."""
        with rc_context(self._saved_style):
            super().savefig(fname, transparent=transparent, **kwargs)

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        FigureCanvasAgg(self)
        self.savefig(buffer, format="png", dpi=self.dpi, facecolor="white", edgecolor="none", bbox_inches=None)
        return buffer.getvalue()


@dataclass(frozen=True)
class Heading:
    """The text above one sample: a title, and a smaller subtitle, fitted to the width of the figure."""

    title: str
    subtitle: str = ""

    def fitted(self) -> Heading:
        """Return the heading with the line breaks that the width needs."""
        width = page_width() - 2 * MARGIN
        return Heading(fit(self.title, width, title_size()), fit(self.subtitle, width, text_size()))

    @property
    def _title_height(self) -> float:
        return text_height(self.title, title_size()) if self.title else 0.0

    @property
    def height(self) -> float:
        return self._title_height + (text_height(self.subtitle, text_size()) if self.subtitle else 0.0)

    def write(self, figure: Picture, top: float) -> None:
        if self.title:
            write(figure, MARGIN, top, self.title, title_size())
        if self.subtitle:
            write(figure, MARGIN, top + self._title_height, self.subtitle, text_size(), color="0.35")


def page(height: float, note: str) -> Picture:
    """Return a white figure with the note, if there is one, at its bottom."""
    width, size = page_width(), text_size()
    note = fit(note, width - 2 * MARGIN, size)
    height += 0.1 + (text_height(note, size) if note else 0.0)
    figure = white_figure(width, height)
    if note:
        write(figure, width / 2, height - text_height(note, size), note, size, ha="center", style="italic")
    return figure


def panel_at(figure: Picture, left: float, top: float, width: float, height: float) -> Axes:
    """Add a panel at a position."""
    across, down = figure.get_figwidth(), figure.get_figheight()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def write(figure: Picture, left: float, top: float, text: str, size: float, **style: Any) -> None:
    """Write a text at a position."""
    at = (left / figure.get_figwidth(), 1 - top / figure.get_figheight())
    figure.text(*at, text, fontsize=size, va="top", linespacing=1.25, **style)


def text_height(text: str, size: float) -> float:
    """Return the height of a text, with a small margin below."""
    return (text.count("\n") + 1) * size * _LINE_HEIGHT + 0.06


def text_width(text: str, size: float) -> float:
    """Return the width of a text's longest line."""
    scratch = Figure(dpi=_DPI)
    FigureCanvasAgg(scratch)
    return scratch.text(0, 0, text, fontsize=size).get_window_extent().width / _DPI


def fit(text: str, width: float, size: float) -> str:
    """Wrap each line of the text that is wider than the width into as few lines as fit.

    A share of the width stays free, because a text is not equally wide in every resolution.
    """
    return "\n".join(_fit_line(line, _USED_WIDTH * width, size) for line in text.split("\n"))


def _fit_line(text: str, width: float, size: float) -> str:
    if not text or text_width(text, size) <= width:
        return text
    for sign in "≤≥≈":
        text = text.replace(f" {sign} ", f"\u00a0{sign}\u00a0")  # a bound stays on one line
    for characters in range(120, 8, -4):
        lines = wrap(text, characters, break_on_hyphens=False)
        if max(text_width(line, size) for line in lines) <= width:
            break
    return "\n".join(lines)
