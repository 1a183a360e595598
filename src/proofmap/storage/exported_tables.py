r"""Exported tables: pandas data frames, reversible escapes of texts in CSV cells, and LaTeX.

In a text, `\\` means a backslash, `\u000d` a carriage return, which CSV readers take for the end of a row, and `\xe9` a
byte of a file's name that is not UTF-8. In CSV, an apostrophe precedes a text that a spreadsheet would evaluate as a
formula, and a text that begins with an apostrophe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from proofmap.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMULA = re.compile(r"'|[\t\r\n]|\s*[=+\-@＝＋－＠]")  # also full-width signs
_ESCAPED = re.compile(r"[\\\r\ud800-\udfff]")
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "∞": r"$\infty$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "σ": r"$\sigma$",
    "φ": r"$\varphi$",
    "μ": r"$\mu$",
    "µ": r"$\mu$",  # the micro sign
    "ℓ": r"$\ell$",
}
_LATEX_SIGN = re.compile("|".join(map(re.escape, _LATEX)))


def escape_surrogates(text: str) -> str:
    r"""Escape lone surrogates, which no UTF-8 file can contain, carriage returns and backslashes.

    >>> escape_surrogates("caf\udce9.png")
    'caf\\xe9.png'
    """
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Double a backslash; write Python's surrogate for a byte as that byte, and any other character by its number."""
    code = ord(found[0])
    if found[0] == "\\":
        return r"\\"
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV cell: a text that a spreadsheet would evaluate gets an apostrophe, a number stays a
    number.

    >>> csv_cell("=1+1.png"), csv_cell(-0.5)
    ("'=1+1.png", -0.5)
    """
    if not isinstance(value, str):
        return value
    text = escape_surrogates(value)
    return f"'{text}" if _FORMULA.match(text) else text


def latex_text(text: str) -> str:
    r"""Return the text for LaTeX, on one line: with special characters escaped and mathematical signs as formulas.

    >>> latex_text("50% of x_1 ↓")
    '50\\% of x\\_1 $\\downarrow$'
    """
    safe = _LATEX_SIGN.sub(lambda found: _LATEX[found[0]], " ".join(text.split()))
    return f"{{{safe[0]}}}{safe[1:]}" if safe.startswith(("[", "*")) else safe  # not an option of a row's end


def one_line(text: str) -> str:
    r"""Return the text on one line, with unprintable characters and line breaks escaped.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def data_frame(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Build a pandas data frame from column names and rows."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("a frame needs pandas, which is not installed: pip install 'proofmap[export]'") from error
    return pandas.DataFrame(list(rows), columns=list(head))
