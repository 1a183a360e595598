from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from proofmap.graph import Graph, Node
from proofmap.graph.ops import compute
from proofmap.graph.walk import pull
from tests.models import MODELS, graph_of


@dataclass(frozen=True)
class Paths:
    """How many paths lead here, and which nodes they meet."""

    count: int
    met: frozenset[str] = frozenset()

    def __add__(self, other: Paths) -> Paths:
        return Paths(self.count + other.count, self.met | other.met)


def diamond() -> Graph:
    """x -> a; b = relu(a), c = |a|; d = b + c; e = d + a; nobody reads f."""
    shape = (2,)
    return Graph(
        (
            Node("x", "input", (), shape),
            Node("a", "affine", ("x",), shape, weight=torch.tensor(2.0)),
            Node("b", "relu", ("a",), shape),
            Node("c", "abs", ("a",), shape),
            Node("f", "exp", ("c",), shape),
            Node("d", "add", ("b", "c"), shape),
            Node("e", "add", ("d", "a"), shape),
        ),
        "e",
    )


def test_forms_that_meet_are_added_once() -> None:
    order: list[str] = []

    def step(node: Node, form: Paths) -> tuple[Paths, ...]:
        order.append(node.name)
        return tuple(Paths(form.count, form.met | {node.name}) for _ in node.inputs)

    reached = pull(diamond(), "e", Paths(1), step)
    assert reached == {"x": Paths(3, frozenset("abcde"))}
    assert order == ["e", "d", "c", "b", "a"]


def test_a_walk_may_start_and_stop_inside() -> None:
    def step(node: Node, form: Paths) -> tuple[Paths, ...] | None:
        return None if node.op in ("relu", "abs") else (form,) * len(node.inputs)

    assert pull(diamond(), "d", Paths(1), step) == {"b": Paths(1), "c": Paths(1)}
    assert pull(diamond(), "e", Paths(1), step) == {"b": Paths(1), "c": Paths(1), "x": Paths(1)}
    assert pull(diamond(), "b", Paths(7), step) == {"b": Paths(7)}
    assert pull(diamond(), "x", Paths(7), step) == {"x": Paths(7)}


def test_an_input_read_twice_by_one_node_gets_both_forms() -> None:
    graph = Graph((Node("x", "input", (), (2,)), Node("y", "add", ("x", "x"), (2,))), "y")
    assert pull(graph, "y", Paths(2), lambda node, form: (form, form)) == {"x": Paths(4)}


@pytest.mark.parametrize(
    "name", ["deep residual", "deep mobile", "sub", "quotient", "max_pool2d padded", "matmul stack"]
)
def test_pulling_derivatives_gives_the_derivative(name: str) -> None:
    case = MODELS[name]
    graph = graph_of(case, torch.float64)
    x = case.inputs(1, torch.float64).requires_grad_()
    values = {graph.input.name: x}
    for node in graph.nodes[1:]:
        values[node.name] = compute(node, *(values[i] for i in node.inputs))

    def step(node: Node, form: torch.Tensor) -> tuple[torch.Tensor, ...]:
        points = [values[i].detach().requires_grad_() for i in node.inputs]
        return torch.autograd.grad(compute(node, *points), points, form)

    seed = torch.ones_like(values[graph.output])
    (expected,) = torch.autograd.grad(graph(x), x, seed)
    torch.testing.assert_close(pull(graph, graph.output, seed, step)["input"], expected)
