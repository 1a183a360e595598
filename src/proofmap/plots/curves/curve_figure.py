"""The figure of `pm.curve`: AO against ε between its proven upper and its attained lower bound, with the radii."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from proofmap.plots.curves.overlap_curve import OverlapCurve
from proofmap.plots.figure_look import Look, figure_of, line_colour
from proofmap.plots.figure_page import PLAIN_STYLE, Picture, fit, page_width, scaled, text_size, white_figure

_MAX_PANELS = 12  # samples in one figure
_MAX_COLUMNS = 3  # panels side by side
_PANEL_WIDTH, _PANEL_HEIGHT = 3.1, 2.5  # inches
_RADIUS_DIGITS = 3  # digits of a radius in a title, rounded to the side on which the statement stays true
_WIDE_PANEL = 5.0  # width of a single panel
_LEGEND_WIDTH = 6.5  # inches: on a narrower page the legend has two columns


def draw_overlap_curve(curve: OverlapCurve, look: Look) -> Picture:
    """Draw one panel for each sample; the panels of `look` are the numbers of samples."""
    samples = look.chosen(range(len(curve)), range(min(len(curve), _MAX_PANELS)))
    titles = look.titles([_title(curve, k) for k in samples])
    if look.ax is not None:
        panels = look.axes(len(samples))
        for panel, k, title in zip(panels, samples, titles, strict=True):
            _draw(panel, curve, k, look)
            width = float(panel.get_window_extent().width / panel.figure.figure.dpi)
            panel.set_title(fit(title, width, float(panel.title.get_fontsize())))
        panels[-1].legend(fontsize="small", framealpha=0.85)
        return figure_of(panels)
    with rc_context(PLAIN_STYLE):
        columns = min(len(samples), _MAX_COLUMNS)
        width = page_width(_WIDE_PANEL if columns == 1 else _PANEL_WIDTH * columns)
        columns = max(1, min(columns, int(width / 2.2)))
        rows, size = -(-len(samples) // columns), text_size()
        height = min(_PANEL_HEIGHT, max(1.6, 0.75 * width / columns)) * rows + 0.55
        figure = white_figure(width, height, layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
        for panel in panels[len(samples) :]:
            panel.set_axis_off()
        for at, (panel, k, title) in enumerate(zip(panels, samples, titles, strict=False)):
            _draw(panel, curve, k, look)
            panel.set_title(fit(title, 0.85 * width / columns, scaled(8.5)), fontsize=scaled(8.5))
            panel.tick_params(labelsize=size)
            panel.set_xlabel(panel.get_xlabel() if at >= len(samples) - columns else "", fontsize=size)
            panel.set_ylabel(panel.get_ylabel() if at % columns == 0 else "", fontsize=size)
        wide = 4 if width >= _LEGEND_WIDTH else 2
        keys = panels[0].get_legend_handles_labels()
        figure.legend(*keys, loc="outside lower center", ncols=wide, fontsize=size, frameon=False)
        return figure


def _title(curve: OverlapCurve, k: int) -> str:
    """Return the verdict: "class 4 · proven for ε ≤ 0.0268, refuted for ε ≥ 0.0603"."""
    proven, refuted = float(curve.radius.proven[k]), float(curve.radius.refuted[k])
    note = "" if curve.radius.rigorous else " (rounding is not covered)"
    holds = f"proven for ε ≤ {_rounded(proven, ROUND_FLOOR)}{note}" if proven > 0 else "not proven for any ε"
    broken = f", refuted for ε ≥ {_rounded(refuted, ROUND_CEILING)}" if np.isfinite(refuted) else ""
    return f"class {int(curve.target[k])} · {holds}{broken}"


def _rounded(value: float, rounding: str) -> str:
    return f"{float(Context(prec=_RADIUS_DIGITS, rounding=rounding).create_decimal_from_float(value)):g}"


def _draw(panel: Axes, curve: OverlapCurve, k: int, look: Look) -> None:
    eps, upper, lower = (np.asarray(each.double().cpu()) for each in (curve.eps, curve.upper[k], curve.lower[k]))
    proven, refuted = float(curve.radius.proven[k]), float(curve.radius.refuted[k])
    above, below = look.pair
    panel.fill_between(eps, lower, upper, color="0.9", linewidth=0)
    panel.plot(eps, upper, color=above, marker="v", markersize=3, linewidth=1.2, label="proven upper bound")
    panel.plot(eps, lower, color=below, marker="^", markersize=3, linewidth=1.2, label="attained lower bound")
    panel.axhline(0, color=line_colour(), linewidth=0.8)
    line: Any = {"linewidth": 1.2, "zorder": 1.5}
    first, last = float(min(eps[0], proven)), float(max(eps[-1], proven))
    panel.axvline(proven, color=above, linestyle="--", label="certified radius", **line)
    if np.isfinite(refuted) and refuted <= 1.5 * last:
        panel.axvline(refuted, color=below, linestyle=":", label="nearest adversary found", **line)
        last = max(last, refuted)
    room = 0.03 * (last - first or last or 1.0)
    panel.set_xlim(first - room, last + room)
    panel.set_xlabel(f"ε in {'L∞' if np.isinf(curve.norm) else f'L{curve.norm:g}'}")
    panel.set_ylabel("adversarial overlap AO")
    panel.spines[["top", "right"]].set_visible(False)
