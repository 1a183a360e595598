"""The checker's reader of VNN-LIB files: what it reads, and that it refuses the rest."""

from fractions import Fraction

import pytest

from proofmap.proof import check as checker

NAMES = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
ENDS = "(assert (>= X_0 -1))(assert (<= X_0 0.1))(assert (and (<= -.5 X_1) (>= 1e1 X_1)))"


def read(text: str) -> checker.PropertyFile:
    return checker.PropertyFile.read(text.encode())


def test_boxes_and_cases_are_read_exactly() -> None:
    found = read(
        f"; a comment (assert\r\n{NAMES}{ENDS}(assert (or (<= Y_0 0.1) (and (> Y_1 2) (<= (- Y_0) (* 0.5 Y_1)))))"
    )
    (box,) = found.boxes
    assert (box.lower, box.upper) == ([Fraction(-1), Fraction(-1, 2)], [Fraction(1, 10), Fraction(10)])
    first, second = box.cases
    assert first == [checker.UnsafeRow({0: Fraction(1)}, Fraction(-1, 10))]
    assert second == [
        checker.UnsafeRow({1: Fraction(-1)}, Fraction(2)),
        checker.UnsafeRow({0: Fraction(-1), 1: Fraction(-1, 2)}, Fraction(0)),
    ]
    assert (found.inputs, found.outputs) == (2, 2)


def test_the_tightest_limits_count_and_empty_boxes_do_not() -> None:
    ors = "(assert (or (and (<= X_0 0) (>= X_0 0) (<= Y_0 0)) (and (<= X_0 -2) (<= Y_0 1)) (<= Y_0 2)))"
    boxes = read(f"{NAMES}{ENDS}{ors}").boxes
    found = [[float(end) for end in (box.lower[0], box.upper[0], box.cases[0][0].constant)] for box in boxes]
    assert found == [[0.0, 0.0, 0.0], [-1.0, 0.1, -2.0]]


def test_terms_are_sums_and_products() -> None:
    (box,) = read(f"{NAMES}{ENDS}(assert (<= (- Y_0 (* 2 Y_1 0.5) 0.25) (+ 1 (- 3) (* 0 Y_0))))").boxes
    assert box.cases == [[checker.UnsafeRow({0: Fraction(1), 1: Fraction(-1)}, Fraction(7, 4))]]


def test_two_disjunctions_are_multiplied() -> None:
    boxes = read(f"{NAMES}{ENDS}(assert (or (<= Y_0 0) (<= Y_0 1)))(assert (or (<= Y_1 0) (<= Y_1 1)))").boxes
    assert [[row.constant for row in case] for case in boxes[0].cases] == [[0, 0], [0, -1], [-1, 0], [-1, -1]]


def test_corners_are_rounded_outward_to_float32() -> None:
    box = checker.InputBox(
        [Fraction(1, 10), Fraction(1, 2), Fraction(-1, 10**60)], [Fraction(2, 10), Fraction(1, 2), Fraction(0)], []
    )
    low, high = box.ends
    for k in range(3):
        assert Fraction(low[k]) <= box.lower[k] <= box.upper[k] <= Fraction(high[k])
    assert (low[1], high[1], high[2]) == (0.5, 0.5, 0.0)
    assert low[2] == -(2.0**-149)
    assert [*map(checker.float32_below, map(Fraction, (low[0], 0.5)))] == [low[0], 0.5]


ROW = "(assert (<= Y_0 0))"
ODD = [
    (f"{NAMES}{ENDS}", "nothing about the outputs"),
    (f"{NAMES}{ENDS}(assert (or (<= Y_0 0) (<= X_0 0)))", "nothing about the outputs"),
    (f"{NAMES}{ROW}", "no limit on one side"),
    (f"{NAMES}{ENDS}(assert (>= X_0 3)){ROW}", "every box of it is empty"),
    (f"{NAMES}{ENDS}(assert (<= X_0 X_1)){ROW}", "an input between two numbers"),
    (f"{NAMES}{ENDS}(assert (<= X_0 Y_1)){ROW}", "an input between two numbers"),
    (f"{NAMES}{ENDS}(assert (< X_0 0)){ROW}", "an input between two numbers"),
    (f"{NAMES}{ENDS}(assert (= Y_0 0))", "expected and, or"),
    (f"{NAMES}{ENDS}(assert (not (<= Y_0 0)))", "expected and, or"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 0 1))", "expected and, or"),
    (f"{NAMES}{ENDS}(assert (<= 0 1)){ROW}", "compares no variable"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 Y_0)){ROW}", "compares no variable"),
    (f"{NAMES}{ENDS}(assert (<= (* Y_0 Y_1) 0))", "a product of variables"),
    (f"{NAMES}{ENDS}(assert (<= (/ Y_0 2) 0))", "a sum, or a product"),
    (f"{NAMES}{ENDS}(assert (<= Y_2 0))", "no declared variable"),
    (f"{NAMES}{ENDS}(assert (<= Y_00 0))", "no declared variable"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 1_0))", "no number"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 0x10))", "no number"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 nan))", "no number"),
    (f"{NAMES}{ENDS}(assert (<= Y_0 ()))", "a sum, or a product"),
    (f"{NAMES}{ENDS}(assert)", "expected declare-const"),
    (f"{NAMES}{ENDS}(assert ())", "it asserts"),
    (f"{NAMES}{ENDS}(assert (or)){ROW}", "it asserts"),
    (f"{NAMES}{ENDS}(check-sat){ROW}", "expected declare-const"),
    (f"{NAMES}{ENDS}{ROW}(set-info :source |)(assert (<= Y_1 0))|)", "not open"),
    (f"{NAMES}{ENDS}{ROW} Y_0", "expected declare-const"),
    (f"{NAMES}{ENDS}{ROW})", "not open"),
    (f"{NAMES}{ENDS}({ROW}", "inside parentheses"),
    (f"{NAMES}(declare-const X_0 Real){ENDS}{ROW}", "declares X_0 twice"),
    (f"{NAMES}(declare-const X_3 Real){ENDS}{ROW}", "other names"),
    (f"{NAMES}(declare-const Z_0 Real){ENDS}{ROW}", "expected declare-const"),
    (f"{NAMES}(declare-const Y_2 Int){ENDS}{ROW}", "expected declare-const"),
    (f"{NAMES}{ENDS}; a comment that may end here\r(assert (<= Y_1 0))\n{ROW}", "control characters"),
    (f"{NAMES}{ENDS}; or here\x0b(assert (<= Y_1 0))\n{ROW}", "control characters"),
    (f"{NAMES}{ENDS}; or here\u2028(assert (<= Y_1 0))\n{ROW}", "damaged"),
    (f"{NAMES}{ENDS}(assert {'(or ' * 40}(<= Y_0 0){')' * 40})", "too many parentheses"),
    (f"{NAMES}{ENDS}" + "(assert (or (<= Y_0 0) (<= Y_0 1)))" * 18, "too many cases"),
]


@pytest.mark.parametrize(("text", "why"), ODD, ids=[f"{k}" for k in range(len(ODD))])
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(checker.Rejected, match="the property: ") as caught:
        read(text)
    assert why in str(caught.value)
