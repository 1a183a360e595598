r"""Texts from outside, such as names of files, in tables that other programs open. Each reads back exactly.

In a text, `\\` stands for a backslash, and `\xe9` for a byte of a file's name that is not UTF-8. In CSV, an apostrophe
stands before a text that a spreadsheet would compute as a formula, and before one that begins with an apostrophe.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["cell_of", "one_line", "readable"]

_FORMULA = re.compile(r"'|[\t\r\n]|\s*[=+\-@＝＋－＠]")  # wide signs too
_UNREADABLE = re.compile(r"[\\\ud800-\udfff]")


def readable(text: str) -> str:
    r"""The text without lone surrogates, which no file in UTF-8 can hold.

    >>> readable("caf\udce9.png")
    'caf\\xe9.png'
    """
    return _UNREADABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """A backslash twice; Python's stand-in for a byte as that byte; any other lone surrogate by its number."""
    code = ord(found[0])
    if found[0] == "\\":
        return r"\\"
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def cell_of(value: Any) -> Any:
    """A value as CSV holds it: a text that would be computed gets an apostrophe, a number stays one.

    >>> cell_of("=1+1.png"), cell_of(-0.5)
    ("'=1+1.png", -0.5)
    """
    if not isinstance(value, str):
        return value
    text = readable(value)
    return f"'{text}" if _FORMULA.match(text) else text


def one_line(text: str) -> str:
    r"""The text as a part of one line: what is not printable, a line break among it, by its escape.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
