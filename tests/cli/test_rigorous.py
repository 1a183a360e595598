"""Proofs of verify and explain cover all rounding errors, or state that they do not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proofmap as pm
from tests.cli.invoke import answer, called
from tests.sources.files import digits

MODEL = "zoo:mnist_mlp"
BACKDOOR = """
import torch
from torch import nn

def net():
    layers = [nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]
    weights = [[[1.0], [1.0]], [[1.0, -1.0], [-1.0, 1.0]], [[0.0, 0.0], [4.0, 4.0]]]
    biases = [[2.0**17, 0.0], [-(2.0**17), 2.0**17], [0.25, 0.0]]
    for layer, weight, bias in zip(layers[::2], weights, biases):
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    return nn.Sequential(*layers)

def jumping():
    return nn.Sequential(nn.Linear(1, 2), nn.Hardshrink())

def curved():
    return nn.Sequential(nn.Linear(1, 2), nn.Tanh())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(BACKDOOR)
    (tmp_path / "rows.csv").write_text("0.5\n")
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("bounds", [(), ("--bounds", "exact", "--seconds", "0.3")])
def test_nothing_is_proven_if_rounding_exceeds_the_margin(bounds: tuple[str, ...], folder: Path) -> None:
    """relu((x + 2¹⁷) - 2¹⁷ - x) is 0 over the reals, but not in float32."""
    words = ("verify", "net.py:net", "rows.csv", "--eps", "0.001", "--no-radius", *bounds)
    found = called(*words)
    assert found.exit_code == 1
    assert "; undecided, rounding: neither proven nor refuted for the ball (ε = 0.001" in found.stdout.splitlines()[0]
    (entry,) = json.loads(called(*words, "--json").stdout)["inputs"]
    assert (entry["verdict"], entry["rigorous"], entry["rounding"]) == ("undecided", True, True)


def test_proofs_cover_all_rounding_errors(folder: Path) -> None:
    (entry,) = answer("verify", MODEL, "digit.npy", "--eps", "0.01", "--no-radius")["inputs"]
    assert (entry["verdict"], entry["rigorous"], entry["rounding"]) == ("proven", True, False)
    ball = pm.Ball(0.01, domain=(0.0, 1.0))
    over = pm.overlap(pm.zoo.mnist_mlp(), digits(1)[0], ball, rigorous=True)
    assert entry["overlap_upper_proven"] == pytest.approx(float(over.full), abs=1e-6)
    assert float(over.full) > float(pm.overlap(pm.zoo.mnist_mlp(), digits(1)[0], ball, rigorous=False).full)


def test_proofs_of_a_search_cover_all_rounding_errors(folder: Path) -> None:
    words = ("verify", MODEL, "digit.npy", "--eps", "0.02", "--no-radius")
    (entry,) = answer(*words, "--bounds", "exact", "--seconds", "20")["inputs"]
    assert (entry["verdict"], entry["rigorous"], entry["rounding"]) == ("proven", True, False)
    (loose,) = json.loads(called(*words, "--json").stdout)["inputs"]
    assert entry["overlap_upper_proven"] <= loose["overlap_upper_proven"]


def test_uncovered_rounding_is_stated(folder: Path) -> None:
    found = called("verify", "net.py:jumping", "rows.csv", "--eps", "0.001", "--no-radius")
    assert "note: floating-point rounding is not covered" in found.stderr
    found = called("verify", "net.py:curved", "rows.csv", "--eps", "0.001", "--no-radius")
    assert "rounding is not covered" not in found.stderr


def test_an_explanation_says_that_it_is_rigorous(folder: Path) -> None:
    for bounds in ((), ("--bounds", "exact")):
        answer("explain", MODEL, "digit.npy", "--eps", "0.01", "--groups", "grid:4", *bounds)
        found = pm.Explanation.load("out/digit.proofmap")
        assert found.settings["rigorous"] is True
        assert bool((found.intervals[..., 1] - found.intervals[..., 0] < 0.1).all()) == bool(bounds)
    answer("explain", MODEL, "digit.npy", "--eps", "0.01", "--groups", "grid:4", "--no-rigorous")
    found = pm.Explanation.load("out/digit.proofmap")
    assert (found.settings["rigorous"], found.overlap.rigorous) == (False, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("explain", "--eps", "0.01"), False),
        (("explain",), False),
        (("explain", "--eps", "0.01", "--rigorous"), False),
        (("explain", "--eps", "0.01", "--no-rigorous"), True),
        (("explain", "--eps", "0.01", "--method", "empirical"), False),
        (("run", "--eps", "0.01"), False),
        (("run", "--eps", "0.01", "--set", "rigorous=false"), True),
        (("run", "--eps", "0.01", "--method", "smooth"), False),
    ],
)
def test_every_proof_states_whether_rounding_is_covered(words: tuple[str, ...], told: bool, folder: Path) -> None:
    command, *more = words
    model = ("--model", MODEL) if command == "run" else (MODEL,)
    limit = ("--within", "1.5") if words == ("explain",) else ()
    found = called(command, *model, "digit.npy", *more, *limit, "--groups", "grid:2", "--out", "out")
    assert found.exit_code == 0, found.output
    assert ("rounding is not covered" in found.output) == told
    assert ("note: floating-point rounding is not covered" in found.stderr) == told


def test_the_json_states_whether_rounding_is_covered(folder: Path) -> None:
    words = ("explain", MODEL, "digit.npy", "--eps", "0.01", "--groups", "grid:2")
    assert [answer(*words, *more)["inputs"][0].get("rigorous") for more in ((), ("--no-rigorous",))] == [True, False]
    assert "rigorous" not in answer(*words, "--method", "empirical")["inputs"][0]


def test_a_method_that_proves_nothing_is_refused(folder: Path) -> None:
    found = called("explain", MODEL, "digit.npy", "--eps", "0.01", "--method", "empirical", "--rigorous")
    assert found.exit_code != 0
    assert "got --rigorous for empirical, which proves nothing, expected it with eva or targeted" in found.stderr


def test_a_bound_that_float32_cannot_prove_is_proven_in_float64(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def overlap(network: Any, x: Any, ball: pm.Ball, *, rigorous: bool = False, **how: Any) -> pm.Overlap:
        seen.append((x.dtype, rigorous))
        found = pm.overlap(network, x, ball, rigorous=rigorous, **how)
        if (x.dtype, rigorous) != (torch.float32, True):
            return found
        return pm.Overlap(torch.ones(1), torch.zeros(1, 0), found.nominal, found.target, True, rigorous=True)

    monkeypatch.setattr("proofmap.cli.commands.verify_decisions.overlap", overlap)
    (entry,) = answer("verify", MODEL, "digit.npy", "--eps", "0.01", "--no-radius")["inputs"]
    assert seen == [(torch.float32, True), (torch.float32, False), (torch.float64, True)]
    assert (entry["verdict"], entry["rounding"]) == ("proven", False)


def test_a_search_far_from_a_proof_is_not_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def overlap(*args: Any, rigorous: bool = False, **how: Any) -> pm.Overlap:
        seen.append(rigorous)
        return pm.overlap(*args, rigorous=rigorous, **how)

    monkeypatch.setattr("proofmap.cli.commands.verify_decisions.overlap", overlap)
    words = ("--no-radius", "--bounds", "exact", "--seconds")
    found = called("verify", MODEL, "digit.npy", "--eps", "0.05", *words, "0.5", "--json")
    (entry,) = json.loads(found.stdout)["inputs"]
    assert (entry["verdict"] == "proven", entry["rounding"], seen) == (False, False, [True])
    called("verify", "net.py:net", "rows.csv", "--eps", "0.001", *words, "0.5")
    assert seen == [True, True, False]
