"""Constant folding gives the same function with fewer nodes."""

from collections.abc import Callable
from math import prod

import pytest
import torch

from proofmap.graph import Graph
from proofmap.graph.builder import scalar_functions, weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.rewrite.fold import fold_constants
from proofmap.graph.sliding_windows import SlidingWindow
from tests.graph.built import CPU, DOUBLE, assert_is, built, drawn, ops


def conv(b: Builder, name: str, x: str, *, padding: int = 0) -> str:
    weight, slide = drawn(4, b.shape(x)[0] // 2, 2, 2), SlidingWindow.of((2, 2), padding=[(padding, padding)] * 2)
    return weighted_layers.conv(b, name, x, weight, drawn(4, seed=1), slide, 2)


def conv_transpose(b: Builder, name: str, x: str) -> str:
    return weighted_layers.conv_transpose(
        b, name, x, drawn(2, 3, 2, 2), drawn(6, seed=1), SlidingWindow.of((2, 2)), 2, (0, 0)
    )


MERGED: dict[str, tuple[tuple[int, ...], Callable[[Builder], str], Callable[[Builder, str], str]]] = {
    "linear": (
        (3,),
        lambda b: weighted_layers.linear(b, "first", "input", drawn(4, 3), drawn(4)),
        lambda b, x: scaled(b, x, (4,)),
    ),
    "linear over rows": (
        (2, 3),
        lambda b: weighted_layers.linear(b, "first", "input", drawn(4, 3), None),
        lambda b, x: scaled(b, x, (1, 4)),
    ),
    "matmul right": (
        (2, 3, 3),
        lambda b: weighted_layers.matmul(b, "first", "input", drawn(2, 3, 4)),
        lambda b, x: scaled(b, x, (4,)),
    ),
    "matmul left": (
        (3, 2),
        lambda b: weighted_layers.matmul(b, "first", drawn(4, 3), "input"),
        lambda b, x: scaled(b, x, (4, 1)),
    ),
    "conv": ((2, 3, 3), lambda b: conv(b, "first", "input"), lambda b, x: scaled(b, x, (4, 1, 1))),
    "conv by one number": ((2, 3, 3), lambda b: conv(b, "first", "input"), lambda b, x: scaled(b, x, (1, 1, 1))),
    "conv_transpose": ((2, 3, 3), lambda b: conv_transpose(b, "first", "input"), lambda b, x: scaled(b, x, (6, 1, 1))),
    "affine": ((3,), lambda b: b.affine("first", "input", drawn(3), drawn(3)), lambda b, x: scaled(b, x, (3,))),
    "affine into linear": (
        (2, 3),
        lambda b: scaled(b, "input", (3,), "lost"),
        lambda b, x: weighted_layers.linear(b, "first", x, drawn(4, 3), drawn(4)),
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
    after = fold_constants(before)
    assert [node.name for node in after.nodes[1:] if node.name != "flat"] == ["first"]
    assert len(before.nodes) == len(after.nodes) + 1
    assert_is(after, before)


KEPT: dict[str, tuple[tuple[int, ...], Callable[[Builder], str]]] = {
    "constants inside a channel": ((2, 3, 3), lambda b: scaled(b, conv(b, "first", "input"), (4, 2, 2))),
    "constants along another axis": ((2, 3, 3), lambda b: scaled(b, conv(b, "first", "input"), (1, 1, 2))),
    "rows of a linear": (
        (2, 3),
        lambda b: scaled(b, weighted_layers.linear(b, "first", "input", drawn(4, 3), None), (2, 1)),
    ),
    "columns of a matmul": (
        (3, 2),
        lambda b: scaled(b, weighted_layers.matmul(b, "first", drawn(4, 3), "input"), (2,)),
    ),
    "shift before padding": ((4, 3, 3), lambda b: conv(b, "first", scaled(b, "input", (4, 1, 1)), padding=1)),
    "no weight": ((3,), lambda b: scaled(b, b.add_node("first", "relu", ["input"]), (3,))),
    "another reader": (
        (3,),
        lambda b: b.add("sum", x := weighted_layers.linear(b, "first", "input", drawn(3, 3), None), scaled(b, x, (3,))),
    ),
    "a name that is asked for": (
        (3,),
        lambda b: weighted_layers.linear(
            b, "last", scalar_functions.elu(b, "act", "input", 1.0, 2.0), drawn(4, 3), None
        ),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_constants_are_kept(name: str) -> None:
    before = unfolded(*KEPT[name])
    after = fold_constants(before)
    assert [node.name for node in after.nodes] == [node.name for node in before.nodes]
    assert_is(after, before)


def test_operations_before_the_output_are_folded_and_the_output_renamed() -> None:
    b = Builder((3,), 5)
    graph = b.finish(scaled(b, weighted_layers.linear(b, "first", "input", drawn(4, 3), None), (4,)), CPU, DOUBLE)
    assert graph.output == "first"
    b = Builder((3,), 5)
    y = weighted_layers.linear(b, "first", "input", drawn(4, 3), None)
    scaled(b, y, (4,))
    assert b.finish(y, CPU, DOUBLE).output == "first"  # unused nodes are removed, and not folded into the output


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
    y = weighted_layers.linear(b, "first", "input", weight, None)
    for _ in range(20):
        y = b.scale("third", y, 1 / 3)
    for _ in range(20):
        y = b.scale("thrice", y, 3.0)
    folded = b.finish(y, CPU, torch.float32)["first"].weight
    assert folded is not None
    assert torch.equal(folded, weight)
