"""Certificates about outputs: their limits hold at sampled, attacked and exact points, and their words say no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.graph.onnx import as_onnx
from proofmap.proof import check as checker
from proofmap.verify.objectives import Label, Output
from tests.bounds.exact import exact_maximum
from tests.proof.forged import X, folder_with
from tests.proof.making import BALL, Array, npy, onnx_file, output_members, write

folder = folder_with((4, 6, 3), 3)
MASK = np.array([0, 1, 1, 2])
CENTRE = 0.125
FIELDS: dict[str, dict[str, Any]] = {
    "up": {"entries": [1], "reduce": None, "direction": "up"},
    "down": {"entries": [2], "reduce": None, "direction": "down"},
    "both": {"entries": [0], "reduce": None, "direction": "both"},
    "mean": {"entries": [2, 0], "reduce": "mean", "direction": "both"},
    "mean of all": {"entries": [0, 1, 2], "reduce": "mean", "direction": "down"},
    "maximum": {"entries": [2, 1], "reduce": "maximum", "direction": "up"},
}


def stated(name: str) -> dict[str, Any]:
    return {"kind": "output", **FIELDS[name], "centre": str(CENTRE)}


def forms(name: str) -> list[tuple[Array, float]]:
    """The rows of a statement, written out: coefficients of three outputs, and a constant."""
    fields = FIELDS[name]
    if fields["reduce"] == "maximum":
        return [(np.eye(3)[k], -CENTRE) for k in fields["entries"]]
    weight = np.mean([np.eye(3)[k] for k in fields["entries"]], axis=0)
    signs = {"up": [1], "down": [-1], "both": [1, -1]}[fields["direction"]]
    return [(sign * weight, -sign * CENTRE) for sign in signs]


def layers(model: Path) -> list[tuple[Array, Array]]:
    held = {one.name: onnx.numpy_helper.to_array(one).astype(float) for one in onnx.load(model).graph.initializer}
    return [(held["w0"], held["b0"]), (held["w1"], held["b1"])]


def claim_of(folder: Path, name: str) -> checker.Claim:
    members = output_members(folder / "net.onnx", X, MASK, stated(name))
    return checker.read_claim(write(folder / "a.proof", members), folder / "net.onnx", folder / "x.npy")


@pytest.mark.parametrize("name", FIELDS)
def test_the_exact_extreme_is_inside_the_claim(name: str, folder: Path) -> None:
    """Every activation pattern of the network, on B and on every B_u."""
    claim = claim_of(folder, name)
    low, high = np.maximum(X.astype(float) - 0.05, 0), np.minimum(X.astype(float) + 0.05, 1)
    for member in range(4):
        still = member - 1 == MASK
        ends = np.where(still, X, low), np.where(still, X, high)
        most = max(exact_maximum(layers(folder / "net.onnx"), row, *ends)[0] + shift for row, shift in forms(name))
        for upper, lower in claim.ends:
            assert lower[member] <= most + 1e-6
            assert most <= upper[member] + 1e-6
            assert upper[member] <= most + 0.5  # not vacuous


@pytest.mark.parametrize("name", FIELDS)
def test_the_printed_limits_and_change_contain_sampled_outputs(name: str, folder: Path) -> None:
    claim = claim_of(folder, name)
    net = pm.load(folder / "net.onnx").to(torch.device("cpu"), torch.float64)
    random = np.random.default_rng(0)
    steps = np.concatenate([random.uniform(-0.05, 0.05, (2000, 4)), random.choice([-0.05, 0.05], (2000, 4))])
    points = torch.from_numpy(np.clip(X + steps, 0, 1)).double()
    outputs = net(points).numpy()
    fields, at_x = FIELDS[name], net(torch.from_numpy(X)[None].double()).numpy()
    value, start = (
        some[:, fields["entries"]].max(1) if fields["reduce"] == "maximum" else some[:, fields["entries"]].mean(1)
        for some in (outputs, at_x)
    )
    words = claim.statement.verdict(claim)
    number = r"(-?[\d.]+(?:E-?\d+)?)"
    if fields["direction"] == "both":
        low, high = map(float, re.findall(f"is between {number} and {number} for every", words)[0])
        assert low <= value.min() <= value.max() <= high
        moved = np.abs(value - start).max()
    elif fields["direction"] == "up":
        (limit,) = re.findall(f"is at most {number} for every", words)
        assert value.max() <= float(limit)
        moved = (value - start).max()
    else:
        (limit,) = re.findall(f"is at least {number} for every", words)
        assert value.min() >= float(limit)
        moved = (start - value).max()
    assert moved <= claim.changes[0]
    assert fields["direction"] == "both" or claim.changes[0] <= moved + 0.5  # the centre is not the value at x
    assert words.startswith("Proven: ")
    assert words.endswith("with values in [0, 1]. This holds in real and in float32 arithmetic.")


def test_every_word_of_the_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = output_members(folder / "net.onnx", X, MASK, stated("mean"))
    files = [str(write(folder / "a.proof", members)), str(folder / "net.onnx"), str(folder / "x.npy")]
    assert checker.main(files) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Proven: the mean of the 2 outputs (2, 0) is between ")
    assert "outputs, numbered in C order: 2 0" in lines
    assert any(line.startswith("change: the change from the value at the input itself is at most ") for line in lines)
    assert any("<= largest distance of the mean of the 2 outputs (2, 0) from 0.125 on B <= " in line for line in lines)


def test_numbers_are_rounded_to_the_true_side() -> None:
    up = checker.OutputLimit([0], None, "up", "0.1", (1, 2))
    assert up.limits(0.2000001) == "at most 0.300001"
    assert up.range_in_words(-0.0000001, 0.2, "B") == "0.0999999 <= largest value of output 0 on B <= 0.300001"
    down = up._replace(direction="down")
    assert down.limits(0.2) == "at least -0.100001"
    assert down.range_in_words(0.1, 0.2, "B") == "-0.100001 <= smallest value of output 0 on B <= -5.55111E-18"
    both = up._replace(direction="both")
    assert both.limits(float("inf")) == "between -∞ and ∞"
    assert both.limits(0.1) == "between -5.55112E-18 and 0.200001"


def test_outputs_of_a_map_are_named_by_their_axes() -> None:
    mean = checker.OutputLimit([0, 5], "mean", "up", "0", (1, 2, 3))
    assert mean.name == "the mean of the 2 outputs ((0, 0), (1, 2))"
    assert (
        checker.OutputLimit([*range(9)], "maximum", "up", "0", (9,)).name
        == "the largest of the 9 outputs that are listed below"
    )


def test_a_claim_without_a_limit_proves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = output_members(folder / "net.onnx", X, MASK, stated("up"))
    members |= {name: npy(np.full(4, np.inf)) for name in ("upper.npy", "reals-upper.npy")}
    members |= {name: npy(np.full(4, -np.inf)) for name in ("lower.npy", "reals-lower.npy")}
    files = [str(write(folder / "a.proof", members)), str(folder / "net.onnx"), str(folder / "x.npy")]
    assert checker.main(files) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "NOT proven: no limit of output 1 is claimed. The claimed bounds are correct."
    assert not any(line.startswith("change") for line in rest)


def test_a_limit_of_the_reals_alone_is_named_as_such(folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, stated("up"))
    claim = checker.read_claim(
        write(folder / "a.proof", {**members, "upper.npy": npy(np.full(4, np.inf))}),
        folder / "net.onnx",
        folder / "x.npy",
    )
    words = claim.statement.verdict(claim)
    assert words.startswith("Proven over the reals only, NOT in float32: output 1 is at most ")
    assert "float32 arithmetic" not in words


# --- certificates of explanations ---


def small() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    layers.eval()
    return layers


OBJECTIVES: dict[str, Output | Label] = {
    "up": Output(1, "up"),
    "down": Output(2, "down"),
    "both": Output(0, "both", name="score", unit="points"),
    "mean": Output((slice(0, 3),), "both"),
    "maximum": Output((slice(1, 3),), "up", reduce="maximum"),
    "label": Label(1),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("bounds", [None, pm.bounds.Exact(gap=1e-4)], ids=["one pass", "exact"])
def test_explanations_of_outputs_have_certificates(name: str, bounds: Any, tmp_path: Path) -> None:
    x = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    found = pm.EVA(small(), pm.Ball(0.2), objective=OBJECTIVES[name], bounds=bounds, progress=False).explain(x)
    for k in range(2):
        made = found.certificate(k, progress=False)
        claim = checker.read_claim(*made.save(tmp_path / f"{k}.proof"))
        assert claim.upper(0) == made.full
        assert made.shortfall is None  # as strong as the explanation
        assert made.proven == claim.decided(0)
        if bounds is not None:
            assert len(made.order()) > 0
        assert claim.statement.limits(made.full) in made.summary() or not made.proven


def test_the_user_s_own_file_is_certified(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    x = torch.rand(1, 4)
    file.write_bytes(as_onnx(pm.trace(small(), x)).SerializeToString())
    found = pm.EVA(pm.load(file), pm.Ball(0.1), objective=Output(2, "up"), progress=False).explain(x)
    made = found.certificate(progress=False)
    assert made.model == file
    assert made.exported is None
    assert "output 2 is at most" in checker.check(*made.save(tmp_path / "x.proof"))


def test_a_label_behind_a_sigmoid_is_about_a_probability(tmp_path: Path) -> None:
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(small(), nn.Sigmoid())
    for k in range(3):
        found = pm.EVA(model, pm.Ball(0.05), objective=Label(k), progress=False).explain(x)
        answer = checker.check(*found.certificate(progress=False).save(tmp_path / "x.proof"))
        on = bool(model(x)[0, k] > 0.5)
        side = "on: output {} is above 0.5 for" if on else "off: output {} is below 0.5 for"
        assert answer.startswith(f"Label {k} is proven to be {side.format(k)} every input within ε = 0.05 (L∞)")


def test_one_output_of_one_is_certified_without_classes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    found = pm.EVA(model, pm.Ball(0.1), objective=Output(0, "both"), progress=False).explain(torch.rand(1, 3))
    answer = checker.check(*found.certificate(progress=False).save(tmp_path / "x.proof"))
    assert answer.startswith("Proven: output 0 is between ")
    assert "class" not in answer


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e7])
def test_outputs_of_any_unit_have_certificates_as_strong_as_their_explanations(size: float, tmp_path: Path) -> None:
    model = small()
    with torch.no_grad():
        for values in model[-1].parameters():
            values.mul_(size)
    found = pm.EVA(model, pm.Ball(0.1), objective=Output(1, "both"), progress=False).explain(torch.rand(1, 4))
    made = found.certificate(progress=False)
    assert made.shortfall is None
    checker.check(*made.save(tmp_path / "x.proof"))


def test_the_largest_of_a_region_that_falls_has_advice_that_works(tmp_path: Path) -> None:
    x, region = torch.rand(1, 4), (slice(0, 3),)
    for direction in ("down", "both"):
        lowest = Output(region, direction, reduce="maximum")
        found = pm.EVA(small(), pm.Ball(0.1), objective=lowest, progress=False).explain(x)
        with pytest.raises(InputError, match="take reduce='mean', or one output"):
            found.certificate(progress=False)
    for advised in (Output(region, "both", reduce="mean"), Output(0, "down")):
        found = pm.EVA(small(), pm.Ball(0.1), objective=advised, progress=False).explain(x)
        assert found.certificate(progress=False).proven


def test_a_softmax_at_the_end_has_advice_that_works() -> None:
    x = torch.rand(1, 4)
    whole = nn.Sequential(small(), nn.Softmax(1))
    found = pm.EVA(whole, pm.Ball(0.05), objective=Output(0, "up"), progress=False).explain(x)
    with pytest.raises(InputError, match="of the network without its last layer, or the decision"):
        found.certificate(progress=False)
    without = pm.EVA(whole[0], pm.Ball(0.05), objective=Output(0, "up"), progress=False).explain(x)
    assert without.certificate(progress=False).proven
    decision = pm.EVA(whole, pm.Ball(1e-4), progress=False).explain(x)
    assert decision.certificate(progress=False).proven == bool(decision.proven)


def test_a_change_counts_how_far_the_centre_is_from_the_value_at_the_input(tmp_path: Path) -> None:
    """The value is 0 at the input and goes up to 1, which is 0.5 from the centre 0.5 and 1 from the value."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = onnx_file(tmp_path / "net.onnx", [1, 1], nodes, {})
    x = np.zeros(1, np.float32)
    (tmp_path / "x.npy").write_bytes(npy(x))
    fields = {"kind": "output", "entries": [0], "reduce": None, "direction": "both", "centre": "0.5"}
    ball = {**BALL, "eps": "1", "domain": None, "half": "+"}
    members = output_members(model, x, np.array([0]), fields, ball)
    claim = checker.read_claim(write(tmp_path / "a.proof", members), model, tmp_path / "x.npy")
    assert claim.upper(0) == pytest.approx(0.5, abs=1e-6)
    assert claim.changes[0] == pytest.approx(1.0, abs=1e-6)
    assert claim.changes[0] >= 1
