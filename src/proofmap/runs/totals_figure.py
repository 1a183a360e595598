"""Figure of a run's totals: the histogram of the overlaps, and the mean map of each class."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from proofmap.errors import InputError
from proofmap.plots.figure_look import Look, figure_of, line_colour
from proofmap.plots.figure_page import PLAIN_STYLE, Picture, fit, page_width, scaled, white_figure
from proofmap.plots.overlay import OTHER_COLOUR, ends
from proofmap.runs.totals import Totals
from proofmap.text.verdict_wording import counted_proven
from proofmap.text.wording import quantity_of, share
from proofmap.verify.objective import decides

_FIGURE_WIDTH, _FIGURE_HEIGHT = 9.5, 4.2  # inches
_PANELS = {"overlaps": 1.0, "maps": 1.2}  # the panels with their relative widths
_MAX_MAPS = 12  # mean maps in the figure
_MAPS_PER_ROW = 4  # mean maps beside each other
_MAX_VARIABLE_NAMES = 24  # more names do not fit on the axis


def draw(totals: Totals) -> bytes:
    """Return the figure as PNG, independent of the user's matplotlib style."""
    content = BytesIO()
    with style.context("default"):
        plot_totals(totals).savefig(content, format="png", dpi=150, facecolor="white")
    return content.getvalue()


def plot_totals(totals: Totals, look: Look | None = None) -> Picture:
    """Draw the panels "overlaps" and "maps" side by side; dollar signs in names are plain text.

    Given axes take the panel "overlaps" alone, since the mean maps need an area of several axes.
    """
    look = look or Look()
    chosen = look.chosen(list(_PANELS))
    if look.ax is not None:
        if chosen != ["overlaps"]:
            raise InputError(f"got axes for the panels {chosen}, expected panels='overlaps': mean maps need a figure")
        panels = look.axes(1)
        with rc_context({"text.parse_math": False}):
            _overlaps(panels[0], totals, look)
            panels[0].set_title(look.heading(_title(totals)))
        return figure_of(panels)
    with rc_context(PLAIN_STYLE):
        shares = [_PANELS[name] for name in chosen]
        width = page_width(_FIGURE_WIDTH * sum(shares) / sum(_PANELS.values()))
        figure = white_figure(width, _FIGURE_HEIGHT * min(1.0, 0.3 + width / _FIGURE_WIDTH), layout="constrained")
        heading = look.heading("")
        if heading:
            figure.suptitle(fit(heading, 0.98 * width, scaled(11)), fontsize=scaled(11))
        sides: Any = figure.subfigures(1, len(chosen), width_ratios=shares, squeeze=False)[0]
        for name, side in zip(chosen, sides, strict=True):
            if name == "overlaps":
                panel = side.subplots()
                _overlaps(panel, totals, look)
                panel.set_title(fit(_title(totals), width * _PANELS[name] / sum(shares), scaled(9)), fontsize=scaled(9))
            else:
                _maps(side, totals, look)
        return figure


def _overlaps(panel: Axes, totals: Totals, look: Look) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    if totals.overlap is None:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "no overlaps", ha="center", va="center")
        return
    edges = np.array(totals.overlap.edges)
    sure = edges[1:] <= 0 if totals.certified is not None else np.zeros(len(edges) - 1, dtype=bool)
    colours = [look.pair[0] if yes else OTHER_COLOUR for yes in sure]
    panel.bar(edges[:-1], totals.overlap.counts, np.diff(edges), align="edge", color=colours, edgecolor="white")
    if decides(totals.objective):
        panel.axvline(0, color=line_colour(), linewidth=1)
    panel.set_xlabel(_axis_label(totals))
    panel.set_ylabel("samples")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _title(totals: Totals) -> str:
    if totals.certified is not None:
        proven = counted_proven(totals.around, rigorous=totals.rigorous)
        return f"{share(totals.certified, totals.count, 'sample')}\n{proven}\n(left of 0)"
    kinds = {
        "certified": "upper bounds",
        "probable": "probable upper bounds of the smoothed classifier",
        "sampled": "lower bounds, by samples",
        "none": "estimates",
    }
    return f"{kinds[totals.guarantee]}\n{totals.around}"


def _axis_label(totals: Totals) -> str:
    """Return the label of the histogram's axis; only margins are called overlaps."""
    if totals.guarantee == "probable":
        return "overlap AO(B) of the smoothed classifier"
    if isinstance(totals.objective, Mapping) and not decides(totals.objective):
        return f"{quantity_of(totals.guarantee, totals.objective)} in B"
    return "adversarial overlap AO(B)" if decides(totals.objective) else f"largest objective '{totals.objective}' in B"


def _maps(figure: SubFigure, totals: Totals, look: Look) -> None:
    shown = totals.classes[:_MAX_MAPS]
    if not shown:
        return
    maps = totals.maps[: len(shown)].astype(np.float64)  # (K, *shape)
    first = "" if len(shown) == len(totals.classes) else f", the first {len(shown)} of {len(totals.classes)}"
    figure.suptitle(f"mean map of each class{first}, and its samples", fontsize=scaled(10))
    signed = bool((maps < 0).any())
    low, high = ends(maps, signed)
    scale: dict[str, Any] = {"cmap": look.colours(signed), "vmin": low, "vmax": high, "interpolation": "nearest"}
    if maps.ndim not in (3, 4):
        panel = figure.subplots()
        image = panel.imshow(maps.reshape(len(maps), -1), aspect="auto", **scale)
        panel.set_yticks(range(len(shown)), [_short(entry.title, 24) for entry in shown], fontsize=scaled(8))
        if totals.columns is not None and len(totals.columns) <= _MAX_VARIABLE_NAMES:
            names = [_short(name, 16) for name in totals.columns]
            panel.set_xticks(range(len(names)), names, fontsize=scaled(8), rotation=45, ha="right")
        else:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.set_xlabel("variable")
        figure.colorbar(image, ax=panel, shrink=0.8, label="mean score")
        return
    pictures = maps.mean(axis=1) if maps.ndim == 4 else maps  # over the channels
    columns = min(_MAPS_PER_ROW, len(shown))
    panels = figure.subplots(-(-len(shown) // columns), columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, picture, entry in zip(panels, pictures, shown, strict=False):
        image = panel.imshow(picture, **scale)
        panel.set_title(f"{_short(entry.title, 11)} ({entry.count})", fontsize=scaled(8))
    figure.colorbar(image, ax=list(panels), shrink=0.8, label="mean score")


def _short(title: str, most: int) -> str:
    return title if len(title) <= most else f"{title[: most - 1]}…"
