"""Certificates about outputs that were changed: another output, direction or limit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.dossiers import small_dossier
from tests.proof.forged import X, answer, changed, folder_with, rejected
from tests.proof.making import BALL, members_of, npy, onnx_file, output_members, write

MASK = np.array([0, 1, 1, 2])
STATED: dict[str, Any] = {"kind": "output", "entries": [1], "reduce": None, "direction": "up", "centre": "0.25"}
REGION = {**STATED, "entries": [0, 1], "reduce": "maximum"}
folder = folder_with((4, 4, 3), 7)
LABEL: dict[str, Any] = {"kind": "label", "entry": 2, "on": True}


def upper_ends(members: dict[str, bytes]) -> dict[str, bytes]:
    """Without what is reached at points, so that the limits alone are wrong."""
    claim = json.loads(members["claim.json"])
    claim["claims"] |= {"lower": None, "points": None, "reals": {"upper": "reals-upper.npy", "lower": None}}
    kept = {name: data for name, data in members.items() if "lower" not in name and name != "points.npy"}
    return {**kept, "claim.json": json.dumps(claim).encode()}


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (STATED, {"entries": [2]}, "not proven"),  # its limit is another one
    (STATED, {"direction": "down"}, "not proven"),
    (STATED, {"direction": "both"}, "not proven"),
    (STATED, {"centre": "0.2"}, "not proven"),
    (STATED, {"centre": "-9"}, "not proven"),
    (STATED, {"entries": [3]}, "do not fit the network"),
    (STATED, {"entries": [-1]}, "do not fit the network"),
    (STATED, {"entries": [True]}, "do not fit the network"),
    (STATED, {"entries": [1.0]}, "do not fit the network"),
    (STATED, {"entries": []}, "do not fit the network"),
    (STATED, {"entries": 1}, "do not fit the network"),
    (STATED, {"entries": [1, 1], "reduce": "mean"}, "one comes twice"),
    (STATED, {"entries": [2**70]}, "do not fit the network"),
    (STATED, {"entries": [0, 1]}, "in no known way"),
    (STATED, {"reduce": "mean"}, "in no known way"),
    (STATED, {"reduce": "minimum"}, "in no known way"),
    (STATED, {"direction": "Up"}, "in no known way"),
    (STATED, {"direction": ["up"]}, "in no known way"),
    (STATED, {"direction": None}, "in no known way"),
    (REGION, {"direction": "down"}, "in no known way"),
    (REGION, {"direction": "both"}, "in no known way"),
    (REGION, {"entries": [0, 2]}, "not proven"),
    (REGION, {"entries": [0, 1, 2]}, "not proven"),
    *(
        (STATED, {"centre": wrong}, "centre is no number")
        for wrong in ("nan", "inf", "1e999", "0.25\n", "", None, 0.25)
    ),
    (STATED, {"kind": "decision"}, "it states none of"),
    (STATED, {"kind": None}, "it states none of"),
    (STATED, {"kind": ["output"]}, "it states none of"),
    (STATED, {"kind": "label"}, "other fields than entry on"),
    (STATED, {"limit": "9"}, "other fields than entries reduce direction centre"),
    (LABEL, {"entry": 1}, "not proven"),
    (LABEL, {"on": False}, "not proven"),
    (LABEL, {"on": 1}, "neither on nor off"),
    (LABEL, {"entry": 3}, "do not fit the network"),
    (LABEL, {"entry": None}, "do not fit the network"),
    (LABEL, {"threshold": "-9"}, "other fields than entry on"),
]


@pytest.mark.parametrize(("honest", "fields", "why"), WRONG, ids=str)
def test_another_statement_is_refused(honest: dict[str, Any], fields: dict[str, Any], why: str, folder: Path) -> None:
    members = upper_ends(output_members(folder / "net.onnx", X, MASK, honest))
    assert answer(folder, members).upper(0) < np.inf
    assert why in rejected(folder, changed(members, **fields))


@pytest.mark.parametrize("name", ["upper.npy", "reals-upper.npy"])
@pytest.mark.parametrize("member", range(4))
@pytest.mark.parametrize("value", ["less", "nan", "-inf"])
def test_another_limit_is_refused(name: str, member: int, value: str, folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    array = checker.read_array(members[name]).copy()
    array[member] = np.nextafter(array[member], -1e9) if value == "less" else float(value)
    assert "not proven" in rejected(folder, {**members, name: npy(array)})


@pytest.mark.parametrize("name", ["lower.npy", "reals-lower.npy"])
@pytest.mark.parametrize("value", ["more", "nan", "inf"])
def test_another_reached_end_is_refused(name: str, value: str, folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    array = checker.read_array(members[name]).copy()
    array[0] = np.nextafter(array[0], 1e9) if value == "more" else float(value)
    assert "not reached" in rejected(folder, {**members, name: npy(array)})


def test_a_looser_limit_is_printed_as_it_is_claimed(folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    looser = {name: npy(np.full(4, 100.0)) for name in ("upper.npy", "reals-upper.npy")}
    claim = answer(folder, {**members, **looser})
    assert "output 1 is at most 100.25 for every input" in claim.statement.verdict(claim)


@pytest.mark.parametrize("version", [3, 4, 6, 5.0, "5", True, None])
def test_a_statement_belongs_to_its_version(version: Any, folder: Path) -> None:
    """A checker that does not know the field refuses it, and so does this one in older versions."""
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    claim = json.loads(members["claim.json"])
    claim["version"] = version
    why = rejected(folder, {**members, "claim.json": json.dumps(claim).encode()})
    expected = {3: "other fields than input model ball", 4: "other fields than input model ball", 6: "reads 3 to 5"}
    assert expected.get(version if type(version) is int else 0, "another version") in why


@pytest.mark.parametrize("more", [{"target": 1}, {"rivals": [0]}, {"classes": checker.ONE_OUTPUT}], ids=str)
def test_a_statement_and_a_decision_do_not_mix(more: dict[str, Any], folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    claim = json.loads(members["claim.json"]) | more
    assert "other fields than input model ball" in rejected(
        folder, {**members, "claim.json": json.dumps(claim).encode()}
    )
    decision = members_of(folder / "net.onnx", X, MASK, 0)
    claim = json.loads(decision["claim.json"]) | {"statement": STATED}
    assert "other fields" in rejected(folder, {**decision, "claim.json": json.dumps(claim).encode()})


def test_a_version_that_states_nothing_is_refused(folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    claim = json.loads(members["claim.json"])
    del claim["statement"]
    assert "it states none of" in rejected(folder, {**members, "claim.json": json.dumps(claim).encode()})


def test_probabilities_behind_a_softmax_have_no_limits(folder: Path, tmp_path: Path) -> None:
    """The checker takes the Softmax off: limits of what is left would be limits of logits."""
    model = onnx.load(folder / "net.onnx")
    model.graph.node[-1].output[0] = "logits"
    model.graph.node.append(helper.make_node("Softmax", ["logits"], ["y"], axis=1))
    (tmp_path / "soft.onnx").write_bytes(model.SerializeToString())
    for fields in (STATED, LABEL):
        with pytest.raises(checker.Rejected, match="Softmax at the end is taken off"):
            output_members(tmp_path / "soft.onnx", X, MASK, fields)


def test_a_threshold_follows_from_the_file(tmp_path: Path) -> None:
    """A file that ends in Sigmoid has labels at 1/2, one that ends in Tanh at 0."""
    for op, threshold in (("Sigmoid", "0.5"), ("Tanh", "0"), ("Relu", "0")):
        nodes = [helper.make_node("Gemm", ["x", "w"], ["z"]), helper.make_node(op, ["z"], ["s"])]
        nodes.append(helper.make_node("Reshape", ["s", "r"], ["y"]))
        held = {"w": np.eye(4, dtype=np.float32), "r": np.array([1, 2, 2])}
        network = checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 4], nodes, held), (4,))
        label = checker.read_statement({"version": 5, "statement": dict(LABEL)}, network)
        assert isinstance(label, checker.LabelState)
        assert label.centre == threshold
        assert label.name == "output (1, 0)"


def test_a_tree_of_a_row_that_is_not_there_is_refused(folder: Path) -> None:
    members = output_members(folder / "net.onnx", X, MASK, STATED)
    low, high = checker.read_array(members["intervals.npy"])
    opened = int(((low < 0) & (high > 0)).sum())
    leaf = {"tree.npy": np.array([-1]), "slopes.npy": np.zeros((1, opened), np.uint8)}
    leaf["multipliers.npy"] = np.zeros((1, opened), np.float16)
    for row, good in ((0, True), (1, False), (-1, False)):
        more = {name: npy(array) for name, array in {**leaf, "roots.npy": np.array([row])}.items()}
        if good:
            answer(folder, {**members, **more})
        else:
            assert "a tree is of no rival" in rejected(folder, {**members, **more})


def test_a_dossier_is_about_decisions(tmp_path: Path) -> None:
    members = small_dossier(tmp_path)
    stated = json.loads(members["samples.json"])
    one = next(each for each in stated["samples"] if "certificate" in each)
    model = next(name for name in members if name.startswith("model/"))
    (tmp_path / "net.onnx").write_bytes(members[model])
    x = checker.read_array(members[one["input"]])
    made = output_members(tmp_path / "net.onnx", x, np.zeros(x.shape, int), {**STATED, "entries": [0]}, BALL)
    members[one["certificate"]] = write(tmp_path / "o.proof", made).read_bytes()
    with pytest.raises(checker.Rejected, match="it is about outputs, and the texts of this dossier are about"):
        checker.prove_dossier(members, model, stated["samples"])
