"""Certificates of properties that were changed: cases that are not excluded, boxes that are not covered."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.making import Array, mlp_file, npy, onnx_file, write
from tests.proof.properties import claimed, point_members
from tests.sources.files import write_known

Members = dict[str, bytes]
NAMES = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 0.25)) (assert (<= X_0 0.5)) (assert (>= X_1 0.1)) (assert (<= X_1 0.3))"
CASES = "(assert (or (and (<= Y_0 Y_1)) (and (>= Y_1 0.36) (<= Y_0 0.45))))"
TEXT = f"{NAMES}\n{BOX}\n{CASES}\n"  # y_0 = relu(x_0), y_1 = x_0 - x_1: the sum of both rows excludes the second case
POINT = np.array([0.5, 0.125])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("properties")
    write_known(place / "net.onnx")
    return place


def honest(folder: Path, text: str = TEXT) -> Members:
    """Three parts: the upper half of x_0 is halved again by x_1."""
    parts = {"halvings.npy": npy(np.array([0, -1, 1, -1, -1], np.int32))}
    weights = np.array([[1, 0], [2, 2]] * 3, np.uint8)
    return claimed(folder / "net.onnx", text, "holds", None) | parts | {"weights.npy": npy(weights)}


def answer(folder: Path, members: Members, text: str | bytes = TEXT) -> checker.PropertyClaim:
    (folder / "p.vnnlib").write_bytes(text if isinstance(text, bytes) else text.encode())
    claim = checker.read_certificate(write(folder / "a.proof", members), folder / "net.onnx", folder / "p.vnnlib")
    assert isinstance(claim, checker.PropertyClaim)
    return claim


def rejected(folder: Path, members: Members, text: str | bytes = TEXT) -> str:
    with pytest.raises(checker.Rejected) as caught:
        answer(folder, members, text)
    return str(caught.value)


def sealed(members: Members, text: str) -> Members:
    """The members of a certificate, said to be of another property."""
    claim = json.loads(members["claim.json"])
    claim["property"] = {"sha256": checker.hash_of(text.encode())}
    return {**members, "claim.json": json.dumps(claim).encode()}


def test_what_is_changed_below_is_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = answer(folder, honest(folder))
    assert claim.verdict() == (
        "Proven: the property holds: no input of its box has outputs in one of its 2 unsafe cases. This holds in real "
        "and in float32 arithmetic."
    )
    assert claim.parts == 3
    assert checker.main([str(folder / name) for name in ("a.proof", "net.onnx", "p.vnnlib")]) == 0
    assert "parts of the boxes in the proof: 3" in capsys.readouterr().out
    answer(folder, honest(folder), gzip.compress(TEXT.encode()))


WEIGHTS: list[tuple[str, Any, str]] = [
    ("none", lambda w: w * 0, "no weight above 0"),
    ("one row alone", lambda w: w * np.array([1, 0], np.uint8), "not excluded"),
    ("the other row alone", lambda w: np.array([[1, 0], [0, 1]] * 3, np.uint8), "not excluded"),
    ("too little of one row", lambda w: np.array([[1, 0], [2, 1]] * 3, np.uint8), "not excluded"),
    ("of a row that is not there", lambda w: np.array([[1, 1], [2, 2]] * 3, np.uint8), "weights of no row"),
    ("negative", lambda w: -w.astype(np.int8), "without a sign"),
    ("with a sign", lambda w: w.astype(np.int64), "without a sign"),
    ("not whole", lambda w: w.astype(np.float64), "without a sign"),
    ("one case too few", lambda w: w[:-1], "not every case"),
    ("one part too many", lambda w: np.concatenate([w, w[:2]]), "not every case"),
    ("of other cases", lambda w: w[::-1], "weights of no row"),
    ("no lines", lambda w: w.reshape(-1), "without a sign"),
]


@pytest.mark.parametrize(("change", "why"), [one[1:] for one in WEIGHTS], ids=[one[0] for one in WEIGHTS])
def test_other_weights_are_refused(change: Any, why: str, folder: Path) -> None:
    members = honest(folder)
    weights = np.ascontiguousarray(change(checker.read_array(members["weights.npy"])))
    assert why in rejected(folder, {**members, "weights.npy": npy(weights)})


HALVINGS: list[tuple[list[Any], str]] = [
    ([0, -1, 1, -1], "a half of a box is not there"),
    ([0, -1], "a half of a box is not there"),
    ([], "a half of a box is not there"),
    ([0, -1, -1, -1], "parts of boxes that are not there"),
    ([-1, -1, -1], "parts of boxes that are not there"),
    ([-1], "not every case"),
    ([0, -1, 2, -1, -1], "halves an input that is not there"),
    ([0, -1, -2, -1, -1], "halves an input that is not there"),
    ([[0, -1, 1, -1, -1]], "no list of numbers"),
    ([0.0, -1.0, 1.0, -1.0, -1.0], "no list of numbers"),
]


@pytest.mark.parametrize(("halvings", "why"), HALVINGS, ids=str)
def test_a_box_that_is_not_covered_is_refused(halvings: list[Any], why: str, folder: Path) -> None:
    array = np.array(halvings, np.float64 if 0.0 in halvings and isinstance(halvings[0], float) else np.int32)
    assert why in rejected(folder, {**honest(folder), "halvings.npy": npy(array)})


def test_halves_share_their_middle_and_cover_the_box() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        low = random.normal(size=2) * 10.0 ** random.integers(-30, 30)
        high = low + np.abs(random.normal(size=2)) * random.choice([0.0, 1e-300, 1e-9, 1.0])
        axis = int(random.integers(0, 2))
        _, lower, upper = checker.read_halvings(np.array([axis, -1, -1]), [(low, high)])
        assert (lower[:, 0] == low).all()
        assert (upper[:, 1] == high).all()
        assert upper[axis, 0] == lower[axis, 1]
        assert (lower <= upper).all()
        other = 1 - axis
        assert (lower[other] == low[other]).all()
        assert (upper[other] == high[other]).all()


PROPERTIES: list[tuple[str, str, str]] = [
    ("a wider box", TEXT.replace("0.1)", "0.05)"), "not excluded"),
    ("a box without an end", TEXT.replace("(assert (<= X_1 0.3))", ""), "no limit on one side"),
    ("a limit that is met", TEXT.replace("0.36", "0.34"), "not excluded"),
    ("another limit that is met", TEXT.replace("0.45", "0.47"), "not excluded"),
    ("a flipped row", TEXT.replace("(>= Y_1 0.36)", "(<= Y_1 0.36)"), "not excluded"),
    ("swapped outputs", TEXT.replace("(<= Y_0 Y_1)", "(<= Y_1 Y_0)"), "not excluded"),
    ("one row less", TEXT.replace("(>= Y_1 0.36) ", ""), "weights of no row"),
    ("one case more", TEXT.replace("(or ", "(or (<= Y_1 0.0) "), "not every case"),
    ("one case less", TEXT.replace("(and (<= Y_0 Y_1)) ", ""), "not every case"),
    ("no case", TEXT.replace(CASES, ""), "nothing about the outputs"),
    ("another box", TEXT.replace("(or ", "(or (and (<= X_0 0.3) (<= Y_0 Y_1)) "), "a half of a box is not there"),
]


@pytest.mark.parametrize(("text", "why"), [one[1:] for one in PROPERTIES], ids=[one[0] for one in PROPERTIES])
def test_another_property_is_refused(text: str, why: str, folder: Path) -> None:
    assert text != TEXT
    assert "property" in rejected(folder, honest(folder), text)  # it has another hash, or is none
    assert why in rejected(folder, sealed(honest(folder), text), text)


def test_the_largest_output_of_the_box_is_not_excluded(folder: Path) -> None:
    """The box has all float32 points next to it: its largest y_1 is 0.5 less the float32 number below 0.1."""
    most = Fraction(1, 2) - Fraction(checker.float32_below(Fraction(1, 10)))
    ulp = Fraction(1, 2**54)
    for step, good in ((0, False), (-1, False), (2**34, True)):
        value = most + step * ulp
        decimal = f"{value.numerator * 10**60 // value.denominator:061d}"
        text = TEXT.replace(CASES, f"(assert (>= Y_1 0.{decimal[-60:]}))")
        members = sealed(honest(folder), text)
        members |= {"halvings.npy": npy(np.array([-1])), "weights.npy": npy(np.array([[1]], np.uint8))}
        if good:
            assert answer(folder, members, text).both
        else:
            assert "not excluded" in rejected(folder, members, text)


def test_combined_rows_are_not_below_the_exact_ones() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        rows = [
            checker.UnsafeRow({k: Fraction(str(random.normal())) for k in range(3)}, Fraction(str(random.normal())))
            for _ in range(2)
        ]
        factors = random.integers(-300, 300, 2).tolist()
        found = checker.CombinedRows.of(rows, factors, 4)
        for k in range(4):
            exact = sum(
                (f * row.coefficients.get(k, Fraction(0)) for f, row in zip(factors, rows, strict=True)), Fraction(0)
            )
            assert abs(exact - Fraction(found.a[k])) <= Fraction(found.lost[k])
        assert sum(f * row.constant for f, row in zip(factors, rows, strict=True)) <= Fraction(found.constant)


def test_what_rounding_may_reach_is_proven_over_the_reals_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0.5 - checker.float32_below(Fraction(1, 10))
    text = TEXT.replace(CASES, f"(assert (>= Y_1 {most + 2.0**-26:.40f}))")
    members = sealed(honest(folder), text)
    members |= {"halvings.npy": npy(np.array([-1])), "weights.npy": npy(np.array([[1]], np.uint8))}
    claim = answer(folder, members, text)
    assert claim.verdict().startswith("Proven over the reals only, NOT in float32: the property holds: no input")
    assert not claim.both
    assert checker.main([str(folder / name) for name in ("a.proof", "net.onnx", "p.vnnlib")]) == 1
    capsys.readouterr()


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"version": 5}, "this checker reads 6"),
    ({"version": 7}, "this checker reads 6"),
    ({"format": "other"}, "this checker reads 6"),
    ({"verdict": "violated"}, "names no case"),
    ({"verdict": "unknown"}, "neither proves nor refutes"),
    ({"verdict": None}, "neither proves nor refutes"),
    ({"case": [0, 0]}, "names a case of a property that holds"),
    ({"property": None}, "damaged"),
    ({"property": {"sha256": "0" * 64}}, "about another property"),
    ({"property": {"sha256": "0", "more": 1}}, "other fields"),
    ({"more": 1}, "other fields"),
    ({"input": None}, "other fields"),
    ({"model": {"sha256": "0" * 64, "prepare": None, "exported_from": None}}, "about another model"),
]


@pytest.mark.parametrize(("fields", "why"), FIELDS, ids=str)
def test_another_claim_is_refused(fields: dict[str, Any], why: str, folder: Path) -> None:
    members = honest(folder)
    claim = json.loads(members["claim.json"]) | fields
    assert why in rejected(folder, {**members, "claim.json": json.dumps(claim).encode()})


def test_a_preparation_is_refused(folder: Path) -> None:
    members = honest(folder)
    claim = json.loads(members["claim.json"])
    claim["model"]["prepare"] = {"mean": [0.5], "std": None, "layout": "NCHW"}
    assert "the inputs of the file alone" in rejected(folder, {**members, "claim.json": json.dumps(claim).encode()})


@pytest.mark.parametrize("name", ["more.npy", "0-tree.npy", "point.npy", "upper.npy"])
def test_more_members_are_refused(name: str, folder: Path) -> None:
    assert "nothing names" in rejected(folder, {**honest(folder), name: npy(POINT)})


def test_other_networks_are_refused(folder: Path) -> None:
    """One with another number of outputs or inputs, and one whose outputs are probabilities."""
    place = folder / "other"
    place.mkdir()
    nodes = [helper.make_node("Gemm", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"])]
    files = {
        "3 outputs, and the property 2": mlp_file(place / "net.onnx", (2, 3, 3), 0).read_bytes(),
        "a Softmax at the end": onnx_file(
            place / "soft.onnx", [1, 2], nodes, {"w": np.eye(2, dtype=np.float32)}
        ).read_bytes(),
        "the model: ": mlp_file(place / "wide.onnx", (3, 3, 2), 0).read_bytes(),
    }
    for why, data in files.items():
        (place / "net.onnx").write_bytes(data)
        assert why in rejected(place, honest(place))


# --- parts that are divided by signs of units ---


def by_signs(folder: Path) -> tuple[Members, str]:
    """y_0 = relu(x_0) - 2 relu(x_0 - 1/2) reaches 1/2, and is bounded by 1, or by 3/4 if the second unit is split."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Gemm", ["h", "v"], ["y"]),
    ]
    w, v = np.array([[1, 1], [0, 0]], np.float32), np.array([[1, 0], [-2, 1]], np.float32)
    onnx_file(folder / "net.onnx", [1, 2], nodes, {"w": w, "v": v, "b": np.array([0, -0.5], np.float32)})
    ends = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 0)) (assert (<= X_1 0))"
    text = f"{NAMES}{ends}(assert (>= Y_0 0.9))"
    members = claimed(folder / "net.onnx", text, "holds", None)
    members |= {"halvings.npy": npy(np.array([-1])), "weights.npy": npy(np.zeros((0, 1), np.uint8))}
    arrays = {
        "intervals": np.array([[-1.001, -1.501], [1.001, 0.501]], np.float32),
        "tree": np.array([1, -1, -1]),
        "slopes": np.zeros((2, 2), np.uint8),
        "multipliers": np.array([[0, 1.5], [0, -0.5]], np.float32),
        "weights": np.ones((2, 1), np.uint8),
    }
    return members | {f"0-{name}.npy": npy(array) for name, array in arrays.items()}, text


def test_a_part_that_is_divided_by_signs_is_accepted(tmp_path: Path) -> None:
    members, text = by_signs(tmp_path)
    claim = answer(tmp_path, members, text)
    assert (claim.parts, claim.both) == (2, True)
    plain = {name: data for name, data in members.items() if not name.startswith("0-")}
    plain["weights.npy"] = npy(np.ones((1, 1), np.uint8))
    assert "not excluded" in rejected(tmp_path, plain, text)


SIGNS: list[tuple[str, Any, str]] = [
    ("intervals", np.array([[-0.5, -1.501], [1.001, 0.501]], np.float32), "is not proven"),
    ("intervals", np.array([[-1.001, -1.501], [1.001, 0]], np.float32), "is not proven"),
    ("intervals", np.zeros((2, 3), np.float32), "do not fit the model"),
    ("tree", np.array([1, -1]), "a side that is not there"),
    ("tree", np.array([-1]), "not every leaf has a slope"),
    ("tree", np.array([-1, -1]), "a tree is of no rival"),
    ("tree", np.array([2, -1, -1]), "a unit that is not there"),
    ("tree", np.array([0, -1, -1]), "not excluded"),
    ("slopes", np.zeros((2, 1), np.uint8), "not every leaf has a slope"),
    ("multipliers", np.zeros((2, 2), np.float32), "not excluded"),
    ("multipliers", np.array([[0, -0.5], [0, 1.5]], np.float32), "not excluded"),
    ("multipliers", np.full((2, 2), np.nan, np.float32), "too large"),
    ("weights", np.ones((1, 1), np.uint8), "not every case"),
    ("weights", np.zeros((2, 1), np.uint8), "no weight above 0"),
    ("weights", -np.ones((2, 1), np.int8), "without a sign"),
]


@pytest.mark.parametrize(("name", "array", "why"), SIGNS, ids=str)
def test_another_proof_by_signs_is_refused(name: str, array: Array, why: str, tmp_path: Path) -> None:
    members, text = by_signs(tmp_path)
    assert why in rejected(tmp_path, {**members, f"0-{name}.npy": npy(array)}, text)


# --- violations ---

MET = TEXT.replace(CASES, "(assert (or (and (<= Y_0 Y_1)) (and (>= Y_1 0.25) (< Y_0 0.75))))")


def test_a_violation_is_proven_and_is_no_success(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = answer(folder, point_members(folder / "net.onnx", MET, [0, 1], POINT), MET)
    assert claim.verdict() == (
        "Proven: the property is VIOLATED: the point of the certificate lies in box 1, and its outputs are in unsafe "
        "case 2 of this box. This holds in real and in float32 arithmetic."
    )
    assert checker.main([str(folder / name) for name in ("a.proof", "net.onnx", "p.vnnlib")]) == 1
    capsys.readouterr()


POINTS: list[tuple[str, Any, Any, str]] = [
    ("outside by one ulp", [0, 1], [np.nextafter(0.5, 1), 0.125], "not in its box"),
    ("below by one ulp", [0, 1], [0.5, np.nextafter(0.1, 0)], "not in its box"),
    ("far outside", [0, 1], [5.0, 0.125], "not in its box"),
    ("outputs elsewhere", [0, 1], [0.3, 0.3], "not shown to meet"),
    ("a row that is only reached", [0, 1], [0.5, 0.25], "not shown to meet"),
    ("another case", [0, 0], POINT, "not shown to meet"),
    ("no such case", [0, 2], POINT, "names no case"),
    ("no such box", [1, 0], POINT, "names no case"),
    ("counted from the end", [0, -1], POINT, "names no case"),
    ("true", [False, True], POINT, "names no case"),
    ("no case", None, POINT, "names no case"),
    ("not a number", [0, 1], [np.nan, 0.125], "no list of finite"),
    ("infinite", [0, 1], [np.inf, 0.125], "no list of finite"),
    ("one input", [0, 1], [0.5], "no list of finite"),
    ("a matrix", [0, 1], [[0.5, 0.125]], "no list of finite"),
]


@pytest.mark.parametrize(("case", "point", "why"), [one[1:] for one in POINTS], ids=[one[0] for one in POINTS])
def test_other_points_are_refused(case: Any, point: Any, why: str, folder: Path) -> None:
    assert why in rejected(folder, point_members(folder / "net.onnx", MET, case, np.array(point)), MET)


def test_a_point_has_float64_numbers(folder: Path) -> None:
    members = point_members(folder / "net.onnx", MET, [0, 1], POINT)
    assert "no list of finite" in rejected(folder, {**members, "point.npy": npy(POINT.astype(np.float32))}, MET)


def test_a_point_between_equal_limits_is_that_number(folder: Path) -> None:
    """No float64 number is 0.1. The point stands for 1/10 there, and nothing else does."""
    text = MET.replace("(<= X_1 0.3)", "(<= X_1 0.1)")
    good = point_members(folder / "net.onnx", text, [0, 1], np.array([0.5, 0.1]))
    assert answer(folder, good, text).both
    for near in (np.nextafter(0.1, 1), float(np.float32(0.1))):
        other = point_members(folder / "net.onnx", text, [0, 1], np.array([0.5, near]))
        assert "not in its box" in rejected(folder, other, text)
