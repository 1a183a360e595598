"""Certificates of contrastive sets that were changed: numbers that are not proven, and points that show nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.forged import X, answer, folder_with, rejected
from tests.proof.making import BALL, Array, changed_members, contrastive_members, npy

MASK = np.array([0, 1, 2, 3])
ABOUT: dict[str, Any] = {"kind": "decision", "target": 0, "rivals": [1, 2]}
LARGE, SMALL = {**BALL, "eps": "0.4"}, {**BALL, "eps": "0.3"}
Fields = dict[str, Any]
Members = dict[str, bytes]


folder = folder_with((4, 6, 3), 4)


@pytest.fixture(scope="module")
def honest(folder: Path) -> Members:
    """The groups 0 and 2 change the class together, and no single group does."""
    return contrastive_members(folder / "net.onnx", X, MASK, ABOUT, LARGE)


def fields_of(members: Members) -> Fields:
    stated: Fields = json.loads(members["claim.json"])["statement"]
    return stated


def changed(members: Members, **fields: Any) -> Members:
    """With other fields of the statement."""
    claim = json.loads(members["claim.json"])
    claim["statement"] |= fields
    return {**members, "claim.json": json.dumps(claim).encode()}


def lines(folder: Path, members: Members) -> list[str]:
    claim = answer(folder, members)
    said: list[str] = claim.statement.verdict(claim).splitlines()
    return said


def test_what_is_changed_below_is_accepted(folder: Path, honest: Members) -> None:
    assert (fields_of(honest)["sets"], fields_of(honest)["least"]) == ([[0, 2]], 2)
    assert lines(folder, honest) == [
        "Proven: no input within ε = 0.4 (L∞) of this input, with values in [0, 1], that differs from it in at most 1 "
        "group, has another class than 0. This holds in real and in float32 arithmetic.",
        "2 groups can change this: the file has an input of the ball that changes these groups only, and the network "
        "decides otherwise there, over the reals and in float32.",
        "No set of fewer groups can: 2 is the smallest number.",
    ]


def test_a_gap_between_both_numbers_is_named(folder: Path) -> None:
    members = contrastive_members(folder / "net.onnx", X, MASK, ABOUT, SMALL)
    assert (fields_of(members)["sets"], fields_of(members)["least"]) == ([[0, 2, 3]], 2)
    said = lines(folder, members)
    assert said[-1] == "Whether fewer than 3 groups can is not decided by this file: at least 2 are needed."
    assert not any("smallest" in one for one in said)
    lower = changed_members(
        folder / "net.onnx", X, MASK, fields_of(members) | {"least": 1}, {"changed.npy": points_of(members)}, SMALL
    )
    assert lines(folder, lower)[0] == "Proven: this input has class 0. This holds in real and in float32 arithmetic."


def points_of(members: Members) -> Array:
    return checker.read_array(members["changed.npy"])


WRONG: list[tuple[Fields, str]] = [
    ({"sets": [[0]]}, "moves a group outside of its set"),
    ({"sets": [[2]]}, "moves a group outside of its set"),
    ({"sets": [[0, 1]]}, "moves a group outside of its set"),
    ({"sets": [[0, 2], [1, 3]]}, "do not fit"),
    ({"sets": []}, "do not fit"),
    ({"sets": [[]]}, "no numbers of groups"),
    ({"sets": [[0, 2, 2]]}, "a group is twice"),
    ({"sets": [[0, 4]]}, "no numbers of groups"),
    ({"sets": [[0, -2]]}, "no numbers of groups"),
    ({"sets": [[False, 2]]}, "no numbers of groups"),
    ({"sets": [[0, 2.0]]}, "no numbers of groups"),
    ({"sets": [0, 2]}, "no numbers of groups"),
    ({"sets": None}, "no numbers of groups"),
    ({"sets": "02"}, "no numbers of groups"),
    ({"least": 3}, "not proven"),
    ({"least": 5}, "not proven"),
    ({"least": 6}, "the least number of groups is none"),
    ({"least": 0}, "the least number of groups is none"),
    ({"least": -1}, "the least number of groups is none"),
    ({"least": True}, "the least number of groups is none"),
    ({"least": 2.0}, "the least number of groups is none"),
    ({"least": "2"}, "the least number of groups is none"),
    ({"least": None}, "the least number of groups is none"),
    ({"least": 2**70}, "the least number of groups is none"),
    ({"points": None}, "members that nothing names"),
    ({"points": "points.npy"}, "damaged"),  # named by the claims as well
    ({"limit": "0.5"}, "the limit is no positive number"),
    ({"about": {**ABOUT, "target": 1, "rivals": [0, 2]}}, "not proven"),
    ({"about": {**ABOUT, "rivals": [3]}}, "the classes do not fit"),
    ({"about": {**ABOUT, "rivals": []}}, "neither one nor all"),
    ({"about": {**ABOUT, "rivals": [0, 1]}}, "one comes twice"),
    ({"about": {**ABOUT, "sets": [[0]]}}, "other fields than target, rivals and classes"),
    ({"about": {**ABOUT, "kind": "contrastive"}}, "about nothing that is known"),
    ({"about": {"kind": "label", "entry": 1, "on": True}}, "not proven"),
    ({"more": 1}, "other fields than about sets points least limit"),
    ({"kind": "sufficient"}, "other fields than about free necessary"),
    ({"kind": "changed"}, "it states none of"),
]


@pytest.mark.parametrize(("fields", "why"), WRONG, ids=str)
def test_other_sets_are_refused(fields: Fields, why: str, folder: Path, honest: Members) -> None:
    assert why in rejected(folder, changed(honest, **fields))


@pytest.mark.parametrize("least", [3, 4, 5])
def test_a_least_number_that_is_not_proven_is_refused(least: int, folder: Path, honest: Members) -> None:
    """All ends of the file follow; they are not below the limit."""
    fields = fields_of(honest) | {"least": least, "sets": [], "points": None}
    why = rejected(folder, changed_members(folder / "net.onnx", X, MASK, fields, {}, LARGE))
    assert f"nothing is proven about fewer than {least} groups" in why


Move = Callable[[Array], Array]


def _with(group: int, value: float) -> Move:
    def move(points: Array) -> Array:
        points = points.copy()
        points[group, 0] = value
        return points

    return move


MOVES: list[tuple[str, Move, str]] = [
    ("beyond the ball", lambda p: np.clip(X[:, None] + 2 * (p - X[:, None]), 0, 1), "is not in the ball"),
    ("below the domain", _with(2, -1e-30), "is not in the ball"),
    ("above the domain", _with(0, 1.0000001), "is not in the ball"),
    ("another group", _with(1, float(np.nextafter(X[1], np.float32(0)))), "moves a group outside of its set"),
    ("not a number", _with(0, np.nan), "is not finite"),
    ("the input itself", lambda p: X[:, None].copy(), "is not shown to break the statement"),
    ("half of the way", lambda p: (X[:, None] + p) / 2, "is not shown to break the statement"),
    ("one too many", lambda p: p[:, [0, 0]], "do not fit"),
    ("no axis", lambda p: p[:, 0], "do not fit"),
    ("float64", lambda p: p.astype(np.float64), "do not fit"),
]


@pytest.mark.parametrize(("move", "why"), [move[1:] for move in MOVES], ids=[move[0] for move in MOVES])
def test_other_points_are_refused(move: Move, why: str, folder: Path, honest: Members) -> None:
    points = move(points_of(honest))
    if why != "do not fit":
        points = points.astype(np.float32)
    assert why in rejected(folder, {**honest, "changed.npy": npy(points)})


@pytest.mark.parametrize("name", ["upper.npy", "reals-upper.npy"])
@pytest.mark.parametrize("value", ["less", "nan", "-inf"])
def test_another_end_is_refused(name: str, value: str, folder: Path, honest: Members) -> None:
    array = checker.read_array(honest[name]).copy()
    array[0] = np.nextafter(array[0], -1e9) if value == "less" else float(value)
    assert "not proven" in rejected(folder, {**honest, name: npy(array)})


def test_ends_that_decide_nothing_are_refused(folder: Path, honest: Members) -> None:
    ends = {name: npy(np.array([0.0])) for name in ("upper.npy", "reals-upper.npy")}
    assert "nothing is proven about fewer than 2 groups" in rejected(folder, {**honest, **ends})
    said = lines(folder, {**honest, "upper.npy": npy(np.array([0.5]))})
    assert said[0].startswith("Proven over the reals only, NOT in float32: no input within")
    assert said[-1] == "No set of fewer groups can: 2 is the smallest number over the reals."


def test_a_lower_end_is_reached_at_the_input_alone(folder: Path, honest: Members) -> None:
    """No other point moves in all balls of the union, so that no stored point can claim more."""
    points = checker.read_array(honest["points.npy"]).copy()
    points[0] = 0.2
    assert "not in its ball" in rejected(folder, {**honest, "points.npy": npy(points)})


def test_a_class_that_was_asked_for_is_ahead_of_all_others(folder: Path, honest: Members) -> None:
    """One rival alone is a class to reach: the point of another class is refused."""
    network = checker.read_network(folder / "net.onnx", X.shape)
    question = checker.Question(X, LARGE, MASK, 4, checker.Decision(0, [1, 2]))
    logits = checker.Prover(network, question, np.moveaxis(points_of(honest), -1, 0)).lower[-1][:, 0]
    reached = int(logits.argmax())
    for aim in (1, 2):
        about = {**ABOUT, "rivals": [aim]}
        members = contrastive_members(folder / "net.onnx", X, MASK, about, LARGE)
        fields, held = fields_of(members), {"changed.npy": points_of(honest)}
        forged = changed_members(
            folder / "net.onnx", X, MASK, {**fields, "sets": [[0, 2]], "points": "changed.npy"}, held, LARGE
        )
        if aim != reached:
            assert "is not shown to break the statement" in rejected(folder, forged)
            continue
        said = lines(folder, members)
        assert said[0].endswith(f"at most 1 group, has class {aim}. This holds in real and in float32 arithmetic.")
        assert f"and class {aim} is ahead of all others there, over the reals and in float32" in said[1]


def test_a_point_ahead_of_the_own_class_alone_reaches_no_class(tmp_path: Path) -> None:
    """The logits are the inputs: at the point class 1 is ahead of class 0, and class 2 of both."""
    from onnx import helper

    from tests.proof.making import onnx_file

    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"])]
    x = np.array([0.5, 0.25, 0.25], np.float32)
    (tmp_path / "x.npy").write_bytes(npy(x))
    onnx_file(tmp_path / "net.onnx", [1, 3], nodes, {"w": np.eye(3, dtype=np.float32)})
    mask, ball = np.array([0, 1, 2]), {**BALL, "eps": "0.5"}
    fields: Fields = {"kind": "contrastive", "points": "p.npy", "least": 1, "limit": None}
    fields |= {"about": {"kind": "decision", "target": 0, "rivals": [1]}, "sets": [[1, 2]]}
    for second, good in ((0.75, False), (0.625, False), (0.5, True)):
        held = {"p.npy": np.array([0.5, 0.625, second], np.float32)[:, None]}
        members = changed_members(tmp_path / "net.onnx", x, mask, fields, held, ball)
        if good:
            assert "class 1 is ahead of all others" in lines(tmp_path, members)[1]
        else:
            assert "not shown to break" in rejected(tmp_path, members)


@pytest.mark.parametrize("version", [3, 4])
def test_older_versions_do_not_state_sets(version: int, folder: Path, honest: Members) -> None:
    claim = json.loads(honest["claim.json"]) | {"version": version}
    assert "other fields than input model ball" in rejected(
        folder, {**honest, "claim.json": json.dumps(claim).encode()}
    )


def test_groups_are_needed(folder: Path, honest: Members) -> None:
    claim = json.loads(honest["claim.json"]) | {"groups": None}
    claim["statement"] |= {"sets": [], "points": None}
    held = {name: data for name, data in honest.items() if name != "changed.npy"}
    assert "has no groups" in rejected(folder, {**held, "claim.json": json.dumps(claim).encode()})


@pytest.mark.parametrize("mask", [np.array([0, 1, 0, 3]), np.array([0, 2, 1, 3])], ids=str)
def test_other_groups_are_refused(mask: Array, folder: Path, honest: Members) -> None:
    rejected(folder, {**honest, "mask.npy": npy(mask)})


@pytest.mark.parametrize("norm", ["inf", "1", "2"])
@pytest.mark.parametrize("few", [0, 1, 2, 3])
def test_bounds_of_unions_are_above_those_of_all_their_balls(norm: str, few: int) -> None:
    """Every point of every ball of few groups is below the bound of the union, and some is close to it for a box."""
    random = np.random.default_rng(few)
    x, mask = np.full(6, 0.5, np.float32), np.array([0, 1, 2, 2, 1, 0])
    ball = {**BALL, "norm": norm, "eps": "0.25", "domain": ["0.375", "1"]}
    question = checker.Question(x, ball, mask, 3, None, few=few)
    a = random.integers(-9, 9, (6, 5)).astype(float)
    found = question.suprema(checker.Forms(np.arange(6), a))
    assert found.shape == (1, 5)
    single = [checker.Question(x, ball, mask, 3, None, free=[u for u in range(3) if at >> u & 1]) for at in range(8)]
    parts = [one.suprema(checker.Forms(np.arange(6), a))[0] for one in single]
    most = np.max([part for at, part in enumerate(parts) if bin(at).count("1") <= few], axis=0)
    assert (found[0] >= most * (1 - 1e-12)).all()
    if norm == "inf":
        np.testing.assert_allclose(found[0], most, atol=1e-12)
