"""Format a table of methods and metrics as text columns, Markdown, HTML or LaTeX, with a legend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from proofmap.storage.exported_tables import latex_text

if TYPE_CHECKING:
    from proofmap.bench.marks import Mark
    from proofmap.bench.statistics import Cell, Table

MARKDOWN_LEGEND = (
    "Bold: the best mean; ≈: not significantly different from the best; underlined: the best of the other means; "
    "underlined with ≈: another mean that is not significantly different from it"
)
_PLAIN_LEGEND = (
    "best: the best mean; ≈: not significantly different from the best; second: the best of the other means; second "
    "≈: another mean that is not significantly different from it"
)
_TEST = "Differences: paired t tests, Holm's correction over all pairs of rows, level 5 %"
_LINE_WIDTH = 100  # characters of a line in the legend
# Formats of a mean and the rest of its cell, by mark.
_WORDS: Mapping[Mark, str] = {
    "best": "{}{} best",
    "tied": "{}{} ≈",
    "second": "{}{} second",
    "tied second": "{}{} second ≈",
    "": "{}{}",
}
_MARKDOWN: Mapping[Mark, str] = {
    "best": "**{}**{}",
    "tied": "{} ≈{}",
    "second": "<u>{}</u>{}",
    "tied second": "<u>{}</u> ≈{}",
    "": "{}{}",
}
_HTML: Mapping[Mark, str] = {**_MARKDOWN, "best": "<b>{}</b>{}"}
_LATEX: Mapping[Mark, str] = {
    "best": r"\textbf{{{}}}{}",
    "tied": r"{} $\approx${}",
    "second": r"\underline{{{}}}{}",
    "tied second": r"\underline{{{}}} $\approx${}",
    "": "{}{}",
}


def plain(table: Table) -> str:
    """Return the heading, the table in text columns, and the legend."""
    rows = [("", _heads(table)), *((_line(name), cells) for name, cells in _rows(table, _WORDS))]
    first = max(len(name) for name, _ in rows)
    widths = [max(len(cells[at]) for _, cells in rows) for at in range(len(rows[0][1]))]
    lines = [
        "  ".join([name.ljust(first), *map(str.ljust, cells[:-1], widths[:-1]), cells[-1].rjust(widths[-1])])
        for name, cells in rows
    ]
    return "\n".join([table.heading(), "", *lines, "", *wrap(legend(table, _PLAIN_LEGEND), _LINE_WIDTH)]) + "\n"


def markdown(table: Table) -> str:
    """Return Markdown with arrows for the better direction, means, intervals, and the paper's numbers after a slash."""
    heads = _heads(table)
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for name, cells in _rows(table, _MARKDOWN):
        safe = escape(_line(name), quote=False).replace("|", "\\|")
        lines.append(f"| {safe} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """Return HTML for a notebook. Names are escaped."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ["", *_heads(table)])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, cells in _rows(table, _HTML)
    )
    signs = escape(legend(table, MARKDOWN_LEGEND))
    return (
        f"<div><table><caption>{escape(table.heading())}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table><p>{signs}</p></div>"
    )


def latex(table: Table) -> str:
    """Return a LaTeX tabular with the rules of booktabs, after comments with the heading and the legend."""
    lines = [f"% {_line(text)}" for text in (table.heading(), legend(table, MARKDOWN_LEGEND), r"\usepackage{booktabs}")]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(_heads(table))}}}", r"\toprule"]
    lines += [" & ".join(["", *map(latex_text, _heads(table))]) + r" \\", r"\midrule"]
    lines += [" & ".join([latex_text(name), *map(_with_minus, cells)]) + r" \\" for name, cells in _rows(table, _LATEX)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _with_minus(cell: str) -> str:
    """Return the cell with minus signs in place of hyphens before numbers."""
    return re.sub(r"(?<![\de])-(?=\d)", "$-$", cell)


def legend(table: Table, marks: str) -> str:
    """Return the legend; marks: the text about the best and the second mean."""
    arrows = {True: "↑: higher is better", False: "↓: lower is better"}
    known = ", ".join(arrows[higher] for higher in sorted({column.higher for column in table.columns}))
    paper = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    time = "seconds: time of one explanation, without the first one."
    if table.count < 2:
        return f"One sample: no intervals and no marks. {known}. {time}"
    kind = f"[95 % interval: {interval_words(table.count)}]"
    numbers = f"Mean over samples {kind}" + (" / number of the paper" if paper else "")
    unranked = [column.label for column in table.columns if not column.ranked]
    scales = [f"{label} has no marks, because it grows with the scale of a map." for label in unranked]
    return " ".join([f"{numbers}. {known}. {marks}. {_TEST}.", *scales, time])


def interval_words(count: int) -> str:
    """Return how the 95 % interval of this many samples is computed."""
    from proofmap.bench.statistics import interval_kind  # which imports this module

    return {"bootstrap": "bootstrap over samples", "Student's t": "Student's t", "": "none"}[interval_kind(count)]


def _heads(table: Table) -> list[str]:
    return [*(f"{column.label} {'↑' if column.higher else '↓'}" for column in table.columns), "seconds"]


def _rows(table: Table, marks: Mapping[Mark, str]) -> list[tuple[str, list[str]]]:
    """Return the methods with their cells. One with fewer samples than others states them and its interval."""
    rows = []
    for method, cells in table.rows.items():
        took = table.seconds[method]
        shown = [_cell(cells.get(column.name), marks) for column in table.columns]
        rows.append((method + _few(table, cells), [*shown, "n/a" if took is None else f"{took:.2g}"]))
    return rows


def _few(table: Table, cells: Mapping[str, Cell]) -> str:
    count = max((cell.count for cell in cells.values()), default=0)
    if not 0 < count < table.count:
        return ""
    kinds = [interval_words(count), interval_words(table.count)]
    other = f", {kinds[0]}" if count > 1 and kinds[0] != kinds[1] else ""
    return f" ({count} sample{'s' * (count != 1)}{other})"


def _cell(cell: Cell | None, marks: Mapping[Mark, str]) -> str:
    """Return mean, interval, and the paper's number after a slash."""
    if cell is None:
        return "n/a"
    between = f" [{cell.low:.3f}, {cell.high:.3f}]" if cell.count > 1 else ""
    paper = "" if cell.paper is None else f" / {cell.paper:g}"
    return marks[cell.mark].format(f"{cell.mean:.3f}", between + paper)


def _line(text: str) -> str:
    """Return a label on one line."""
    return " ".join(text.split())
