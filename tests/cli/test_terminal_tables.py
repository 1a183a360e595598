"""Tables on a pseudo terminal and in other outputs."""

import os
import re
import sys
from contextlib import suppress

import pytest

from proofmap.cli.terminal_tables import show

MARKDOWN = """### Mean ranks

| | Deletion ↓ | seconds |
| --- | ---: | ---: |
| a &lt;b\\|c&gt; [x] | **0.086** [-0.004, 0.176] | 0.016 |
| rise | <u>0.114</u> [0.018, 0.209] / 0.2 | n/a |

Mean over samples [its 95 % interval].
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="a system without terminals of this kind")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, markdown: str, columns: int) -> str:
    """Return the output on a terminal with this number of columns."""
    for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm"), ("LINES", "50")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        show(markdown, plain="for a file")
        terminal.flush()
        monkeypatch.undo()
    found = b""
    with suppress(OSError):  # the end of the output; one read may return a part of it
        while piece := os.read(ours, 2**16):
            found += piece
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def test_a_terminal_gets_lines_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_a_terminal(monkeypatch, MARKDOWN, 80)
    assert found.startswith("\x1b[1mMean ranks\x1b[0m\n")
    assert "\x1b[1m0.086\x1b[0m [-0.004, 0.176]" in found
    assert "\x1b[4m0.114\x1b[0m [0.018, 0.209] / 0.2" in found
    assert "────" in found
    bare = re.sub(r"\x1b\[\d+m", "", found)
    assert re.search(r"^ *a <b\|c> \[x\] +0\.086 \[-0\.004, 0\.176\] +0\.016 *$", bare, re.MULTILINE)
    assert bare.endswith("Mean over samples [its 95 % interval].\n\n")
    assert not re.search(r"\*\*|<u>|---|&lt;", bare)


def test_narrow_terminals_cut_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.sub(r"\x1b\[\d+m", "", on_a_terminal(monkeypatch, MARKDOWN, 40))
    assert max(map(len, found.splitlines())) <= 40
    for word in ("0.086", "[-0.004,", "0.176]", "0.114", "0.209]", "0.016", "n/a", "rise"):
        assert word in found


def test_other_outputs_get_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(MARKDOWN)
    assert capsys.readouterr().out == MARKDOWN
    show(MARKDOWN, plain="for a file")
    assert capsys.readouterr().out == "for a file"
