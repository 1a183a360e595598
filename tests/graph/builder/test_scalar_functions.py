"""Functions of one scalar, products and maxima, against torch."""

from collections.abc import Callable
from math import inf

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import scalar_functions
from proofmap.graph.builder.graph_builder import Builder, NoRule
from tests.graph.built import assert_is, built, drawn, ops

Word = tuple[Callable[[Builder], str], Callable[[Tensor], Tensor], list[str]]
BETWEEN = ["affine", "softplus", "affine"]
NUMBER = torch.tensor([[0.2]])
SCALARS: dict[str, Word] = {
    "clamp": (lambda b: scalar_functions.clamp(b, "y", "input", -0.2, 0.3), lambda x: x.clamp(-0.2, 0.3), ["clamp"]),
    "clamp to relu": (lambda b: scalar_functions.clamp(b, "y", "input", 0.0), torch.relu, ["relu"]),
    "clamp to nothing": (lambda b: scalar_functions.clamp(b, "y", "input"), lambda x: x, []),
    "clamp crossed": (
        lambda b: scalar_functions.clamp(b, "y", "input", 1.0, -1.0),
        lambda x: x.clamp(1.0, -1.0),
        ["affine"],
    ),
    "softplus": (lambda b: scalar_functions.softplus(b, "y", "input"), F.softplus, ["softplus"]),
    "softplus of -x": (
        lambda b: scalar_functions.softplus(b, "y", "input", -2.0),
        lambda x: F.softplus(-2 * x) / -2,
        BETWEEN,
    ),
    "swish": (
        lambda b: scalar_functions.swish(b, "y", "input", 1.5),
        lambda x: x * torch.sigmoid(1.5 * x),
        ["affine", "silu", "affine"],
    ),
    "swish without slope": (lambda b: scalar_functions.swish(b, "y", "input", 0.0), lambda x: x / 2, ["affine"]),
    "log of sigmoid": (
        lambda b: scalar_functions.log(b, "y", b.add_node("s", "sigmoid", ["input"])),
        F.logsigmoid,
        BETWEEN,
    ),
    "pow 1": (lambda b: scalar_functions.power(b, "y", "input", 1.0), lambda x: x, []),
    "pow 2": (lambda b: scalar_functions.power(b, "y", "input", 2.0), torch.square, ["square"]),
    "pow 3": (lambda b: scalar_functions.power(b, "y", "input", 3.0), lambda x: x**3, ["square", "product"]),
    "pow 4": (lambda b: scalar_functions.power(b, "y", "input", 4.0), lambda x: x**4, ["square", "square"]),
    "pow 5": (lambda b: scalar_functions.power(b, "y", "input", 5.0), lambda x: x**5, ["square", "square", "product"]),
    "pow -3": (
        lambda b: scalar_functions.power(b, "y", "input", -3.0),
        lambda x: x**-3.0,
        ["square", "product", "reciprocal"],
    ),
    "pow 0.75": (
        lambda b: scalar_functions.power(b, "y", b.add_node("size", "abs", ["input"]), 0.75),
        lambda x: x.abs() ** 0.75,
        ["abs", "log", "affine", "exp"],
    ),
    "pow -1": (lambda b: scalar_functions.power(b, "y", "input", -1.0), torch.reciprocal, ["reciprocal"]),
    "pow -2": (lambda b: scalar_functions.power(b, "y", "input", -2.0), lambda x: x**-2.0, ["square", "reciprocal"]),
    "maximum with a number": (
        lambda b: scalar_functions.maximum(b, "y", NUMBER, "input"),
        lambda x: x.clamp(min=0.2),
        ["clamp"],
    ),
    "minimum with a number": (
        lambda b: scalar_functions.minimum(b, "y", NUMBER, "input"),
        lambda x: x.clamp(max=0.2),
        ["clamp"],
    ),
    "maximum with numbers": (
        lambda b: scalar_functions.maximum(b, "y", "input", drawn(4)),
        lambda x: torch.maximum(x, drawn(4)),
        ["affine", "relu", "affine"],
    ),
}


@pytest.mark.parametrize("name", SCALARS)
def test_words_for_scalars(name: str) -> None:
    build, function, expected = SCALARS[name]
    graph = built((4,), build)
    assert ops(graph) == expected
    assert_is(graph, function)


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, inf), (-inf, 0.5), (0.3, 0.3)])
def test_a_clamp_has_the_slope_0_at_its_limits(low: float, high: float) -> None:
    """Torch's ReLU6 has the same slopes. Gradients may be taken there: float32 sums are sometimes exactly 0."""
    graph = built((4,), lambda b: scalar_functions.clamp(b, "y", "input", low, high))
    x = torch.tensor([[low, high, -7.0, 0.4]]).nan_to_num(posinf=9.0, neginf=-9.0).to(graph.dtype).requires_grad_()
    y = graph(x)
    assert torch.equal(y, x.clamp(low, high))
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(slope, ((x > low) & (x < high)).to(x))


Gate = tuple[Callable[[Builder], str], str, Callable[[Tensor], Tensor]]
GATES: dict[str, Gate] = {
    "silu": (lambda b: scalar_functions.mul(b, "y", "input", sigmoid(b, 1.0, 0.0)), "silu", F.silu),
    "silu the other way": (lambda b: scalar_functions.mul(b, "y", sigmoid(b, 1.0, 0.0), "input"), "silu", F.silu),
    "silu scaled": (
        lambda b: scalar_functions.mul(
            b, "y", b.scale("half", "input", 0.5), b.scale("twice", sigmoid(b, 3.0, 0.0), 4.0)
        ),
        "silu",
        lambda x: 2 * x * torch.sigmoid(3 * x),
    ),
    "gelu": (lambda b: scalar_functions.mul(b, "y", "input", erf(b, 0.5**0.5, 1.0)), "gelu", lambda x: 2 * F.gelu(x)),
    "gelu halved inside": (
        lambda b: scalar_functions.mul(b, "y", "input", b.scale("half", erf(b, 0.5**0.5, 1.0), 0.5)),
        "gelu",
        F.gelu,
    ),
    "gelu in single precision": (
        lambda b: scalar_functions.mul(b, "y", "input", erf(b, float(np.float32(0.5**0.5)), 1.0)),
        "gelu",
        lambda x: x * (1 + torch.erf(float(np.float32(0.5**0.5)) * x)),
    ),
    "gelu of another slope": (
        lambda b: scalar_functions.mul(b, "y", "input", erf(b, -1.5, 1.0)),
        "gelu",
        lambda x: x * (1 + torch.erf(-1.5 * x)),
    ),
    "mish": (
        lambda b: scalar_functions.mul(
            b, "y", "input", b.add_node("t", "tanh", [scalar_functions.softplus(b, "p", "input")])
        ),
        "mish",
        F.mish,
    ),
    "softsign": (
        lambda b: scalar_functions.div(
            b, "y", "input", b.affine("l", b.add_node("a", "abs", ["input"]), None, torch.tensor(1))
        ),
        "softsign",
        F.softsign,
    ),
    "hardswish of another slope": (
        lambda b: scalar_functions.mul(b, "y", "input", scalar_functions.hard_sigmoid(b, "gate", "input", -0.2)),
        "hardswish",
        lambda x: x * (0.5 - 0.2 * x).clamp(0, 1),
    ),
    "hardswish": (
        lambda b: scalar_functions.mul(b, "y", "input", relu6(b, 3.0)),
        "hardswish",
        lambda x: 6 * F.hardswish(x),
    ),
    "hardswish by hard sigmoid": (
        lambda b: scalar_functions.mul(b, "y", "input", scalar_functions.hard_sigmoid(b, "gate", "input")),
        "hardswish",
        F.hardswish,
    ),
}
NO_GATES: dict[str, tuple[Callable[[Builder], str], Callable[[Tensor], Tensor]]] = {
    "shifted": (
        lambda b: scalar_functions.mul(b, "y", "input", sigmoid(b, 1.0, 0.1)),
        lambda x: x * torch.sigmoid(x + torch.tensor(0.1)),
    ),
    "lifted": (
        lambda b: scalar_functions.mul(b, "y", "input", b.affine("up", sigmoid(b, 1.0, 0.0), None, torch.tensor(0.1))),
        lambda x: x * (torch.sigmoid(x) + torch.tensor(0.1)),
    ),
    "erf without one": (
        lambda b: scalar_functions.mul(b, "y", "input", erf(b, 0.5**0.5, 0.0)),
        lambda x: x * torch.erf(0.5**0.5 * x),
    ),
    "relu6 moved": (
        lambda b: scalar_functions.mul(b, "y", "input", relu6(b, 2.5)),
        lambda x: x * (x + 2.5).clamp(0, 6),
    ),
    "relu6 nearly not moved": (
        lambda b: scalar_functions.mul(b, "y", "input", relu6(b, 3.0000002)),
        lambda x: x * (x + torch.tensor(3.0000002)).clamp(0, 6),
    ),
    "softsign of two signs": (
        lambda b: scalar_functions.div(
            b, "y", "input", b.affine("l", b.add_node("a", "abs", ["input"]), None, torch.tensor(-1))
        ),
        lambda x: x / (x.abs() - 1),
    ),
    "mish of a low threshold": (
        lambda b: scalar_functions.mul(
            b, "y", "input", b.add_node("t", "tanh", [scalar_functions.softplus(b, "p", "input", threshold=3.0)])
        ),
        lambda x: x * torch.tanh(F.softplus(x, threshold=3.0)),
    ),
    "another input": (
        lambda b: scalar_functions.mul(b, "y", b.add_node("a", "abs", ["input"]), sigmoid(b, 1.0, 0.0)),
        lambda x: x.abs() * torch.sigmoid(x),
    ),
    "slopes that differ": (
        lambda b: scalar_functions.mul(b, "y", b.affine("a", "input", drawn(4), None), sigmoid(b, 1.0, 0.0)),
        lambda x: x * drawn(4) * torch.sigmoid(x),
    ),
}


def sigmoid(b: Builder, slope: float, start: float) -> str:
    return b.add_node("gate", "sigmoid", [b.affine("line", "input", torch.tensor(slope), torch.tensor(start))])


def erf(b: Builder, slope: float, shift: float) -> str:
    return b.affine("gate", b.add_node("erf", "erf", [b.scale("line", "input", slope)]), None, torch.tensor(shift))


def relu6(b: Builder, start: float) -> str:
    return scalar_functions.clamp(b, "gate", b.affine("line", "input", None, torch.tensor(start)), 0.0, 6.0)


@pytest.mark.parametrize("name", GATES)
def test_gates_are_recognised(name: str) -> None:
    build, op, function = GATES[name]
    graph = built((4,), build)
    assert set(ops(graph)) <= {op, "affine"}
    assert_is(graph, function)


@pytest.mark.parametrize("name", NO_GATES)
def test_an_inexact_gate_is_a_product(name: str) -> None:
    build, function = NO_GATES[name]
    graph = built((4,), build)
    assert ops(graph)[-1] == "product"
    assert not {"silu", "gelu", "hardswish", "softsign", "mish"} & {*ops(graph)}
    assert_is(graph, function)


def test_a_slope_close_to_one_sixth_is_not_one_sixth() -> None:
    def gated(b: Builder) -> str:
        return scalar_functions.mul(b, "y", "input", scalar_functions.hard_sigmoid(b, "gate", "input", 0.16666669))

    x = torch.linspace(-4, 4, 40, dtype=torch.float64).reshape(10, 4)
    expected = x * (0.5 + 0.16666669 * x).clamp(0, 1)
    torch.testing.assert_close(built((4,), gated)(x), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("precision", "fits"), [(torch.float32, True), (torch.float64, False)])
def test_gates_are_recognised_in_the_precision_of_the_model(precision: torch.dtype, fits: bool) -> None:
    """3 · 0.16666667 is 0.50000001, which equals 1/2 in single precision but not in double precision."""
    b = Builder((4,), 5, precision=precision)
    sixth = float(np.float32(1 / 6))
    gate = scalar_functions.hard_sigmoid(b, "gate", "input", sixth, 3 * sixth)
    graph = b.finish(scalar_functions.mul(b, "y", "input", gate), torch.device("cpu"), precision)
    assert ops(graph)[-1] == ("hardswish" if fits else "product")


def test_sign_times_absolute_value_is_the_identity() -> None:
    def signed(b: Builder, of: str, relu: bool) -> str:
        sign = scalar_functions.sign(b, "sign", "input")
        size = b.add_node("size", "abs", [of])
        return scalar_functions.mul(b, "y", sign, b.add_node("up", "relu", [size]) if relu else size)

    for relu in (False, True):
        b = Builder((4,), 5)
        assert signed(b, "input", relu) == "input"
    b = Builder((4,), 5)
    assert b.nodes[signed(b, b.scale("other", "input", 2.0), False)].op == "product"


def test_powers_and_limits_without_a_rule() -> None:
    b = Builder((4,), 5)
    for exponent in (0.0, 20.0, -20.0, inf):
        with pytest.raises(NoRule, match=f"with exponent {exponent:g}"):
            scalar_functions.power(b, "y", "input", exponent)
    with pytest.raises(ModelError, match=r"clamp \(node 'y'\) has limits inf and inf"):
        scalar_functions.clamp(b, "y", "input", inf, inf)
    with pytest.raises(ModelError, match=r"slopes of shape \(3, 1\) for \(4,\)"):
        scalar_functions.leaky_relu(b, "y", "input", drawn(3, 1))
