"""VNN-LIB files: their boxes and conditions, read exactly, and errors for unsupported files."""

import gzip
import os
import re
from pathlib import Path

import pytest
import torch

import proofmap as pm
from proofmap.errors import FileError, InputError
from proofmap.sources import Preparation, read_box, read_declared, read_model, read_specification
from proofmap.sources.vnnlib import assertions
from tests.sources.files import BOX

DATA = Path(os.environ.get("PROOFMAP_DATA", ""))


def test_the_box_is_read_exactly(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX)
    (tmp_path / "x.vnnlib.gz").write_bytes(gzip.compress(BOX.encode()))
    for name in ("x.vnnlib", "x.vnnlib.gz"):
        box = read_box(tmp_path / name, Preparation(shape=(2,)))
        assert (box.lower.tolist(), box.upper.tolist()) == ([0.25, -0.1], [0.5, -0.05])


def test_the_ball_contains_the_box_and_little_more(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX)
    box = read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))
    centre, radius = box.centre.double(), box.radius.double()
    assert bool((centre - radius <= box.lower).all())
    assert bool((centre + radius >= box.upper).all())
    torch.testing.assert_close(radius, (box.upper - box.lower) / 2, atol=1e-7, rtol=0)


def test_an_input_that_is_fixed_does_not_move(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX.replace("0.25", "0.5"))
    box = read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))
    assert (float(box.centre[0]), float(box.radius[0])) == (0.5, 0.0)


def test_the_tightest_limits_count_and_an_or_of_one_adds_no_case(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX + "(assert (or (and (<= X_0 0.4) (<= X_0 0.45))))")
    assert read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,))).upper.tolist() == [0.4, -0.05]


def test_inputs_stand_in_the_order_of_the_layout(tmp_path: Path) -> None:
    lines = [f"(declare-const X_{k} Real) (assert (<= X_{k} {k + 1})) (assert (>= X_{k} {k}))" for k in range(12)]
    (tmp_path / "x.vnnlib").write_text("\n".join(lines))
    first = read_box(tmp_path / "x.vnnlib", Preparation(shape=(3, 2, 2)))
    assert torch.equal(first.lower, torch.arange(12.0, dtype=torch.float64).reshape(3, 2, 2))
    last = read_box(tmp_path / "x.vnnlib", Preparation(shape=(3, 2, 2), layout="NHWC"))
    assert torch.equal(last.lower, torch.arange(12.0, dtype=torch.float64).reshape(2, 2, 3).permute(2, 0, 1))
    with pytest.raises(InputError, match=r"has shape \(12,\), expected \(5,\)"):
        read_box(tmp_path / "x.vnnlib", Preparation(shape=(5,)))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("(assert (or (<= X_0 0.4) (>= X_0 0.45)))", "one box of inputs or another"),
        ("(assert (or (and (<= X_0 0.4) (<= Y_0 1)) (<= Y_0 0)))", "one box of inputs or another"),
        ("(assert (<= X_0 X_1))", "relates X_0 to X_1"),
        ("(assert (>= Y_0 X_1))", "relates X_1 to Y_0"),
        ("(assert (<= 1 2))", "compares two numbers"),
        ("(assert (< X_0 0.4))", re.escape("contains (< X_0 0.4), expected declare-const, or assert")),
        ("(assert (not (<= X_0 0.4)))", r"contains \(not"),
        (
            "(assert (<= (* 2.0 X_0) 0.4))",
            re.escape("contains (<= (* 2.0 X_0) 0.4), expected declare-const, or assert"),
        ),
        ("(assert (<= X_0 nan))", "contains nan"),
        ("(assert (<= X_0 1e999))", "in the range of float32|contains 1e999"),
        ("(assert (<= X_0 1e99))", "expected one in the range of float32"),
        ("(assert (<= X_0 0x1))", "contains 0x1"),
        ("(assert (<= X_0))", r"contains \(<= X_0\)"),
        ("(assert)", r"contains \(assert\)"),
        ("()", r"contains \(\)"),
        ("(declare-const X_0 Real)", "declares X_0 twice"),
        ("(declare-const Z_0 Real)", "contains"),
        ("(declare-const X_2 Int)", "contains"),
        ("(declare-const X_2 Real)", "gives X_2 no limit on one side"),
        ("(declare-const X_7 Real)", "3 inputs, expected X_0, X_1 and so on without a gap"),
        ("(assert (<= X_2 0))", "uses X_2, which it does not declare"),
        ("(assert (>= X_0 0.6))", "it is empty"),
        ("(check-sat)", "contains"),
        ("stray", "outside of parentheses"),
        (")", "outside of parentheses"),
        ("(assert", "ends inside parentheses"),
        ("(" * 17, "nests more than 16"),
    ],
)
def test_inputs_that_are_not_a_box_are_refused(more: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX + more)
    with pytest.raises(FileError, match=message):
        read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))


def rows(text: str, folder: Path) -> list[list[tuple[list[float], float, bool]]]:
    """Return the cases of the only box, each as rows (coefficients, constant, strict)."""
    (folder / "x.vnnlib").write_text(BOX.rpartition("(assert")[0] + text)
    (region,) = read_specification(folder / "x.vnnlib", Preparation(shape=(2,)))
    return [list(zip(c.weight.tolist(), c.bias.tolist(), c.strict.tolist(), strict=True)) for c in region.unsafe]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(assert (<= Y_0 Y_1))", [[([1, -1], 0, False)]]),
        ("(assert (>= Y_0 Y_1))", [[([-1, 1], 0, False)]]),
        ("(assert (< Y_0 0.5))", [[([1, 0], -0.5, True)]]),
        ("(assert (> 0.5 Y_1))", [[([0, 1], -0.5, True)]]),
        ("(assert (<= Y_0 1)) (assert (>= Y_1 (- 2)))", [[([1, 0], -1, False), ([0, -1], -2, False)]]),
        ("(assert (or (<= Y_0 1) (<= Y_1 2)))", [[([1, 0], -1, False)], [([0, 1], -2, False)]]),
        (
            "(assert (or (and (<= Y_0 1) (<= Y_1 2)) (and (<= Y_1 3))))",
            [[([1, 0], -1, False), ([0, 1], -2, False)], [([0, 1], -3, False)]],
        ),
        ("(assert (and (<= Y_0 1) (or (<= Y_1 2))))", [[([1, 0], -1, False), ([0, 1], -2, False)]]),
        (
            "(assert (or (<= Y_0 1) (<= Y_1 2))) (assert (<= Y_0 5))",  # the condition for all cases comes first
            [[([1, 0], -5, False), ([1, 0], -1, False)], [([1, 0], -5, False), ([0, 1], -2, False)]],
        ),
        (
            "(assert (or (<= Y_0 1) (<= Y_0 2))) (assert (or (<= Y_1 3) (<= Y_1 4)))",
            [[([1, 0], -a, False), ([0, 1], -b, False)] for b in (3, 4) for a in (1, 2)],
        ),
        (
            "(assert (and (or (<= Y_0 1) (and (<= Y_0 2) (or (<= Y_1 3) (<= Y_1 4)))) (<= Y_1 5)))",
            [
                [([0, 1], -5, False), ([1, 0], -1, False)],
                *([([0, 1], -5, False), ([1, 0], -2, False), ([0, 1], -b, False)] for b in (3, 4)),
            ],
        ),
        ("(assert (<= (+ Y_0 Y_1 0.5) (* 2.0 Y_1)))", [[([1, -1], 0.5, False)]]),
        ("(assert (<= (- Y_0 Y_1 1) (- Y_0)))", [[([2, -1], -1, False)]]),
        ("(assert (<= (* 2 (+ Y_0 (* Y_1 (- 3.0))) 0.5) 0))", [[([1, -3], 0, False)]]),
        ("(assert (<= (+ Y_0 1e16 0.25 -1e16) 0))", [[([1, 0], 0.25, False)]]),  # floats would lose 0.25
    ],
)
def test_the_outputs_are_read(text: str, expected: list[list[tuple[list[float], float, bool]]], tmp_path: Path) -> None:
    assert rows(text, tmp_path) == expected


def test_boxes_in_an_or_are_regions_with_their_own_cases(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(
        BOX.rpartition("(assert")[0] + "(assert (or (and (<= X_0 0.3) (<= Y_0 1)) (and (>= X_0 0.4) (<= Y_1 2)) "
        "(and (<= X_0 0.3) (<= Y_1 3)) (and (>= X_0 0.7) (<= Y_1 4))))"
    )
    first, second = read_specification(tmp_path / "x.vnnlib", Preparation(shape=(2,)))  # the third box is empty
    assert (first.lower.tolist(), first.upper.tolist()) == ([0.25, -0.1], [0.3, -0.05])
    assert (second.lower.tolist(), second.upper.tolist()) == ([0.4, -0.1], [0.5, -0.05])
    assert [case.bias.tolist() for case in first.unsafe] == [[-1.0], [-3.0]]
    assert [case.bias.tolist() for case in second.unsafe] == [[-2.0]]


MANY = f"(assert (or {' '.join(f'(<= Y_0 {k})' for k in range(20))}))"
NESTED = f"(and {MANY[8:-1] * 3})"  # 20 · 20 · 20 cases


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "asserts nothing about the outputs, expected a condition on Y_0"),
        ("(assert (or (<= Y_0 1) (<= X_0 0.4)))", "asserts in one of its cases nothing about the outputs"),
        ("(assert (not (<= Y_0 1)))", re.escape("contains (not (<= Y_0 1)), expected declare-const, or assert")),
        ("(assert (=> (<= Y_0 1) (<= Y_1 1)))", "contains \\(=>"),
        ("(assert (= Y_0 1))", "contains \\(= Y_0 1\\)"),
        ("(assert (<= (* Y_0 Y_1) 1))", "contains \\(\\* Y_0 Y_1\\)"),
        ("(assert (<= (/ Y_0 2) 1))", "contains \\(/ Y_0 2\\)"),
        ("(assert (<= (max Y_0 Y_1) 1))", "contains \\(max"),
        ("(assert (<= (+ Y_0 X_0) 1))", "relates Y_0 to X_0"),
        ("(assert (<= Y_2 1))", "uses Y_2, which it does not declare"),
        ("(assert (<= (+ 1 2) 1))", "compares two numbers"),
        ("(assert (<= (* 1e30 1e30 Y_0) 1))", "expected one in the range of float32"),
        ("(assert (<= (+) Y_0))", "contains \\(\\+\\)"),
        ("(assert (<= Y_0 0." + "1" * 1000 + "))", "contains 0.1111"),
        ("(declare-const Y_4 Real) (assert (<= Y_4 1))", "3 outputs, expected Y_0, Y_1 and so on without a gap"),
        (MANY * 4, "has more than 1000 cases of or, expected fewer: split the file"),
        (f"(assert (or {NESTED * 20}))", "has more than 1000 cases of or, expected fewer: split the file"),
        ("(vnnlib-version <2.0>)", "contains \\(vnnlib-version <2.0>\\)"),
    ],
)
def test_unsupported_assertions_are_named(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assertions, "_MAX_CASES", 1000)
    with pytest.raises(FileError, match=message):
        rows(text, tmp_path)


def test_thousands_of_boxes_are_read_in_order(tmp_path: Path) -> None:
    """More than the 10,000 cases of the largest published files, two for each box."""
    boxes = 6000
    lines = (
        f"(and (>= X_0 {k}) (<= X_0 {k}.5) (<= X_1 1) (>= X_1 -1e-1) ({sign} Y_0 {k}))"
        for k in range(boxes)
        for sign in ("<=", ">=")
    )
    declared = " ".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0"))
    (tmp_path / "x.vnnlib").write_text(f"{declared} (assert (or {' '.join(lines)}))")
    regions = read_specification(tmp_path / "x.vnnlib", Preparation(shape=(2,)))
    assert len(regions) == boxes
    for k in (0, 1, 4711, boxes - 1):
        assert (regions[k].lower.tolist(), regions[k].upper.tolist()) == ([k, -0.1], [k + 0.5, 1.0])
        assert [case.bias.tolist() for case in regions[k].unsafe] == [[-k], [k]]
        assert [case.weight.tolist() for case in regions[k].unsafe] == [[[1.0]], [[-1.0]]]


def test_many_conditions_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assertions, "_MAX_ATOMS", 100)
    with pytest.raises(FileError, match="has too many conditions, expected fewer: split the file"):
        rows(f"(assert (and {MANY[8:-1] * 2}))", tmp_path)


# --- version 2 ---

HEADER = "; a comment first\n(vnnlib-version <2.0>)\n"
NETWORK = "(declare-network f (declare-input X float32 [1,2]) (declare-output Y Real [1, 2]))\n"
INPUTS = "(assert (and (<= X[0,0] 0.5) (>= X[0,0] 0.25))) (assert (<= X[0, 1] -0.05)) (assert (>= X[0,1] -0.1))\n"


def typed(text: str, folder: Path) -> list[list[tuple[list[float], float, bool]]]:
    """Return the cases of the only box of a file in version 2."""
    (folder / "x.vnnlib").write_text(HEADER + NETWORK + INPUTS + text)
    (region,) = read_specification(folder / "x.vnnlib", Preparation(shape=(2,)))
    assert (region.lower.tolist(), region.upper.tolist()) == ([0.25, -0.1], [0.5, -0.05])
    return [list(zip(c.weight.tolist(), c.bias.tolist(), c.strict.tolist(), strict=True)) for c in region.unsafe]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(assert (<= Y[0,0] Y[0,1]))", [[([1, -1], 0, False)]]),
        ("(assert (Y[0,0] < Y[0,1]))", [[([1, -1], 0, True)]]),
        ("(assert (> Y[0,1] 0.5))", [[([0, -1], 0.5, True)]]),
        ("(assert (<= (+ Y[0,0] (* 2.0 Y[ 0 , 1 ])) -1.0))", [[([1, 2], 1, False)]]),
        ("(assert (<= (* Y[0,0] 3.5 (- 2.0)) (- Y[0,1])))", [[([-7, 1], 0, False)]]),
        ("(assert (== Y[0,0] 0.5))", [[([1, 0], -0.5, False), ([-1, 0], 0.5, False)]]),
        ("(assert (= Y[0,0] Y[0,1]))", [[([1, -1], 0, False), ([-1, 1], 0, False)]]),
        ("(assert (!= Y[0,0] Y[0,1]))", [[([1, -1], 0, True)], [([-1, 1], 0, True)]]),
        (
            "(assert (or (and (<= Y[0,0] 1) (or (<= Y[0,1] 2) (<= Y[0,1] 3))) (== Y[0,1] 4)))",
            [
                [([1, 0], -1, False), ([0, 1], -2, False)],
                [([1, 0], -1, False), ([0, 1], -3, False)],
                [([0, 1], -4, False), ([0, -1], 4, False)],
            ],
        ),
    ],
)
def test_conditions_of_version_2_are_read(
    text: str, expected: list[list[tuple[list[float], float, bool]]], tmp_path: Path
) -> None:
    assert typed(text, tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("(assert (== X[0,0] 0.3))", [0.3, -0.1], [0.3, -0.05]),
        ("(assert (<= (* 2.0 X[0,0]) 0.6))", [0.25, -0.1], [0.3, -0.05]),
        ("(assert (<= (- X[0,0]) -0.375))", [0.375, -0.1], [0.5, -0.05]),
        ("(assert (0.125 <= (- (* 2.0 X[0,0]) X[0,0] 0.25)))", [0.375, -0.1], [0.5, -0.05]),
        ("(assert (>= 0.375 (+ X[0,0] 0.0)))", [0.25, -0.1], [0.375, -0.05]),
    ],
)
def test_limits_of_version_2_are_solved_for_the_input(
    text: str, lower: list[float], upper: list[float], tmp_path: Path
) -> None:
    (tmp_path / "x.vnnlib").write_text(HEADER + NETWORK + INPUTS + text)
    box = read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))
    assert (box.lower.tolist(), box.upper.tolist()) == (lower, upper)


def test_elements_are_in_the_order_of_the_flat_tensor(tmp_path: Path) -> None:
    places = [(c, i, j) for c in range(3) for i in range(2) for j in range(2)]
    limits = "".join(f"(assert (== image[0,{c},{i},{j}] {4 * c + 2 * i + j}))" for c, i, j in places)
    network = "(declare-network f (declare-input image float32 [1,3,2,2]) (declare-output y float32 []))"
    (tmp_path / "x.vnnlib").write_text(f"{HEADER}{network}{limits}(assert (<= y 0.0))")
    declared = read_declared(tmp_path / "x.vnnlib", Preparation(shape=(3, 2, 2)))
    assert torch.equal(declared.regions[0].lower, torch.arange(12.0, dtype=torch.float64).reshape(3, 2, 2))
    assert declared.output_shape == ()
    with pytest.raises(FileError, match=r"declares an input of shape \[1, 3, 2, 2\], expected \[1, 2, 3, 2\], that of"):
        read_declared(tmp_path / "x.vnnlib", Preparation(shape=(2, 3, 2)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(assert (<= (* Y[0,0] Y[0,1]) 1))",
            re.escape("uses (* Y[0,0] Y[0,1]), a product of variables"),
        ),
        ("(assert (< X[0,0] 0.4))", re.escape("limits the input X[0,0] by < or >, which is not")),
        ("(assert (!= X[0,0] 0.4))", re.escape("limits the input X[0,0] by < or >")),
        ("(assert (<= X[0,0] X[0,1]))", re.escape("relates X[0,0] to X[0,1], expected each input between")),
        ("(assert (<= X[0,0] Y[0,1]))", re.escape("relates X[0,0] to Y[0,1]")),
        ("(assert (<= (- X[0,0] X[0,0]) 1))", "compares two numbers"),
        ("(assert (<= X[0,2] 1))", re.escape("uses X[0,2] of a tensor of shape [1, 2], expected its indices")),
        ("(assert (<= X[0] 1))", re.escape("uses X[0] of a tensor of shape [1, 2], expected its indices")),
        ("(assert (<= X 1))", re.escape("uses X of a tensor of shape [1, 2]")),
        ("(assert (<= Y[0 1] 1))", re.escape("uses Y[0 1] of a tensor of shape [1, 2]")),
        ("(assert (<= Z[0,0] 1))", re.escape("uses Z[0,0], which it does not declare")),
        ("(assert (not (<= Y[0,0] 1)))", r"contains \(not"),
        ("(assert (<= Y[0,0] 0x1))", "contains 0x1"),
        (
            "(declare-network g (declare-input A real [1]) (declare-output B real [1]))",
            "uses the networks f and g, which",
        ),
        ("(declare-const X_0 Real)", "contains .declare-const X_0 Real., expected declare-network"),
        ("(vnnlib-version <2.0>)", "contains .vnnlib-version"),
        ("", "asserts nothing about the outputs"),
    ],
)
def test_version_2_refuses_by_name(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=message):
        typed(text, tmp_path)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            "(declare-input X real [1,2]) (declare-output Y real [2]) (equal-to g)",
            "uses equal-to, which is not supported",
        ),
        (
            "(isomorphic-to g) (declare-input X real [1,2]) (declare-output Y real [2])",
            "uses isomorphic-to, which is not",
        ),
        (
            '(declare-input X real [1,2]) (declare-hidden Z real [1,3] "relu (1)") (declare-output Y real [2])',
            "uses declare-hidden, which is not supported",
        ),
        ("(declare-input X real [2]) (declare-input Z real [2]) (declare-output Y real [2])", "uses several inputs"),
        ("(declare-input X real [2]) (declare-output Z real [2]) (declare-output Y real [2])", "uses several outputs"),
        ("(declare-input X real [2] initialized) (declare-output Y real [2])", "uses declare-input with initialized"),
        ("(declare-input X int64 [2]) (declare-output Y real [2])", "uses the type int64, which is not supported"),
        ("(declare-input X real [2]) (declare-output X real [2])", "declares X twice"),
        ("(declare-input X real [2 3]) (declare-output Y real [2])", "declares .* expected \\(declare-input"),
        ("(declare-input X real [0]) (declare-output Y real [2])", r"with shape \[0\], expected sizes above 0"),
        ("(declare-input X real [2])", "declares a network without output"),
        ("", "declares a network without input"),
        ("(declare-input X real [1,3]) (declare-output Y real [2])", r"of shape \[1, 3\], expected \[1, 2\], that"),
    ],
)
def test_declarations_of_version_2_are_refused_by_name(network: str, message: str, tmp_path: Path) -> None:
    limits = INPUTS if "[1,2]" in network else "(assert (<= X[0] 1)) (assert (>= X[0] 0)) (assert (== X[1] 0))"
    limits = limits if "[1,3]" not in network else "".join(f"(assert (== X[0,{k}] 0.0))" for k in range(3))
    (tmp_path / "x.vnnlib").write_text(f"{HEADER}(declare-network f {network}){limits}")
    with pytest.raises(FileError, match=message):
        read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text("(vnnlib-version <3.1>)" + BOX)
    with pytest.raises(FileError, match=r"has version 3\.1 of VNN-LIB, expected 2\.0"):
        read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))


def test_an_empty_file_declares_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text("; nothing")
    with pytest.raises(FileError, match="declares 0 inputs"):
        read_box(tmp_path / "x.vnnlib", Preparation(shape=(2,)))


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib.gz").write_bytes(gzip.compress(b" " * (2**26 + 1), 1))
    with pytest.raises(FileError, match="more than 67108864 bytes"):
        read_box(tmp_path / "x.vnnlib.gz", Preparation(shape=(2,)))


@pytest.mark.skipif(not (DATA / "vnnlib").is_dir(), reason="no specifications of the competition here")
@pytest.mark.parametrize(
    ("network", "specification", "label", "radius"),
    [
        ("mnist-net_256x2", "mnistfc_prop_2_0.03", 0, 0.03),
        ("cifar_base_kw", "cifar_base_kw-img1598-eps0.00", 5, 0.0117),
    ],
)
def test_specifications_of_the_competition(network: str, specification: str, label: int, radius: float) -> None:
    model = read_model(str(DATA / "onnx" / f"{network}.onnx"))
    box = read_box(next((DATA / "vnnlib").glob(f"{specification}*")), model.preparation)
    assert float(box.radius.max()) == pytest.approx(radius, rel=0.01)
    over = pm.overlap(model.network, box.centre[None], pm.Ball(box.radius[None]))
    assert int(over.target) == label
    assert float(over.nominal) < 0
    assert float(over.full) < 0.1
