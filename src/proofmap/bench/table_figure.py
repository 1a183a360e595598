"""Draw a table as a figure (one panel per metric, means with intervals), and curves of metrics over the radius."""

from __future__ import annotations

import io
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from proofmap.bench.statistics import Cell, Table
from proofmap.plots.figure_page import PLAIN_STYLE, Picture
from proofmap.plots.overlay import LINE_COLOURS

_OURS, _BEST, _PAPER = LINE_COLOURS[0], LINE_COLOURS[1], "#777777"
_MAX_RANGE_RATIO = 4  # points of the paper are left out if they would enlarge the axis by more than this factor


@rc_context(PLAIN_STYLE)
def drawn(table: Table) -> Picture:
    """Draw the table. Orange: best or tied with the best. Hollow: the number of the paper, if it is near."""
    methods = list(table.rows)
    figure = Picture(figsize=(1.9 + 2.3 * len(table.columns), 1.1 + 0.3 * len(methods)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(table.columns), sharey=True, squeeze=False)[0]
    heights = range(len(methods), 0, -1)
    for panel, column in zip(panels, table.columns, strict=True):
        for height, method in zip(heights, methods, strict=True):
            cell = table.rows[method].get(column.name)
            if cell is None:
                continue
            shade = _BEST if cell.mark in ("best", "tied") else _OURS
            panel.plot([cell.low, cell.high], [height, height], color=shade, linewidth=2, solid_capstyle="butt")
            panel.plot(cell.mean, height, "o", color=shade, markersize=5)
            if cell.paper is not None:
                panel.plot(cell.paper, height, "o", color=_PAPER, markersize=5, fillstyle="none")
        _leave_room(panel, [cells[column.name] for cells in table.rows.values() if column.name in cells])
        panel.set_title(f"{column.label} {'↑' if column.higher else '↓'}", fontsize=10)
        panel.set_yticks(list(heights), methods, fontsize=9)
        panel.tick_params(axis="x", labelsize=8)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    figure.suptitle(table.heading(), fontsize=11)
    hollow = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    note = "mean and 95 % interval over samples; orange: best, or not significantly different from the best"
    note = note if table.count > 1 else "one sample: no intervals and no marks"
    figure.supxlabel(
        note + ("; hollow: the number of the paper, if it is near" if hollow else ""), fontsize=8, color="0.35"
    )
    return figure


def _leave_room(panel: Axes, cells: list[Cell]) -> None:
    """Limit the axis to our intervals if the paper's points would make them too small."""
    papers = [cell.paper for cell in cells if cell.paper is not None]
    if not papers:
        return
    low, high = min(cell.low for cell in cells), max(cell.high for cell in cells)
    wide = high - low
    if 0 < _MAX_RANGE_RATIO * wide < max(high, *papers) - min(low, *papers):
        panel.set_xlim(low - 0.05 * wide, high + 0.05 * wide)


def draw_curves(table: Table, points: Mapping[str, tuple[str, float]]) -> bytes:
    """Return a PNG with each metric against the radius, one line per curve; points[row]: (curve, radius).

    Intervals are drawn only if there are few curves.
    """
    curves = dict.fromkeys(curve for curve, _ in points.values())
    radii = sorted({eps for _, eps in points.values()})
    few = len(curves) <= len(LINE_COLOURS)
    figure = Figure(figsize=(0.6 + 2.6 * len(table.columns), 3.3 if few else 4.1), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(table.columns), squeeze=False)[0]
    for panel, column in zip(panels, table.columns, strict=True):
        for k, curve in enumerate(curves):
            color, marker = LINE_COLOURS[k % len(LINE_COLOURS)], "osv^Dd"[k % 6]
            again = min(k // len(LINE_COLOURS), 2)  # colours repeat with dashed, then dotted lines and hollow markers
            rows = sorted(
                (eps, table.rows[row][column.name])
                for row, (of_curve, eps) in points.items()
                if of_curve == curve and column.name in table.rows[row]
            )
            eps = [one for one, _ in rows]
            if few:
                low, high = [cell.low for _, cell in rows], [cell.high for _, cell in rows]
                panel.fill_between(eps, low, high, color=color, alpha=0.15, lw=0)
            inside, line = "white" if again else color, ("-", "--", ":")[again]
            style = {"ls": line, "color": color, "mfc": inside, "ms": 4, "lw": 1.3, "label": curve}
            panel.plot(eps, [cell.mean for _, cell in rows], marker, **style)
        panel.set_title(f"{column.label} {'↑' if column.higher else '↓'}", fontsize=10)
        panel.set_xscale("log")
        panel.set_xlabel("ε", fontsize=9)
        panel.tick_params(labelsize=8)
        panel.set_xticks(radii, _ticks(radii), rotation=60, fontsize=7)
        panel.minorticks_off()
        panel.grid(color="0.92")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    figure.suptitle(f"{table.title}: means{', and 95 % intervals over samples' if few else ''}", fontsize=11)
    return png(figure)


def _ticks(radii: list[float]) -> list[str]:
    """Return the labels of the radii on a log axis; labels that would overlap are empty."""
    labels, last = [], 0.0
    for eps in radii:
        room = last == 0 or eps >= last * (radii[-1] / radii[0]) ** (1 / 14)
        labels.append(f"{eps:g}" if room else "")
        last = eps if room else last
    return labels


def png(figure: Figure) -> bytes:
    """Return a figure as PNG in print resolution."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=150, format="png")
    return stream.getvalue()
