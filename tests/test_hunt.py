"""A small share of the hunt, the same at every run; and that it sees what is broken on purpose."""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.onnx import ops as onnx_ops
from proofmap.graph.torch import aten
from proofmap.rules import Interval, Linear
from proofmap.rules.curves import Tanh
from proofmap.rules.lines import Lines
from proofmap.rules.piecewise import ReLU
from tests.hunting import files, networks
from tests.hunting.finding import Finding, Tally
from tests.hunting.hunt import hunt


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of slow convolutions, numpy of values that overflow
        yield


def hunted(seeds: range, folder: Path, only: str) -> tuple[list[Finding], Tally]:
    tally = Tally()
    return [finding for seed in seeds for finding in hunt(seed, tally, folder, only)], tally


def test_every_operation_of_the_tables_is_drawn() -> None:
    """An operation added tomorrow needs a way to be drawn, under tests/hunting."""
    assert networks.uncovered() == set()
    assert files.uncovered() == set()


def test_the_operation_whose_turn_it_is_stands_in_its_network() -> None:
    for seed, op in enumerate(networks.turns()):
        assert op in networks.drawn(seed).network.operations(), op
    for seed, op in enumerate(files.turns()):
        assert op in [node.op_type for node in files.drawn(seed).nodes], op


def test_a_seed_draws_the_same_again() -> None:
    one, two = networks.drawn(40), networks.drawn(40)
    assert one.network.described() == two.network.described()
    assert one.described == two.described
    assert torch.equal(one.x, two.x)
    first, second = files.drawn(40), files.drawn(40)
    assert first.model().SerializeToString() == second.model().SerializeToString()


# --- a share of it ---

NETWORKS = range(302, 306)
FILES = range(300, 306)


def test_no_bound_is_violated(tmp_path: Path) -> None:
    found, tally = hunted(NETWORKS, tmp_path, "bounds")
    assert not found, "\n".join(map(str, found))
    assert tally.networks == len(NETWORKS)
    assert min(tally.balls, tally.points, tally.hidden, tally.lines, tally.bounds) > 0
    assert tally.rounding < 0.5  # what rounding takes is far from what a mistake would


def test_no_file_is_read_wrongly(tmp_path: Path) -> None:
    found, tally = hunted(FILES, tmp_path, "onnx")
    assert not found, "\n".join(map(str, found))
    assert tally.files > 3 * len(FILES)  # some draws come to nothing


# --- the script ---


def hunting(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The exit code of the script."""
    spec = spec_from_file_location("hunt_script", Path(__file__).parents[1] / "scripts" / "hunt.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["hunt.py", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the tests keep theirs
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    return stopped.value.code


def test_the_script_counts_and_says_how_to_see_a_finding_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = str(files.turns().index("Neg") // 4)
    arguments = ("--seed", seed, "--networks", "1", "--only", "onnx")
    assert hunting(monkeypatch, *arguments) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\d+ networks, \d+ balls, \d+ points, \d+ hidden intervals, .* 4 files in", printed)
    assert "without a generator: none" in printed
    assert "0 findings: nothing is wrong" in printed
    monkeypatch.setitem(onnx_ops.CONVERT, "Neg", onnx_ops.CONVERT["Relu"])
    assert hunting(monkeypatch, *arguments) == 1
    printed = capsys.readouterr().out
    assert f"python scripts/hunt.py --seed {seed} --networks 1" in printed
    assert re.search(r"\d findings?: \d misread", printed)


# --- what is broken on purpose is seen ---


def seen(op: str, folder: Path, words: str) -> bool:
    """Whether so many words are found in one of the networks, or files, whose turn it is to have the operation."""
    torch_turn = op in networks.turns()
    turns = networks.turns() if torch_turn else files.turns()
    places = [turns.index(op) + len(turns) * k for k in range(4)]
    seeds, only = (places, "bounds") if torch_turn else ([place // 4 for place in places], "onnx")
    found = (finding for seed in seeds for finding in hunt(seed, Tally(), folder, only))
    return any(words in f"{finding.kind}: {finding.what}" for finding in found)


def test_a_line_that_is_moved_by_a_thousandth_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ReLU.lines

    def moved(self: ReLU, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        lines = whole(self, node, x, slopes)
        return replace(lines, upper_bias=lines.upper_bias - 1e-3)

    monkeypatch.setattr(ReLU, "lines", moved)
    assert seen("aten.relu.default", tmp_path, "unsound: lines through")


def test_a_hidden_interval_that_is_a_little_too_small_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Tanh.interval

    def smaller(self: Tanh, node: Node, *inputs: Interval) -> Interval:
        found = whole(self, node, *inputs)
        return Interval(found.lower, found.upper - 1e-6)

    monkeypatch.setattr(Tanh, "interval", smaller)
    assert seen("aten.tanh.default", tmp_path, "unsound: a hidden value")


def test_a_sign_that_is_lost_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L taken for |L|: what a negative divisor does to a pool, in every layer."""
    monkeypatch.setattr(Linear, "magnitude", Linear.apply)
    assert seen("aten.linear.default", tmp_path, "wrong way round")


def test_a_module_that_is_read_as_another_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aten.CONVERT, "aten.erf.default", aten.CONVERT["aten.tanh.default"])
    assert seen("aten.erf.default", tmp_path, "misread")


def test_a_file_that_is_read_as_another_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_ops.CONVERT, "Neg", onnx_ops.CONVERT["Relu"])
    assert seen("Neg", tmp_path, "misread")


def test_an_error_that_nobody_raised_on_purpose_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Lines:
        raise KeyError("slope")

    monkeypatch.setattr(ReLU, "lines", broken)
    assert seen("aten.relu.default", tmp_path, "raw error: a method of bounding raised KeyError: 'slope'")
