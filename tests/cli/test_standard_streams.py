"""Closed or full stderr, in real processes."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from proofmap.runtime.progress_bar import ProgressBar, print_status
from tests.cli.invoke import PROGRAM
from tests.runs.setting import contents

SETTLED = """
import sys
from proofmap.cli import standard_streams as streams
streams.settle()
with open("results", "w") as file:
    assert file.fileno() > 2, file.fileno()
    for k in range(3):
        print("a message", file=sys.stderr, flush=True)
        sys.stderr.write("of the work\\n")
print(sys.stderr.isatty())
"""
RUN = ["--model", "zoo:mnist_mlp", "--eps", "0.01", "--groups", "grid:2", "--limit", "2", "--chunk", "1"]
FULL = [pytest.param("2>&-", id="closed"), pytest.param("2>/dev/full", id="full")]


def shell(words: list[str], end: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose descriptors a shell changed."""
    line = ["sh", "-c", f'exec "$0" "$@" {end}', *words]
    return subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("end", FULL)
def test_a_closed_stderr_does_not_stop_a_process(tmp_path: Path, end: str) -> None:
    done = shell([sys.executable, "-c", SETTLED], end, tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert (tmp_path / "results").read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_progress_bar_without_stderr_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofmap.runtime.progress_bar._MIN_LINE_SECONDS", -1)
    with suppress(OSError), Path("/dev/full").open("w") as full:  # the last flush fails too
        for stream in (None, full):
            monkeypatch.setattr("sys.stderr", stream)
            with ProgressBar(2, "work") as bar, bar.work(2):
                pass
            print_status("a message")
    monkeypatch.undo()


def test_a_message_is_not_an_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """print writes to stdout if stderr is None."""
    monkeypatch.setattr("sys.stderr", None)
    print_status("a message")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("end", FULL)
def test_a_run_with_a_closed_stderr_is_complete(tmp_path: Path, end: str) -> None:
    from tests.sources.files import digits, write_png

    images, _ = digits(2)
    (tmp_path / "data").mkdir()
    for k, image in enumerate(images):
        write_png(tmp_path / "data" / f"{k}.png", image)
    done = shell([str(PROGRAM), "run", "data", *RUN, "--json", "--out", "out"], end, tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert {"chunks/000000.safetensors", "chunks/000001.safetensors", "totals.png"} <= contents(tmp_path / "out").keys()
