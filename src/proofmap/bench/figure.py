"""A table as a figure: a panel for each metric, a line for each method, its mean with the interval, and the paper's.

Needs matplotlib, the extra `proofmap[plot]`.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from proofmap.bench.table import Table

_OURS, _BEST, _PAPER = "#0072b2", "#d55e00", "#777777"  # told apart by the colour-blind too


def draw(table: Table, file: Path) -> None:
    """Write the figure as PNG: orange what is best or not told from the best, hollow what the paper reports."""
    methods = list(table.rows)
    figure = Figure(figsize=(1.9 + 2.3 * len(table.columns), 1.1 + 0.3 * len(methods)), layout="constrained")
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
        panel.set_title(f"{column.label} {'↑' if column.higher else '↓'}", fontsize=10)
        panel.set_yticks(list(heights), methods, fontsize=9)
        panel.tick_params(axis="x", labelsize=8)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    figure.suptitle(table.title, fontsize=11)
    hollow = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    note = "mean and 95 % interval over samples; orange: best, or not told from the best"
    figure.supxlabel(note + ("; hollow: the paper" if hollow else ""), fontsize=8, color="0.35")
    figure.savefig(file, dpi=150, format="png")
