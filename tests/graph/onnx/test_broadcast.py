"""Broadcasting of two values: either one may be the smaller, and the result has their common shape."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from proofmap.errors import UnsupportedError
from proofmap.graph import bounded
from tests.graph.onnx.files import Array, floats, loaded, make
from tests.graph.onnx.specs import Spec, assert_read, cases, fixed, node

BRANCHES = [(1, 3), (2, 1), (2, 3), (1, 1)]  # shapes of one sample of x
CONSTANTS = [(), (1,), (3,), (2, 1), (2, 3), (1, 1, 3), (1, 2, 1), (1, 1, 1)]
BOTH = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"]


def positive(*shape: int) -> Array:
    return np.asarray(np.abs(floats(*shape)) + 0.5, dtype=np.float32)


@pytest.mark.parametrize("right", [False, True], ids=["constant first", "constant last"])
@pytest.mark.parametrize("op", BOTH)
def test_a_branch_and_a_constant(op: str, right: bool, tmp_path: Path) -> None:
    for shape, other in product(BRANCHES, CONSTANTS):
        names = ["e", "c"] if right else ["c", "e"]
        nodes = [node("Exp", ["x"], ["e"]), node(op, names, ["h"])]
        assert_read(fixed(op, shape, nodes, {"c": positive(*other)}), 13, tmp_path)


@pytest.mark.parametrize("op", ["Add", "Sub", "Max", "Min", "Sum", "Mean"])
def test_two_branches(op: str, tmp_path: Path) -> None:
    """The values are x and its sum over an axis, which has length 1 afterwards."""
    for shape, axis in product(BRANCHES, (1, 2)):
        nodes = [node("ReduceSum", ["x", "axes"], ["s"], keepdims=1), node(op, ["s", "x"], ["h"])]
        assert_read(fixed(op, shape, nodes, {"axes": np.array([axis])}), 13, tmp_path)


@pytest.mark.parametrize("exponent", [2.0, 0.5, -0.5, 1.0, -1.0, -2.0])
def test_powers(exponent: float, tmp_path: Path) -> None:
    for shape, other in product(BRANCHES, CONSTANTS):
        nodes = [node("Exp", ["x"], ["e"]), node("Pow", ["e", "c"], ["h"])]
        assert_read(fixed("Pow", shape, nodes, {"c": np.full(other, exponent, dtype=np.float32)}), 13, tmp_path)


def test_exponents_may_differ(tmp_path: Path) -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Pow", ["e", "c"], ["h"])]
    powers = np.array([[0, 1, 2, 3], [-1, 0.5, 2, 1.7], [2, 2, 2, 2]], dtype=np.float32)
    bounded(assert_read(fixed("Pow", (3, 4), nodes, {"c": powers}), 13, tmp_path))
    nodes = [node("Pow", ["x", "c"], ["y"])]
    with pytest.raises(UnsupportedError, match="Pow with more than 16 exponents"):
        bounded(loaded(make(nodes, ("n", 17), {"c": np.arange(17, dtype=np.float32)}), tmp_path))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 3, 1), (3, 4)])
def test_softplus_by_exporters_has_the_shape_of_its_condition(shape: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=1),
        node("Softplus", ["s"], ["p"]),
        node("Greater", ["s", "limit"], ["g"]),
        node("Where", ["g", "s", "p"], ["h"]),
    ]
    constants = {"axes": np.array([1]), "limit": np.full(shape, 20, dtype=np.float32)}
    assert_read(fixed("Where", (3, 4), nodes, constants), 13, tmp_path)


SLOPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), ()),
    ((2, 3), (3,)),
    ((2, 3), (2, 1)),
    ((2, 3), (1, 2, 3)),
    ((3, 1), (1, 1, 1)),
]
PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3, 2)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 3), (1, 3, 2)),
    ((1, 2, 3), (4, 3, 2)),
    ((4, 2, 3), (1, 3, 2)),
    ((1, 2, 3), (1, 4, 3, 2)),
    ((4, 2, 3), (3,)),
]
LEFT: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 2), (4, 3)),
    ((3, 2), (3,)),
    ((3, 2), (1, 4, 3)),
    ((1, 3, 2), (5, 4, 3)),
    ((5, 3, 2), (1, 4, 3)),
    ((1, 3, 2), (1, 5, 4, 3)),
]
TABLE = [
    *(fixed(f"PRelu {x} {c}", x, [node("PRelu", ["x", "c"], ["h"])], {"c": floats(*c)}) for x, c in SLOPES),
    *(fixed(f"x @ c {x} {c}", x, [node("MatMul", ["x", "c"], ["h"])], {"c": floats(*c)}) for x, c in PRODUCTS),
    *(fixed(f"c @ x {x} {c}", x, [node("MatMul", ["c", "x"], ["h"])], {"c": floats(*c)}) for x, c in LEFT),
    *(
        Spec(
            f"Gemm + {c}", (3,), lambda o: [node("Gemm", ["x", "w", "c"], ["h"])], {"w": floats(3, 2), "c": floats(*c)}
        )
        for c in [(), (1,), (2,), (1, 1), (1, 2)]
    ),
]


@pytest.mark.parametrize(("spec", "opset"), cases(*TABLE, opsets=(13,)))
def test_products_and_slopes(spec: Spec, opset: int, tmp_path: Path) -> None:
    assert_read(spec, opset, tmp_path)
