"""Draw a table as a figure (one panel per metric, means with intervals), and curves of metrics over the radius."""

import io
from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from proofmap.bench.statistics import Cell, Column, Table
from proofmap.plots.figure_look import LINE_COLOURS, Look, figure_of
from proofmap.plots.figure_page import PLAIN_STYLE, Picture, fit, page_width, scaled, white_figure

_PAPER = "#777777"
_MAX_RANGE_RATIO = 4  # points of the paper are left out if they would enlarge the axis by more than this factor


def drawn(table: Table, look: Look | None = None) -> Picture:
    """Draw the table. Orange: best or tied with the best. Hollow: the number of the paper, if it is near.

    The panels of `look` are the names of the metrics.
    """
    look = look or Look()
    names = look.chosen([column.name for column in table.columns])
    columns = [next(column for column in table.columns if column.name == name) for name in names]
    if look.ax is not None:
        panels = look.axes(len(columns))
        with rc_context({"text.parse_math": False}):
            for panel, column in zip(panels, columns, strict=True):
                _draw(panel, table, column, look, labelled=panel is panels[0])
            for panel, title in zip(panels, look.titles([_label(column) for column in columns]), strict=True):
                panel.set_title(title)
        return figure_of(panels)
    with rc_context(PLAIN_STYLE):
        return _page(table, columns, look)


def _page(table: Table, columns: Sequence[Column], look: Look) -> Picture:
    """Draw on a white page of its own."""
    natural = 1.9 + 2.3 * len(columns)
    width = page_width(natural)
    across = len(columns) if width >= 0.7 * natural else max(1, int((width - 1.2) / 1.6))  # panels in a row
    down = -(-len(columns) // across)
    height = 1.1 + 0.3 * len(table.rows) * down + 0.35 * (down - 1)
    figure = white_figure(width, height, layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for panel in panels[len(columns) :]:
        panel.set_axis_off()
    for panel, column in zip(panels, columns, strict=False):
        _draw(panel, table, column, look, labelled=True)
        panel.set_title(_label(column), fontsize=scaled(10))
        panel.tick_params(axis="y", labelsize=scaled(9))
        panel.tick_params(axis="x", labelsize=scaled(8))
    heading = look.heading(table.heading())
    if heading:
        figure.suptitle(fit(heading, 0.98 * width, scaled(11)), fontsize=scaled(11))
    hollow = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    marked = "orange" if look.cmap is None else "the second colour"
    note = f"mean and 95 % interval over samples; {marked}: best, or not significantly different from the best"
    note = note if table.count > 1 else "one sample: no intervals and no marks"
    note += "; hollow: the number of the paper, if it is near" if hollow else ""
    figure.supxlabel(fit(note, 0.98 * width, scaled(8)), fontsize=scaled(8), color="0.35")
    return figure


def _label(column: Column) -> str:
    return f"{column.label} {'↑' if column.higher else '↓'}"


def _draw(panel: Axes, table: Table, column: Column, look: Look, labelled: bool) -> None:
    """Draw the means and intervals of a metric, one line for each method."""
    methods = list(table.rows)
    heights = range(len(methods), 0, -1)
    plain, best = look.pair
    for height, method in zip(heights, methods, strict=True):
        cell = table.rows[method].get(column.name)
        if cell is None:
            continue
        shade = best if cell.mark in ("best", "tied") else plain
        panel.plot([cell.low, cell.high], [height, height], color=shade, linewidth=2, solid_capstyle="butt")
        panel.plot(cell.mean, height, "o", color=shade, markersize=5)
        if cell.paper is not None:
            panel.plot(cell.paper, height, "o", color=_PAPER, markersize=5, fillstyle="none")
    _leave_room(panel, [cells[column.name] for cells in table.rows.values() if column.name in cells])
    panel.set_yticks(list(heights), methods if labelled else [""] * len(methods))
    panel.set_ylim(0.4, len(methods) + 0.6)
    panel.xaxis.set_major_locator(MaxNLocator(4))
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)


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
