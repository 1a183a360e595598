"""Print Markdown tables: drawn with lines on a terminal, and as plain text elsewhere."""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_MARK = re.compile(r"\*\*(?P<bold>.+?)\*\*|<u>(?P<underline>.+?)</u>")
_BAR = re.compile(r"(?<!\\)\|")  # between two cells


def show(markdown: str, plain: str | None = None) -> None:
    """Print Markdown: drawn tables on a terminal; elsewhere `plain`, or the Markdown itself."""
    if not sys.stdout.isatty():
        typer.echo(markdown if plain is None else plain, nl=False)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for block in re.split(r"\n{2,}", markdown.strip("\n")):
        console.print(_table(block) if block.startswith("|") else _text(block), end="\n\n")


def _table(block: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    head, _, *rows = ([_text(cell.strip()) for cell in _BAR.split(line)[1:-1]] for line in block.splitlines())
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(head):
        table.add_column(name, justify="right" if at else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _text(markdown: str) -> Text:
    """Return text with its bold and underlined parts. Headings become bold. Other markup is not interpreted."""
    from rich.text import Text

    heading, text, at = re.match(r"#+ ", markdown), Text(), 0
    words = markdown[heading.end() :] if heading else markdown
    for mark in _MARK.finditer(words):
        text.append(_bare(words[at : mark.start()])).append(_bare(mark[mark.lastgroup or 0]), style=mark.lastgroup)
        at = mark.end()
    text.append(_bare(words[at:]))
    if heading:
        text.stylize("bold")
    return text


def _bare(words: str) -> str:
    return unescape(words.replace("\\|", "|"))
