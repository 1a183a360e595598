"""Graphs made with the graph builder, for the tests."""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from proofmap.graph import Graph
from proofmap.graph.builder.graph_builder import Builder, Value

CPU, DOUBLE = torch.device("cpu"), torch.float64


def built(shape: tuple[int, ...], build: Callable[[Builder], Value]) -> Graph:
    """Return the graph that `build` adds to the input, with the result flattened to logits."""
    b = Builder(shape, 5)
    value = build(b)
    assert isinstance(value, str)
    value = b.name_result("y", value, 1)
    return b.finish(b.reshape("flat", value, (prod(b.shape(value)),)), CPU, DOUBLE)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE) * 2 - 1


def assert_is(graph: Graph, function: Callable[[Tensor], Tensor]) -> None:
    x = drawn(3, *graph.input.shape, seed=9)
    torch.testing.assert_close(graph(x), function(x).flatten(1))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes[1:]]
