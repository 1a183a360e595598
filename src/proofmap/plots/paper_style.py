"""The style of figures for papers: column widths, vector output with editable text, and colours for every reader."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.rcsetup import cycler

from proofmap.errors import InputError
from proofmap.plots.figure_look import LINE_COLOURS
from proofmap.settings import check_number

COLUMN_WIDTHS = {1: 3.5, 2: 7.16}  # inches: one and two columns of IEEE; other journals are within some millimetres
_FONT_SIZE = 9.0  # points; most texts of a figure are 3/4 of it
_GOLDEN_RATIO = 0.618  # height of a figure of the user's own, as a share of its width


@contextmanager
def paper(columns: int = 1, *, width: float | None = None, font_size: float = _FONT_SIZE) -> Iterator[None]:
    """Inside this block, all figures fit a paper: they have a column's width, and a vector file keeps texts as texts.

    The block sets rcParams, so that matplotlib's own figures follow it too. Their lines have the colours of Okabe and
    Ito, which colour-blind readers can distinguish. The default colour maps, magma and RdBu_r, are safe as well.

    Args:
        columns: 1 or 2 columns, 3.5 or 7.16 inches wide.
        width: Another width in inches, for instance LaTeX's length textwidth in points, divided by 72.27.
        font_size: The size of the text of the paper's captions, in points. Small texts are 3/4 of it.

    Raises:
        InputError: The number of columns is neither 1 nor 2, or a size is not above 0.

    >>> with pm.plots.paper():
    ...     figure = pm.EVA(model, ball, groups=cells).explain(x).plot()
    >>> float(figure.get_figwidth())
    3.5
    """
    if columns not in COLUMN_WIDTHS:
        raise InputError(f"paper got columns={columns!r}, expected 1 or 2, or another width=... in inches")
    for name, size in (("width", width), ("font_size", font_size)):
        if size is not None:
            check_number(f"paper got {name}", size, "a number above 0", lambda number: number > 0)
    wide = COLUMN_WIDTHS[columns] if width is None else width
    with rc_context(_settings(wide, font_size)):
        yield


def _settings(width: float, font_size: float) -> Any:
    """Return the rcParams."""
    small = 0.8 * font_size
    sizes = ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    return {
        "figure.figsize": (width, _GOLDEN_RATIO * width),
        "figure.dpi": 150,
        "savefig.dpi": 300,
        "savefig.bbox": None,  # cutting the margins would change the width
        "font.size": font_size,
        **dict.fromkeys(sizes, small),
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.2,
        "axes.prop_cycle": cycler(color=list(LINE_COLOURS)),
        "pdf.fonttype": 42,  # TrueType: many venues refuse Type 3 fonts
        "ps.fonttype": 42,
        "svg.fonttype": "none",
    }
