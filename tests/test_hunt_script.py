"""The hunt's script: counts, output and sums over shares."""

import json
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from fuzz.hunting import files
from fuzz.hunting.finding import Finding, Tally
from proofmap.graph.onnx.operators import operator_table as onnx_ops

SCRIPT = Path(__file__).parents[1] / "scripts" / "hunt.py"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about slow convolutions, numpy about overflow
        yield


def hunting(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """Run the script; return its exit code."""
    spec = spec_from_file_location("hunt_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["hunt.py", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # keeps the signal handlers of the tests
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    return stopped.value.code


def test_the_script_counts_and_prints_how_to_reproduce_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = str(files.turns().index("Neg") // 4)
    arguments = ("--seed", seed, "--networks", "1", "--only", "onnx")
    assert hunting(monkeypatch, *arguments) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\d+ networks, \d+ balls, \d+ points, \d+ hidden intervals, .* 4 files, .* undecided in", printed)
    assert "without a generator: none" in printed
    assert "0 findings: nothing is wrong" in printed
    monkeypatch.setitem(onnx_ops.CONVERTERS, "Neg", onnx_ops.CONVERTERS["Relu"])
    assert hunting(monkeypatch, *arguments) == 1
    printed = capsys.readouterr().out
    assert f"python scripts/hunt.py --seed {seed} --networks 1" in printed
    assert re.search(r"\d findings?: \d misread", printed)


def test_a_share_stops_in_time_and_can_be_continued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried(*arguments: str) -> tuple[int, ...]:
        assert hunting(monkeypatch, "--only", "exact", *arguments) == 0
        row = json.loads(capsys.readouterr().out.splitlines()[-1])
        return tuple(row[name] for name in ("first", "last", "every", "networks"))

    def one(_: int, tally: Tally) -> Iterator[Finding]:
        tally.networks += 1
        return iter(())

    ticks = count(0.0, 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    monkeypatch.setattr("fuzz.hunting.hunt.searches", one)
    assert tried("--seed", "10", "--networks", "40", "--share", "2/4", "--seconds", "35") == (11, 19, 4, 3)
    assert tried("--seed", str(19 + 4), "--networks", "8", "--share", "1/4") == (23, 27, 4, 2)


def test_counts_of_shares_are_summed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, rows = [], []
    for share in ("1/2", "2/2"):
        assert hunting(monkeypatch, "--seed", "379", "--networks", "2", "--only", "exact", "--share", share) == 0
        files.append(tmp_path / share.replace("/", "-of-"))
        files[-1].write_text(capsys.readouterr().out)
        rows.append(json.loads(files[-1].read_text().splitlines()[-1]))
    assert [(row["first"], row["last"], row["every"]) for row in rows] == [(379, 379, 2), (380, 380, 2)]
    assert hunting(monkeypatch, "--add", *map(str, files)) == 0
    total = json.loads(capsys.readouterr().out)
    assert (total["shares"], total["networks"], total["findings"]) == (2, 2, 0)
    for name in ("points", "splits", "parts", "closed", "enumerated"):
        assert total[name] == sum(row[name] for row in rows)
    assert total["splits"] > 0
    assert total["operations"]["linear"] == sum(row["operations"]["linear"] for row in rows)
    assert total["rounding"] == max(row["rounding"] for row in rows)
    files[0].write_text(json.dumps({**rows[0], "findings": 1}))
    assert hunting(monkeypatch, "--add", *map(str, files)) == 1


@pytest.mark.slow  # torch is imported once more
def test_tiny_networks_need_no_onnx() -> None:
    gone = (
        "import runpy, sys; from importlib.machinery import PathFinder as P; find = P.find_spec;"
        "P.find_spec = classmethod(lambda cls, name, *a: None if name.startswith('onnx') else find(name, *a));"
        "sys.argv = ['hunt.py', '--only', 'exact', '--networks', '1', '--seed', '379'];"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    printed = run([sys.executable, "-c", gone], check=True, capture_output=True, text=True).stdout
    assert json.loads(printed.splitlines()[-1])["split"] == 1


def test_shares_are_every_other_seed_and_none_may_be_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hunting(monkeypatch, "--seed", "3", "--networks", "4", "--only", "exact", "--share", "2/3") == 0
    assert "seeds 4 to 4, every 3: 1 networks" in capsys.readouterr().out
    for share in ("3/2", "0/2", "2", "a/b"):
        assert hunting(monkeypatch, "--networks", "4", "--share", share) == 2
        assert f"got {share!r}, expected K/N with K from 1 to N" in capsys.readouterr().err
    assert hunting(monkeypatch, "--networks", "4", "--share", "5/5") == 2
    assert "got 4 networks, too few for 5 shares, expected at least 5" in capsys.readouterr().err
