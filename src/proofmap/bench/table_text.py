"""A table of methods and metrics as text: for a terminal, for Markdown, for a page; and what its signs mean."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proofmap.bench.statistics import Cell, Mark, Table

__all__ = ["MARKDOWN", "html", "legend", "markdown", "plain"]

MARKDOWN = "Bold: the best mean; underlined: the best of those that are told from it"
_PLAIN = "best: the best mean; second: the best of those that are told from it"
_WIDTH = 100  # of a line of words
# A mean and the rest of its cell, by how the mean is marked.
_WORDS: Mapping[Mark, str] = {"best": "{}{} best", "second": "{}{} second", "tied": "{}{} ≈", "": "{}{}"}
_MARKDOWN: Mapping[Mark, str] = {"best": "**{}**{}", "second": "<u>{}</u>{}", "tied": "{} ≈{}", "": "{}{}"}
_HTML: Mapping[Mark, str] = {**_MARKDOWN, "best": "<b>{}</b>{}"}


def plain(table: Table) -> str:
    """The heading, the table in columns, and what its signs mean."""
    rows = [("", _heads(table)), *((_line(name), cells) for name, cells in _rows(table, _WORDS))]
    first = max(len(name) for name, _ in rows)
    widths = [max(len(cells[at]) for _, cells in rows) for at in range(len(rows[0][1]))]
    lines = [
        "  ".join([name.ljust(first), *map(str.ljust, cells[:-1], widths[:-1]), cells[-1].rjust(widths[-1])])
        for name, cells in rows
    ]
    return "\n".join([table.heading(), "", *lines, "", *wrap(legend(table, _PLAIN), _WIDTH)]) + "\n"


def markdown(table: Table) -> str:
    """The table with arrows for what is better, our mean and interval, and the paper's number after a slash."""
    heads = _heads(table)
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for name, cells in _rows(table, _MARKDOWN):
        safe = escape(_line(name), quote=False).replace("|", "\\|")
        lines.append(f"| {safe} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """The same for a notebook; names are text there, whatever they hold."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ["", *_heads(table)])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, cells in _rows(table, _HTML)
    )
    signs = escape(legend(table, MARKDOWN))
    return (
        f"<div><table><caption>{escape(table.heading())}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table><p>{signs}</p></div>"
    )


def legend(table: Table, marks: str) -> str:
    """What the numbers and signs mean; marks: those for the best and the second."""
    arrows = {True: "↑: more is better", False: "↓: less is better"}
    known = ", ".join(arrows[higher] for higher in sorted({column.higher for column in table.columns}))
    paper = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    time = "seconds: of one explanation, after a first one that is not timed."
    if table.count < 2:
        return f"One sample: no interval, and nothing is called the best. {known}. {time}"
    numbers = "Mean over samples [its 95 % interval]" + (", after a slash the paper's" if paper else "")
    return f"{numbers}. {known}. {marks}; ≈: not told from the best. {time}"


def _heads(table: Table) -> list[str]:
    return [*(f"{column.label} {'↑' if column.higher else '↓'}" for column in table.columns), "seconds"]


def _rows(table: Table, marks: Mapping[Mark, str]) -> list[tuple[str, list[str]]]:
    """Each method with its cells; where it explained fewer samples than others, with how many."""
    rows = []
    for method, cells in table.rows.items():
        took = table.seconds[method]
        shown = [_cell(cells.get(column.name), marks) for column in table.columns]
        rows.append((method + _few(table, cells), [*shown, "n/a" if took is None else f"{took:.2g}"]))
    return rows


def _few(table: Table, cells: Mapping[str, Cell]) -> str:
    count = max((cell.count for cell in cells.values()), default=0)
    return f" ({count} sample{'s' * (count != 1)})" if 0 < count < table.count else ""


def _cell(cell: Cell | None, marks: Mapping[Mark, str]) -> str:
    """Mean and interval, and the paper's number after a slash."""
    if cell is None:
        return "n/a"
    between = f" [{cell.low:.3f}, {cell.high:.3f}]" if cell.count > 1 else ""
    paper = "" if cell.paper is None else f" / {cell.paper:g}"
    return marks[cell.mark].format(f"{cell.mean:.3f}", between + paper)


def _line(text: str) -> str:
    """A label on one line."""
    return " ".join(text.split())
