"""Certificates of sufficient sets that were changed: sets that are not proven, and points that prove nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.forged import X, answer, changed, folder_with, rejected
from tests.proof.making import BALL, Array, npy, onnx_file, reason_members, sufficient_members, write

MASK = np.array([0, 1, 2, 3])
ABOUT: dict[str, Any] = {"kind": "decision", "target": 0, "rivals": [1, 2]}
LARGE = {**BALL, "eps": "0.4"}
folder = folder_with((4, 6, 3), 5)
Fields = dict[str, Any]
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def honest(folder: Path) -> Members:
    """Group 2 is free, 1 and 3 are necessary, and 0 is undecided."""
    return sufficient_members(folder / "net.onnx", X, MASK, ABOUT, LARGE)


def fields_of(members: Members) -> Fields:
    stated: Fields = json.loads(members["claim.json"])["statement"]
    return stated


def points_of(members: Members) -> Array:
    return checker.read_array(members["necessary.npy"])


def test_what_is_changed_below_is_accepted(folder: Path, honest: Members) -> None:
    claim = answer(folder, honest)
    assert (fields_of(honest)["free"], fields_of(honest)["necessary"]) == ([2], [1, 3])
    first, second, third = claim.statement.verdict(claim).splitlines()
    assert first == (
        "Proven: no input within ε = 0.4 (L∞) of this input, with values in [0, 1], that differs from it in the free "
        "group only, has another class than 0. This holds in real and in float32 arithmetic."
    )
    assert second == (
        "2 of the 3 kept groups are necessary: for each, the file has an input of the ball that changes this group and "
        "free groups only, and the network decides otherwise there, over the reals and in float32."
    )
    assert third == "1 kept group is undecided."


WRONG: list[tuple[Fields, str]] = [
    ({"free": [0, 2]}, "not proven"),
    ({"free": [0]}, "not proven"),
    ({"free": [2, 2]}, "a group is there twice"),
    ({"free": [2, 4]}, "no numbers of groups"),
    ({"free": [-2]}, "no numbers of groups"),
    ({"free": [2.0]}, "no numbers of groups"),
    ({"free": [2, False]}, "no numbers of groups"),
    ({"free": None}, "no numbers of groups"),
    ({"free": {"2": 2}}, "no numbers of groups"),
    ({"free": "2"}, "no numbers of groups"),
    ({"necessary": [1, 1]}, "a group is there twice"),
    ({"necessary": [1, 2]}, "free and necessary"),
    ({"necessary": [3, 1]}, "moves a kept group other than its own"),
    ({"necessary": [1, 0]}, "moves a kept group other than its own"),
    ({"necessary": [1]}, "do not fit"),
    ({"necessary": [1, 3, 0]}, "do not fit"),
    ({"necessary": []}, "do not fit"),
    ({"necessary": [1, 2**70]}, "no numbers of groups"),
    ({"necessary": [True, 3]}, "no numbers of groups"),
    ({"necessary": None}, "no numbers of groups"),
    ({"points": None}, "members that nothing names"),
    ({"points": "points.npy"}, "damaged"),  # named by the claims as well
    ({"points": "other.npy"}, "damaged"),
    ({"points": ["necessary.npy"]}, "damaged"),
    ({"limit": "0.5"}, "the limit is no positive number"),
    ({"limit": "0"}, "the limit is no positive number"),
    ({"about": {**ABOUT, "target": 1, "rivals": [0, 2]}}, "not proven"),
    ({"about": {**ABOUT, "rivals": [1]}}, "not about a class and all other classes"),
    ({"about": {**ABOUT, "rivals": [1, 1]}}, "one comes twice"),
    ({"about": {**ABOUT, "rivals": [0, 1]}}, "one comes twice"),
    ({"about": {**ABOUT, "rivals": None}}, "one comes twice"),
    ({"about": {**ABOUT, "free": [0]}}, "other fields than target, rivals and classes"),
    ({"about": {**ABOUT, "classes": checker.ONE_OUTPUT}}, "what the classes of this network are"),
    ({"about": {**ABOUT, "kind": "sufficient"}}, "about nothing that is known"),
    ({"about": None}, "about nothing that is known"),
    ({"about": "decision"}, "about nothing that is known"),
    ({"about": {"kind": "label", "entry": 1, "on": True}}, "not proven"),
    ({"more": 1}, "other fields than about free necessary points limit"),
    ({"kind": "necessary"}, "it states none of"),
]


@pytest.mark.parametrize(("fields", "why"), WRONG, ids=str)
def test_other_sets_are_refused(fields: Fields, why: str, folder: Path, honest: Members) -> None:
    assert why in rejected(folder, changed(honest, **fields))


@pytest.mark.parametrize("free", [[0, 2], [1, 2], [0, 1, 2, 3]], ids=str)
def test_a_free_set_that_is_not_proven_is_refused(free: list[int], folder: Path, honest: Members) -> None:
    """All ends of the file follow; they are not below the limit."""
    fields = {**fields_of(honest), "free": free, "necessary": [], "points": None}
    assert "the free groups are not proven" in rejected(
        folder, reason_members(folder / "net.onnx", X, MASK, fields, {}, LARGE)
    )


Move = Callable[[Array], Array]


def _with(group: int, point: int, value: float) -> Move:
    def move(points: Array) -> Array:
        points = points.copy()
        points[group, point] = value
        return points

    return move


MOVES: list[tuple[str, Move, str]] = [
    ("beyond the ball", lambda p: np.clip(X[:, None] + 2 * (p - X[:, None]), 0, 1), "is not in the ball"),
    ("one rounding beyond", _with(1, 0, float(np.nextafter(np.float32(0.5), np.float32(0)))), "is not in the ball"),
    ("below the domain", _with(2, 0, -1e-30), "is not in the ball"),
    ("above the domain", _with(1, 0, 1.0000001), "is not in the ball"),
    ("another kept group", _with(3, 0, 0.5001), "moves a kept group other than its own"),
    ("an undecided group", _with(0, 1, float(np.nextafter(X[0], np.float32(1)))), "moves a kept group"),
    ("not a number", _with(1, 0, np.nan), "is not finite"),
    ("infinite", _with(2, 1, np.inf), "is not finite"),
    ("the input itself", lambda p: np.repeat(X[:, None], p.shape[1], 1), "not shown to break the statement"),
    ("one of them the input", lambda p: np.stack([p[:, 0], X], 1), "necessary group [3] is not shown to break"),
    ("swapped", lambda p: p[:, ::-1], "moves a kept group other than its own"),
    ("one too few", lambda p: p[:, :1], "do not fit"),
    ("one too many", lambda p: p[:, [0, 1, 1]], "do not fit"),
    ("turned", lambda p: p.T, "do not fit"),
    ("another shape", lambda p: p.reshape(2, 2, 2), "do not fit"),
    ("no axis", lambda p: p[0], "do not fit"),
    ("float64", lambda p: p.astype(np.float64), "do not fit"),
    ("whole numbers", lambda p: p.astype(np.int64), "do not fit"),
]


@pytest.mark.parametrize(("move", "why"), [move[1:] for move in MOVES], ids=[move[0] for move in MOVES])
def test_other_points_are_refused(move: Move, why: str, folder: Path, honest: Members) -> None:
    points = move(points_of(honest))
    if points.dtype.kind == "f" and points.dtype != np.float64:
        points = points.astype(np.float32)
    assert why in rejected(folder, {**honest, "necessary.npy": npy(points)})


@pytest.mark.parametrize("norm", ["1", "2"])
def test_points_of_other_norms_lie_in_the_ball_exactly(norm: str, folder: Path) -> None:
    """The point is on the sphere: one rounding of one value further, it is outside."""
    ball = {**BALL, "norm": norm, "eps": "0.625"}
    members = sufficient_members(folder / "net.onnx", X, MASK, ABOUT, ball)
    answer(folder, members)
    assert fields_of(members)["necessary"]
    x = np.array([0.25, 0.5, 0.0, 0.5], np.float32)
    question = checker.Question(x, {**ball, "domain": None}, MASK, 4, None, [])
    step = np.array([0.625, 0, 0, 0]) if norm == "1" else np.array([0.375, 0, 0, 0.5])
    on = (x + step).astype(np.float32)
    out = on.copy()
    out[0] = np.nextafter(on[0], np.float32(9))
    assert question.inside(np.stack([on, out]), np.ones((2, 4))).tolist() == [True, False]
    points = X[:, None] + np.float32(1.5) * (points_of(members) - X[:, None])
    assert "is not in the ball" in rejected(folder, {**members, "necessary.npy": npy(points)})


@pytest.mark.parametrize("name", ["upper.npy", "reals-upper.npy"])
@pytest.mark.parametrize("value", ["less", "nan", "-inf"])
def test_another_end_is_refused(name: str, value: str, folder: Path, honest: Members) -> None:
    array = checker.read_array(honest[name]).copy()
    array[0] = np.nextafter(array[0], -1e9) if value == "less" else float(value)
    assert "not proven" in rejected(folder, {**honest, name: npy(array)})


@pytest.mark.parametrize("end", [0.0, 1.0, np.inf])
def test_ends_that_decide_nothing_are_refused(end: float, folder: Path, honest: Members) -> None:
    """A claim of a weaker end is true, and the groups are not free by it."""
    ends = {name: npy(np.array([end])) for name in ("upper.npy", "reals-upper.npy")}
    assert "the free groups are not proven" in rejected(folder, {**honest, **ends})


def test_ends_over_the_reals_alone_are_named(folder: Path, honest: Members) -> None:
    claim = answer(folder, {**honest, "upper.npy": npy(np.array([0.5]))})
    assert claim.statement.verdict(claim).startswith("Proven over the reals only, NOT in float32: no input within")
    assert not claim.decided(0)


def test_ends_of_members_are_refused(folder: Path, honest: Members) -> None:
    for name in ("upper.npy", "reals-upper.npy"):
        more = np.repeat(checker.read_array(honest[name]), 5)
        assert "one number for B and one for every B_u" in rejected(folder, {**honest, name: npy(more)})


def test_more_members_are_refused(folder: Path, honest: Members) -> None:
    assert "members that nothing names" in rejected(folder, {**honest, "more.npy": honest["necessary.npy"]})


def test_groups_are_needed(folder: Path, honest: Members) -> None:
    claim = json.loads(honest["claim.json"]) | {"groups": None}
    text = {"claim.json": json.dumps(claim).encode()}
    assert "no numbers of groups" in rejected(folder, {**honest, **text})
    fields = {**claim, "statement": {**claim["statement"], "free": [], "necessary": [], "points": None}}
    held = {name: data for name, data in honest.items() if name != "necessary.npy"}
    assert "no groups" in rejected(folder, {**held, "claim.json": json.dumps(fields).encode()})


@pytest.mark.parametrize("mask", [np.array([0, 1, 2, 2]), np.array([0, 2, 1, 3]), np.array([0.0, 1, 2, 3])], ids=str)
def test_other_groups_are_refused(mask: Array, folder: Path, honest: Members) -> None:
    rejected(folder, {**honest, "mask.npy": npy(mask)})


def class_of(model: Path, x: Array) -> Fields:
    """The class of an input, and all others."""
    network = checker.read_network(model, x.shape)
    question = checker.Question(x, {**BALL, "eps": "0"}, None, 0, None)
    target = int(checker.Prover(network, question, x[None]).lower[-1][:, 0].argmax())
    return {"target": target, "rivals": [c for c in range(network.nodes[-1].count) if c != target]}


def test_a_kept_group_that_cannot_move_is_free(folder: Path) -> None:
    """Otherwise nobody could show it necessary, and freeing it as well would change nothing."""
    ball = {**LARGE, "domain": ["0", "0.3"], "half": "+"}
    x = np.array([0.125, 0.25, 0.5, 0.25], np.float32)  # the third value is beyond the domain
    (folder / "third.npy").write_bytes(npy(x))
    about = {"kind": "decision", **class_of(folder / "net.onnx", x)}
    fields: Fields = {"kind": "sufficient", "about": about, "free": [], "necessary": [], "points": None, "limit": None}
    for free, good in (([2], True), ([], False)):
        members = reason_members(folder / "net.onnx", x, MASK, {**fields, "free": free}, {}, ball)
        args = write(folder / "c.proof", members), folder / "net.onnx", folder / "third.npy"
        if good:
            assert "3 kept groups are undecided." in checker.check(*args)
        else:
            with pytest.raises(checker.Rejected, match=r"the kept groups \[2\] cannot move in this ball"):
                checker.check(*args)


def two_inputs(folder: Path) -> tuple[Path, Path, Array]:
    """The logits are the inputs: class 0 is ahead by x_0 - x_1."""
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"])]
    x = np.array([0.5, 0.25], np.float32)
    (folder / "two.npy").write_bytes(npy(x))
    model = onnx_file(folder / "two.onnx", [1, 2], nodes, {"w": np.eye(2, dtype=np.float32)})
    return model, folder / "two.npy", x


NEAR = [(0.0, None), (2.0**-25, ", and in float32 at 0 of the 1 inputs."), (2.0**-12, " and in float32.")]


@pytest.mark.parametrize(("more", "where"), NEAR)
def test_a_tie_breaks_nothing(more: float, where: str | None, folder: Path) -> None:
    """At the point the margin is 0, then less than float32 rounds, then more."""
    model, given, x = two_inputs(folder)
    point, eps = np.array([0.375 - more, 0.375], np.float32), float(0.125 + more).hex()
    about = {"kind": "decision", "target": 0, "rivals": [1]}
    fields = {"kind": "sufficient", "about": about, "free": [0], "necessary": [1], "points": "p.npy", "limit": None}
    ball = {**BALL, "eps": eps, "domain": None}
    members = reason_members(model, x, np.array([0, 1]), fields, {"p.npy": point[:, None]}, ball)
    args = write(folder / "tie.proof", members), model, given
    if where is None:
        with pytest.raises(checker.Rejected, match="not shown to break"):
            checker.check(*args)
        return
    said = checker.check(*args).splitlines()
    assert said[1].endswith(f"the network decides otherwise there, over the reals{where}")
    assert said[1].startswith("The only kept group is necessary: the file has an input of the ball that changes this")
    minimal = "None of the kept groups can be freed as well: the set of kept groups is subset-minimal"
    assert said[2] == minimal + ("." if more > 2.0**-20 else " over the reals.")


def test_a_row_at_the_limit_does_not_break_it() -> None:
    about = checker.Decision(0, [1])
    for limit, least in ((None, 0.0), ("0.5", 0.5)):
        sets = checker.Held(about, limit)
        ends = np.array([least, np.nextafter(least, 1.0), -1.0, np.nan, np.inf, -np.inf])
        assert sets.breaks(ends).tolist() == [False, True, False, False, False, False]
        assert sets.breaks(ends, 2.0**-16).tolist() == [False] * 6


OUTPUT: dict[str, Any] = {"kind": "output", "entries": [0], "reduce": None, "direction": "both", "centre": "0.5"}


@pytest.mark.parametrize("limit", ["0", "-0.1", "nan", "inf", "1e999", "", None, 0.1, "0.1 ", ["0.1"]])
def test_a_limit_is_a_positive_number(limit: Any, folder: Path) -> None:
    model, given, x = two_inputs(folder)
    fields = {"kind": "sufficient", "about": OUTPUT, "free": [1], "necessary": [], "points": None, "limit": "0.1"}
    members = reason_members(model, x, np.array([0, 1]), fields, {}, {**BALL, "eps": "0.25"})
    good = checker.check(write(folder / "l.proof", members), model, given)
    assert good.startswith("Proven: output 0 is not more than 0.1 away from 0.5 for every input within ε = 0.25 (L∞)")
    with pytest.raises(checker.Rejected, match="the limit is no positive number"):
        checker.check(write(folder / "l.proof", changed(members, limit=limit)), model, given)


@pytest.mark.parametrize(("limit", "shown"), [("0.25", False), ("0.24999", True)])
def test_an_output_leaves_its_limit_at_the_point(limit: str, shown: bool, folder: Path) -> None:
    model, given, x = two_inputs(folder)
    fields = {"kind": "sufficient", "about": OUTPUT, "free": [1], "necessary": [0], "points": "p.npy", "limit": limit}
    point = np.array([0.25, 0.5], np.float32)
    ball = {**BALL, "eps": "0.25"}
    members = reason_members(model, x, np.array([0, 1]), fields, {"p.npy": point[:, None]}, ball)
    args = write(folder / "o.proof", members), model, given
    if shown:
        assert f"output 0 is more than {limit} away from 0.5 there" in checker.check(*args).splitlines()[1]
    else:
        with pytest.raises(checker.Rejected, match="not shown to break"):
            checker.check(*args)


@pytest.mark.parametrize("version", [3, 4, 6])
def test_older_versions_do_not_state_sets(version: int, folder: Path, honest: Members) -> None:
    claim = json.loads(honest["claim.json"]) | {"version": version}
    why = rejected(folder, {**honest, "claim.json": json.dumps(claim).encode()})
    assert ("reads 3 to 5" if version == 6 else "other fields than input model ball") in why
