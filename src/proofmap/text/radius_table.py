"""Robustness radii as a line of text and as an HTML table with a bar for each sample."""

from collections.abc import Sequence
from decimal import ROUND_CEILING
from math import isfinite

from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.wording import plural, radius

_MAX_ROWS = 20  # samples in a table
_BAR_WIDTH, _BAR_HEIGHT = 240, 12  # pixels
_PROVEN, _OPEN, _REFUTED = "#0072b2", "#dddddd", "#d55e00"  # Okabe and Ito: safe for colour-blind readers
_CELL = 'style="text-align: right; padding: 2px 8px"'


def radius_line(proven: Sequence[float], refuted: Sequence[float], rigorous: bool) -> str:
    """Return "2 samples, proven 0.0165 to 0.0207, refuted 0.0285 to 0.0405"; proven radii are rounded down."""
    if not proven:
        return "no samples"
    ends = [
        " to ".join(dict.fromkeys(write(end(values)) for end in (min, max)))
        for values, write in ((proven, radius), (refuted, _upward))
    ]
    note = "" if rigorous else f"; {NOT_COVERED}"
    return f"{plural(len(proven), 'sample')}, proven {ends[0]}, refuted {ends[1]}{note}"


def radius_html(proven: Sequence[float], refuted: Sequence[float], rigorous: bool) -> str:
    """Return a table: blue up to the proven radius, grey where nothing is known, orange from the nearest adversary."""
    finite = [value for value in (*proven, *refuted) if isfinite(value)]
    end = 1.1 * max(finite, default=0.0) or 1.0
    rows = [
        f"<tr><td {_CELL}>{k}</td><td {_CELL}>{radius(low)}</td><td {_CELL}>{_upward(high)}</td>"
        f"<td>{_bar(low / end, min(1.0, high / end))}</td></tr>"
        for k, (low, high) in enumerate(zip(proven[:_MAX_ROWS], refuted[:_MAX_ROWS], strict=True))
    ]
    head = "".join(f"<th>{name}</th>" for name in ("sample", "proven up to", "refuted from", f"0 to {end:.3g}"))
    left = len(proven) - len(rows)
    more = f"<p>and {plural(left, 'more sample')}</p>" if left else ""
    legend = f"blue: proven; grey: not known; orange: an adversary was found{'' if rigorous else f'; {NOT_COVERED}'}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}<small>{legend}</small>"


def _bar(low: float, high: float) -> str:
    parts = ((0.0, low, _PROVEN), (low, high, _OPEN), (high, 1.0, _REFUTED))
    boxes = "".join(
        f'<rect x="{_BAR_WIDTH * a:.1f}" width="{_BAR_WIDTH * max(b - a, 0.0):.1f}" height="{_BAR_HEIGHT}" '
        f'fill="{colour}"/>'
        for a, b, colour in parts
    )
    return f'<svg width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" role="img">{boxes}</svg>'


def _upward(value: float) -> str:
    return radius(value, ROUND_CEILING) if isfinite(value) else "none found"
