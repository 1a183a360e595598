from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import Graph, Node, layers, scalars
from proofmap.graph.build import Builder, NoRule, Value
from proofmap.graph.fold import fold

CPU, DOUBLE = torch.device("cpu"), torch.float64
Array = npt.NDArray[Any]


def built(shape: tuple[int, ...], build: Callable[[Builder], Value]) -> Graph:
    """What `build` makes of the input, flattened to logits."""
    b = Builder(shape, 5)
    value = build(b)
    assert isinstance(value, str)
    value = b.settle("y", value, 1)
    return b.finish(b.reshape("flat", value, (prod(b.shape(value)),)), CPU, DOUBLE)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE) * 2 - 1


def assert_is(graph: Graph, function: Callable[[Tensor], Tensor]) -> None:
    x = drawn(3, *graph.input.shape, seed=9)
    torch.testing.assert_close(graph(x), function(x).flatten(1))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes[1:]]


# --- folding ---


def conv(b: Builder, name: str, x: str, *, padding: int = 0) -> str:
    channels = b.shape(x)[0]
    pads = [(padding, padding)] * 2
    return layers.conv(
        b,
        name,
        x,
        drawn(4, channels // 2, 2, 2),
        drawn(4, seed=1),
        stride=(1, 1),
        padding=pads,
        dilation=(1, 1),
        groups=2,
    )


def conv_transpose(b: Builder, name: str, x: str) -> str:
    return layers.conv_transpose(
        b,
        name,
        x,
        drawn(2, 3, 2, 2),
        drawn(6, seed=1),
        stride=(1, 1),
        padding=[(0, 0)] * 2,
        output_padding=(0, 0),
        dilation=(1, 1),
        groups=2,
    )


MERGED: dict[str, tuple[tuple[int, ...], Callable[[Builder], str], Callable[[Builder, str], str]]] = {
    "linear": (
        (3,),
        lambda b: layers.linear(b, "first", "input", drawn(4, 3), drawn(4)),
        lambda b, x: scaled(b, x, (4,)),
    ),
    "linear over rows": (
        (2, 3),
        lambda b: layers.linear(b, "first", "input", drawn(4, 3), None),
        lambda b, x: scaled(b, x, (1, 4)),
    ),
    "matmul right": (
        (2, 3, 3),
        lambda b: layers.matmul(b, "first", "input", drawn(2, 3, 4)),
        lambda b, x: scaled(b, x, (4,)),
    ),
    "matmul left": (
        (3, 2),
        lambda b: layers.matmul(b, "first", drawn(4, 3), "input"),
        lambda b, x: scaled(b, x, (4, 1)),
    ),
    "conv": ((2, 3, 3), lambda b: conv(b, "first", "input"), lambda b, x: scaled(b, x, (4, 1, 1))),
    "conv by one number": ((2, 3, 3), lambda b: conv(b, "first", "input"), lambda b, x: scaled(b, x, (1, 1, 1))),
    "conv_transpose": ((2, 3, 3), lambda b: conv_transpose(b, "first", "input"), lambda b, x: scaled(b, x, (6, 1, 1))),
    "affine": ((3,), lambda b: b.affine("first", "input", drawn(3), drawn(3)), lambda b, x: scaled(b, x, (3,))),
    "affine into linear": (
        (2, 3),
        lambda b: scaled(b, "input", (3,), "lost"),
        lambda b, x: layers.linear(b, "first", x, drawn(4, 3), drawn(4)),
    ),
    "affine into conv": ((4, 3, 3), lambda b: scaled(b, "input", (4, 1, 1), "lost"), lambda b, x: conv(b, "first", x)),
    "scale into padded conv": (
        (4, 3, 3),
        lambda b: b.affine("lost", "input", drawn(4, 1, 1), None),
        lambda b, x: conv(b, "first", x, padding=1),
    ),
}


def scaled(b: Builder, x: str, shape: tuple[int, ...], name: str = "second") -> str:
    return b.affine(name, x, drawn(*shape, seed=2) + 2, drawn(*shape, seed=3))


def unfolded(shape: tuple[int, ...], build: Callable[[Builder], str]) -> Graph:
    b = Builder(shape, 5)
    output = b.reshape("flat", value := build(b), (prod(b.shape(value)),))
    return Graph(tuple(b.nodes.values()), output)


@pytest.mark.parametrize("name", MERGED)
def test_constants_are_folded(name: str) -> None:
    shape, first, second = MERGED[name]
    before = unfolded(shape, lambda b: second(b, first(b)))
    after = fold(before)
    assert [node.name for node in after.nodes[1:] if node.name != "flat"] == ["first"]
    assert len(before.nodes) == len(after.nodes) + 1
    assert_is(after, before)


KEPT: dict[str, tuple[tuple[int, ...], Callable[[Builder], str]]] = {
    "constants inside a channel": ((2, 3, 3), lambda b: scaled(b, conv(b, "first", "input"), (4, 2, 2))),
    "constants along another axis": ((2, 3, 3), lambda b: scaled(b, conv(b, "first", "input"), (1, 1, 2))),
    "rows of a linear": ((2, 3), lambda b: scaled(b, layers.linear(b, "first", "input", drawn(4, 3), None), (2, 1))),
    "columns of a matmul": ((3, 2), lambda b: scaled(b, layers.matmul(b, "first", drawn(4, 3), "input"), (2,))),
    "shift before padding": ((4, 3, 3), lambda b: conv(b, "first", scaled(b, "input", (4, 1, 1)), padding=1)),
    "no weight": ((3,), lambda b: scaled(b, scalars.unary(b, "first", "relu", "input"), (3,))),
    "another reader": (
        (3,),
        lambda b: b.add("sum", x := layers.linear(b, "first", "input", drawn(3, 3), None), scaled(b, x, (3,))),
    ),
    "a name that is asked for": (
        (3,),
        lambda b: layers.linear(b, "last", scalars.elu(b, "act", "input", 1.0, 2.0), drawn(4, 3), None),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_constants_are_kept(name: str) -> None:
    before = unfolded(*KEPT[name])
    after = fold(before)
    assert [node.name for node in after.nodes] == [node.name for node in before.nodes]
    assert_is(after, before)


def test_what_lies_before_the_output_is_folded_and_the_output_renamed() -> None:
    b = Builder((3,), 5)
    graph = b.finish(scaled(b, layers.linear(b, "first", "input", drawn(4, 3), None), (4,)), CPU, DOUBLE)
    assert graph.output == "first"
    b = Builder((3,), 5)
    y = layers.linear(b, "first", "input", drawn(4, 3), None)
    scaled(b, y, (4,))
    assert b.finish(y, CPU, DOUBLE).output == "first"  # what nobody needs is gone, and not folded into the output


def test_a_chain_is_folded_into_one() -> None:
    def build(b: Builder) -> str:
        x = scaled(b, "input", (2, 1, 1), "norm")
        x = conv(b, "conv", x)
        for k in range(3):
            x = scaled(b, x, (4, 1, 1), f"scale{k}")
        return x

    assert ops(built((2, 3, 3), build)) == ["conv", "reshape"]
    assert_is(built((2, 3, 3), build), unfolded((2, 3, 3), build))


def test_folding_is_done_in_double_precision() -> None:
    weight = drawn(4, 3).float()
    b = Builder((3,), 5)
    y = layers.linear(b, "first", "input", weight, None)
    for _ in range(20):
        y = b.scale("third", y, 1 / 3)
    for _ in range(20):
        y = b.scale("thrice", y, 3.0)
    graph = b.finish(y, CPU, torch.float32)
    folded = graph["first"].weight
    assert folded is not None
    assert torch.equal(folded, weight)


# --- the builder ---


def test_names_are_free() -> None:
    b = Builder((3,), 5)
    assert [scalars.unary(b, "act", "relu", "input") for _ in range(3)] == ["act", "act#2", "act#3"]
    assert scalars.unary(b, "input", "relu", "input") == "input#2"


def test_the_last_node_of_a_word_takes_its_name() -> None:
    b = Builder((2, 4), 5)
    pooled = layers.max_over(b, "largest", "input", [1], keepdim=False)
    assert b.settle("largest", pooled, 1) == "largest"
    assert b.shape("largest") == (2,)
    again = layers.max_over(b, "largest", "input", [1], keepdim=False)
    assert b.settle("largest", again, 3) == again
    inner = scalars.unary(b, "block.act", "relu", again)
    assert b.settle("block", inner, len(b.nodes)) == inner  # made by somebody else


def test_nodes_that_do_not_fit_are_named() -> None:
    b = Builder((3,), 5)
    with pytest.raises(ModelError, match=r"linear \(node 'bad'\) does not fit its input"):
        layers.linear(b, "bad", "input", drawn(2, 4), None)
    with pytest.raises(ModelError, match=r"conv \(node 'bad'\) gets 3 channels, but its weights are for 2"):
        conv(Builder((3, 3), 5), "bad", "input")
    with pytest.raises(ModelError, match="node 'bad' joins shapes"):
        b.affine("bad", "input", drawn(2), None)
    with pytest.raises(ModelError, match=r"node 'bad' joins shapes \(3,\) and \(2,\)"):
        b.add("bad", "input", b.slice("part", "input", 0, 0, 2))
    with pytest.raises(ModelError, match=r"pad \(node 'bad'\) has shape .* expected 1 to"):
        b.pad("bad", "input", (0, 2**40))
    with pytest.raises(ModelError, match=r"slice \(node 'bad'\) has shape \(0,\), expected 1 to"):
        b.slice("bad", "input", 0, 2, 2)
    with pytest.raises(ModelError, match=r"reshape \(node 'bad'\) does not fit its input: 15 scalars into \(5, 4\)"):
        b.batched_reshape("bad", "reshape", "input", (5, 4))


def test_constants_meet_samples() -> None:
    b = Builder((2, 3), 5)
    assert b.sample_constant("n", "add", drawn(3), 3).shape == (3,)
    assert b.sample_constant("n", "add", drawn(1, 2, 3), 3).shape == (2, 3)
    assert b.sample_constant("n", "add", drawn(1, 2, 3).expand(5, 2, 3), 3).shape == (2, 3)
    for value in (drawn(5, 2, 3), drawn(1, 1, 2, 3), drawn(1, 2, 3).expand(4, 2, 3)):
        with pytest.raises(ModelError, match=r"add \(node 'n'\) mixes the samples"):
            b.sample_constant("n", "add", value, 3)


def test_all_missing_operations_are_listed_unless_nobody_needs_them() -> None:
    b = Builder((3,), 5)
    one = b.unsupported("one", "Sin", ["input"], (3,))
    two = b.unsupported("two", "Cos", [one], (3,))
    b.unsupported("three", "Tan", [two], (3,))
    with pytest.raises(UnsupportedError, match=r"no rule for Sin \(node 'one'\), Cos \(node 'two'\)") as caught:
        b.finish(two, CPU, DOUBLE)
    assert caught.value.nodes == (("one", "Sin"), ("two", "Cos"))
    assert b.finish("input", CPU, DOUBLE).output == "input"


def test_a_graph_is_checked_when_it_is_made() -> None:
    x, y = Node("x", "input", (), (1,)), Node("y", "relu", ("x",), (1,))
    with pytest.raises(AssertionError, match="two nodes are named 'x'"):
        Graph((x, x), "x")
    with pytest.raises(AssertionError, match="'y' stands before its inputs"):
        Graph((y, x), "y")


# --- words for shapes ---


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pads", [(1, 2), (0, 1, 2, 0), (1, 1, 0, 0, 1, 0), (-1, 2), (2, -1, 0, 1)])
def test_padding_is_that_of_numpy(mode: str, pads: tuple[int, ...]) -> None:
    shape = (2, 3, 4)
    graph = built(shape, lambda b: b.pad("y", "input", pads, mode, 0.5 if mode == "constant" else 0.0))

    def expected(x: Tensor) -> Tensor:
        pairs = [(0, 0)] * (4 - len(pads) // 2) + list(zip(pads[::2], pads[1::2], strict=True))[::-1]
        how = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
        extra = {"constant_values": 0.5} if mode == "constant" else {}
        wide = x.numpy()
        if mode == "circular":  # torch and ONNX wrap what a crop has left
            wide = cropped(wide, pairs)
        wide = np.pad(wide, [(max(a, 0), max(c, 0)) for a, c in pairs], mode=how, **extra)  # type: ignore[call-overload]
        return torch.from_numpy(np.ascontiguousarray(wide if mode == "circular" else cropped(wide, pairs)))

    assert_is(graph, expected)
    if mode == "circular" and len(pads) < 6:
        assert_is(graph, lambda x: F.pad(x, (*pads, *(0,) * (4 - len(pads))), mode=mode))


def cropped(x: Array, pairs: list[tuple[int, int]]) -> Array:
    return x[tuple(slice(max(-a, 0), n - max(-c, 0)) for (a, c), n in zip(pairs, x.shape, strict=True))]


def test_moves_of_any_kind_become_one_index() -> None:
    graph = built((3, 4), lambda b: b.move("y", "unfold", "input", lambda t: t.unfold(2, 2, 1).transpose(1, 3)))
    assert ops(graph)[:3] == ["reshape", "index", "reshape"]
    assert_is(graph, lambda x: x.unfold(2, 2, 1).transpose(1, 3))


@pytest.mark.parametrize(
    "move",
    [
        lambda t: t.roll(1, 0),
        lambda t: t.transpose(0, 1),
        lambda t: t.flatten(),
        lambda t: t[:2],
        lambda t: t.flip(0, 1),
    ],
)
def test_moves_between_samples_are_found_out(move: Callable[[Tensor], Tensor]) -> None:
    b = Builder((5,), 5)
    with pytest.raises(ModelError, match=r"move \(node 'y'\) mixes the samples"):
        b.move("y", "move", "input", move)


@pytest.mark.parametrize("axes", [[0], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keepdim", [True, False])
def test_extremes_over_axes(axes: list[int], keepdim: bool) -> None:
    batched = [axis + 1 for axis in axes]
    largest = built((2, 3, 4), lambda b: layers.max_over(b, "y", "input", axes, keepdim=keepdim))
    assert_is(largest, lambda x: x.amax(batched, keepdim=keepdim).unsqueeze(-1))
    smallest = built((2, 3, 4), lambda b: layers.min_over(b, "y", "input", axes, keepdim=keepdim))
    assert_is(smallest, lambda x: x.amin(batched, keepdim=keepdim).unsqueeze(-1))


# --- pools ---


Axis = tuple[int, int, int, tuple[int, int], int]  # size, kernel, stride, pads, dilation


def windows(axis: Axis, ceil: bool) -> list[list[int]]:
    """The positions of every window, one by one: those that fit into the padded axis, and, rounding up, one that starts
    on an entry and overhangs by less than a stride.
    """
    n, k, s, (before, after), d = axis
    found: list[list[int]] = []
    start = -before
    while True:
        over = start + d * (k - 1) + 1 - (n + after)
        if over > 0 and not (ceil and over < s and start < n):
            return found
        found.append([start + d * j for j in range(k)])
        start += s


def inside(axis: Axis, window: list[int]) -> list[int]:
    return [i for i in window if 0 <= i < axis[0]]


pads = st.tuples(st.integers(0, 3), st.integers(0, 3))
axes = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), pads, st.integers(1, 2))


def grids(first: Axis, second: Axis, ceil: bool) -> list[tuple[list[int], list[int]]]:
    """Every window of a map; only maps in which each of them holds an entry."""
    rows, columns = windows(first, ceil), windows(second, ceil)
    assume(rows and columns)
    assume(all(inside(first, w) for w in rows) and all(inside(second, w) for w in columns))
    return list(product(rows, columns))


def settings_of(first: Axis, second: Axis) -> dict[str, Any]:
    names = ("kernel", "stride", "padding", "dilation")
    return dict(zip(names, zip(first[1:], second[1:], strict=True), strict=True))


@settings(max_examples=150, deadline=None)
@given(first=axes, second=axes, ceil=st.booleans())
def test_max_pool_is_the_largest_of_every_window(first: Axis, second: Axis, ceil: bool) -> None:
    cells = grids(first, second, ceil)
    how = settings_of(first, second)
    graph = built((2, first[0], second[0]), lambda b: layers.max_pool(b, "y", "input", ceil=ceil, **how))
    assert_is(
        graph,
        lambda x: torch.stack([x[:, :, inside(first, r)][..., inside(second, c)].amax((2, 3)) for r, c in cells], -1),
    )


@settings(max_examples=150, deadline=None)
@given(first=axes, second=axes, ceil=st.booleans(), counting=st.booleans())
def test_avg_pool_is_the_mean_of_every_window(first: Axis, second: Axis, ceil: bool, counting: bool) -> None:
    cells = grids(first, second, ceil)
    how = settings_of(first, second)

    def counted(axis: Axis, window: list[int]) -> int:
        padded = [i for i in window if -axis[3][0] <= i < axis[0] + axis[3][1]]
        return len(padded if counting else inside(axis, window))

    def expected(x: Tensor) -> Tensor:
        sums = [x[:, :, inside(first, r)][..., inside(second, c)].sum((2, 3)) for r, c in cells]
        return torch.stack(
            [s / (counted(first, r) * counted(second, c)) for s, (r, c) in zip(sums, cells, strict=True)], -1
        )

    graph = built(
        (2, first[0], second[0]),
        lambda b: layers.avg_pool(b, "y", "input", ceil=ceil, count_padding=counting, **how),
    )
    assert_is(graph, expected)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (7, 4), (6, 2), (3, 5), (4, 1)])
def test_adaptive_pools_are_those_of_torch(n: int, m: int) -> None:
    largest = built((2, n, 4), lambda b: layers.adaptive_max_pool(b, "y", "input", (m, 3)))
    assert_is(largest, lambda x: F.adaptive_max_pool2d(x, (m, 3)))
    mean = built((2, n, 4), lambda b: layers.adaptive_avg_pool(b, "y", "input", (m, 3)))
    assert_is(mean, lambda x: F.adaptive_avg_pool2d(x, (m, 3)))


@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (5, 2)])
def test_a_transposed_convolution_of_other_channels_is_refused(channels: int, groups: int) -> None:
    how: dict[str, Any] = {"stride": (1,), "padding": [(0, 0)], "output_padding": (0,), "dilation": (1,)}
    weight = torch.ones(channels, 2, 3)
    said = rf"conv_transpose \(node 'y'\) gets 5 channels, but its weights are for {channels} in {groups} groups"
    with pytest.raises(ModelError, match=said):
        layers.conv_transpose(Builder((5, 4), 5), "y", "input", weight, None, groups=groups, **how)


def test_windows_of_padding_have_no_rule() -> None:
    b = Builder((1, 3), 5)
    with pytest.raises(NoRule, match="windows of nothing but padding"):
        layers.max_pool(b, "y", "input", kernel=(2,), stride=(1,), padding=[(3, 0)], dilation=(1,))


# --- words for scalars ---

Word = tuple[Callable[[Builder], str], Callable[[Tensor], Tensor], list[str]]
BETWEEN = ["affine", "softplus", "affine"]
NUMBER = torch.tensor([[0.2]])
SCALARS: dict[str, Word] = {
    "clamp": (lambda b: scalars.clamp(b, "y", "input", -0.2, 0.3), lambda x: x.clamp(-0.2, 0.3), ["clamp"]),
    "clamp to relu": (lambda b: scalars.clamp(b, "y", "input", 0.0), torch.relu, ["relu"]),
    "clamp to nothing": (lambda b: scalars.clamp(b, "y", "input"), lambda x: x, []),
    "clamp crossed": (lambda b: scalars.clamp(b, "y", "input", 1.0, -1.0), lambda x: x.clamp(1.0, -1.0), ["affine"]),
    "softplus": (lambda b: scalars.softplus(b, "y", "input"), F.softplus, ["softplus"]),
    "softplus of -x": (lambda b: scalars.softplus(b, "y", "input", -2.0), lambda x: F.softplus(-2 * x) / -2, BETWEEN),
    "swish": (
        lambda b: scalars.swish(b, "y", "input", 1.5),
        lambda x: x * torch.sigmoid(1.5 * x),
        ["affine", "silu", "affine"],
    ),
    "swish without slope": (lambda b: scalars.swish(b, "y", "input", 0.0), lambda x: x / 2, ["affine"]),
    "log of sigmoid": (
        lambda b: scalars.log(b, "y", scalars.unary(b, "s", "sigmoid", "input")),
        F.logsigmoid,
        BETWEEN,
    ),
    "pow 1": (lambda b: scalars.power(b, "y", "input", 1.0), lambda x: x, []),
    "pow 2": (lambda b: scalars.power(b, "y", "input", 2.0), torch.square, ["square"]),
    "pow -1": (lambda b: scalars.power(b, "y", "input", -1.0), torch.reciprocal, ["reciprocal"]),
    "pow -2": (lambda b: scalars.power(b, "y", "input", -2.0), lambda x: x**-2.0, ["square", "reciprocal"]),
    "maximum with a number": (
        lambda b: scalars.maximum(b, "y", NUMBER, "input"),
        lambda x: x.clamp(min=0.2),
        ["clamp"],
    ),
    "minimum with a number": (
        lambda b: scalars.minimum(b, "y", NUMBER, "input"),
        lambda x: x.clamp(max=0.2),
        ["clamp"],
    ),
    "maximum with numbers": (
        lambda b: scalars.maximum(b, "y", "input", drawn(4)),
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


Gate = tuple[Callable[[Builder], str], str, Callable[[Tensor], Tensor]]
GATES: dict[str, Gate] = {
    "silu": (lambda b: scalars.mul(b, "y", "input", sigmoid(b, 1.0, 0.0)), "silu", F.silu),
    "silu the other way": (lambda b: scalars.mul(b, "y", sigmoid(b, 1.0, 0.0), "input"), "silu", F.silu),
    "silu scaled": (
        lambda b: scalars.mul(b, "y", b.scale("half", "input", 0.5), b.scale("twice", sigmoid(b, 3.0, 0.0), 4.0)),
        "silu",
        lambda x: 2 * x * torch.sigmoid(3 * x),
    ),
    "gelu": (lambda b: scalars.mul(b, "y", "input", erf(b, 0.5**0.5, 1.0)), "gelu", lambda x: 2 * F.gelu(x)),
    "gelu halved inside": (
        lambda b: scalars.mul(b, "y", "input", b.scale("half", erf(b, 0.5**0.5, 1.0), 0.5)),
        "gelu",
        F.gelu,
    ),
    "gelu in single precision": (
        lambda b: scalars.mul(b, "y", "input", erf(b, float(np.float32(0.5**0.5)), 1.0)),
        "gelu",
        lambda x: x * (1 + torch.erf(float(np.float32(0.5**0.5)) * x)),
    ),
    "gelu of another slope": (
        lambda b: scalars.mul(b, "y", "input", erf(b, -1.5, 1.0)),
        "gelu",
        lambda x: x * (1 + torch.erf(-1.5 * x)),
    ),
    "mish": (
        lambda b: scalars.mul(b, "y", "input", scalars.unary(b, "t", "tanh", scalars.softplus(b, "p", "input"))),
        "mish",
        F.mish,
    ),
    "softsign": (
        lambda b: scalars.div(
            b, "y", "input", b.affine("l", scalars.unary(b, "a", "abs", "input"), None, torch.tensor(1))
        ),
        "softsign",
        F.softsign,
    ),
    "hardswish of another slope": (
        lambda b: scalars.mul(b, "y", "input", scalars.hard_sigmoid(b, "gate", "input", -0.2)),
        "hardswish",
        lambda x: x * (0.5 - 0.2 * x).clamp(0, 1),
    ),
    "hardswish": (lambda b: scalars.mul(b, "y", "input", relu6(b, 3.0)), "hardswish", lambda x: 6 * F.hardswish(x)),
    "hardswish by hard sigmoid": (
        lambda b: scalars.mul(b, "y", "input", scalars.hard_sigmoid(b, "gate", "input")),
        "hardswish",
        F.hardswish,
    ),
}
NO_GATES: dict[str, Callable[[Builder], str]] = {
    "shifted": lambda b: scalars.mul(b, "y", "input", sigmoid(b, 1.0, 0.1)),
    "lifted": lambda b: scalars.mul(b, "y", "input", b.affine("up", sigmoid(b, 1.0, 0.0), None, torch.tensor(0.1))),
    "erf without one": lambda b: scalars.mul(b, "y", "input", erf(b, 0.5**0.5, 0.0)),
    "relu6 moved": lambda b: scalars.mul(b, "y", "input", relu6(b, 2.5)),
    "relu6 nearly not moved": lambda b: scalars.mul(b, "y", "input", relu6(b, 3.0000002)),
    "softsign of two signs": lambda b: scalars.div(
        b, "y", "input", b.affine("l", scalars.unary(b, "a", "abs", "input"), None, torch.tensor(-1))
    ),
    "mish of a low threshold": lambda b: scalars.mul(
        b, "y", "input", scalars.unary(b, "t", "tanh", scalars.softplus(b, "p", "input", threshold=3.0))
    ),
    "another input": lambda b: scalars.mul(b, "y", scalars.unary(b, "a", "abs", "input"), sigmoid(b, 1.0, 0.0)),
    "slopes that differ": lambda b: scalars.mul(b, "y", b.affine("a", "input", drawn(4), None), sigmoid(b, 1.0, 0.0)),
}


def sigmoid(b: Builder, slope: float, start: float) -> str:
    line = b.affine("line", "input", torch.tensor(slope), torch.tensor(start))
    return scalars.unary(b, "gate", "sigmoid", line)


def erf(b: Builder, slope: float, shift: float) -> str:
    return b.affine("gate", scalars.unary(b, "erf", "erf", b.scale("line", "input", slope)), None, torch.tensor(shift))


def relu6(b: Builder, start: float) -> str:
    return scalars.clamp(b, "gate", b.affine("line", "input", None, torch.tensor(start)), 0.0, 6.0)


@pytest.mark.parametrize("name", GATES)
def test_gates_are_recognised(name: str) -> None:
    build, op, function = GATES[name]
    graph = built((4,), build)
    assert set(ops(graph)) <= {op, "affine"}
    assert_is(graph, function)


@pytest.mark.parametrize("name", NO_GATES)
def test_what_is_nearly_a_gate_has_no_rule(name: str) -> None:
    with pytest.raises(NoRule, match="of two branches"):
        NO_GATES[name](Builder((4,), 5))


def test_nearly_a_sixth_is_no_sixth() -> None:
    def gated(b: Builder) -> str:
        return scalars.mul(b, "y", "input", scalars.hard_sigmoid(b, "gate", "input", 0.16666669))

    x = torch.linspace(-4, 4, 40, dtype=torch.float64).reshape(10, 4)
    expected = x * (0.5 + 0.16666669 * x).clamp(0, 1)
    torch.testing.assert_close(built((4,), gated)(x), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("precision", "fits"), [(torch.float32, True), (torch.float64, False)])
def test_a_gate_is_one_in_the_precision_of_the_model(precision: torch.dtype, fits: bool) -> None:
    """3 · 0.16666667 is 0.50000001: one half to single precision, not to double."""
    b = Builder((4,), 5, precision=precision)
    sixth = float(np.float32(1 / 6))
    gate = scalars.hard_sigmoid(b, "gate", "input", sixth, 3 * sixth)
    if not fits:
        with pytest.raises(NoRule, match="of two branches"):
            scalars.mul(b, "y", "input", gate)
        return
    graph = b.finish(scalars.mul(b, "y", "input", gate), torch.device("cpu"), precision)
    assert ops(graph) == ["hardswish"]


def test_powers_and_limits_without_a_rule() -> None:
    b = Builder((4,), 5)
    with pytest.raises(NoRule, match="with exponent 3"):
        scalars.power(b, "y", "input", 3.0)
    with pytest.raises(ModelError, match=r"clamp \(node 'y'\) has limits inf and inf"):
        scalars.clamp(b, "y", "input", inf, inf)
    with pytest.raises(ModelError, match=r"slopes of shape \(3, 1\) for \(4,\)"):
        scalars.leaky_relu(b, "y", "input", drawn(3, 1))
