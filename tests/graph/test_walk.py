"""The two walks through a graph."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

import pytest
import torch

from proofmap.graph import Graph, Node
from proofmap.graph.ops import compute
from proofmap.graph.walk import peak_elements, pull, push
from tests.models import MODELS, graph_of


@dataclass(frozen=True)
class Paths:
    """The number of paths to a node, and the nodes on them."""

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


def test_values_are_made_in_order_and_dropped_after_their_last_use() -> None:
    graph, order = diamond(), []
    alive: WeakSet[Paths] = WeakSet()
    held: list[set[frozenset[str]]] = []

    def step(node: Node, *values: Paths) -> Paths:
        order.append(node.name)
        held.append({value.met for value in alive})
        value = Paths(sum(one.count for one in values), frozenset({node.name}))
        alive.add(value)
        return value

    assert push(graph, Paths(1), step) == Paths(3, frozenset({"e"}))
    assert order == ["a", "b", "c", "f", "d", "e"]
    met = [{*map("".join, before)} for before in held]
    assert met == [set(), {"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c"}, {"a", "d"}]


def test_values_may_be_carried_to_a_node_inside() -> None:
    order: list[str] = []

    def step(node: Node, *values: int) -> int:
        order.append(node.name)
        return 1 + sum(values)

    assert push(diamond(), 0, step, until="c") == 2
    assert order == ["a", "b", "c"]
    assert push(diamond(), 7, step, until="x") == 7


def test_the_peak_memory_is_counted() -> None:
    """a, b, c and d are held together; the extra memory of b counts only while b is computed."""
    graph = diamond()
    ones, nothing = dict.fromkeys("xabcdef", 1), dict.fromkeys("xabcdef", 0)
    assert peak_elements(graph, ones, nothing) == 4
    assert peak_elements(graph, ones, nothing | {"b": 7}) == 2 + 7
    assert peak_elements(graph, ones | {"f": 5}, nothing) == 3 + 5


def test_forms_at_a_join_are_added_once() -> None:
    order: list[str] = []

    def step(node: Node, form: Paths) -> tuple[Paths, ...]:
        order.append(node.name)
        return tuple(Paths(form.count, form.met | {node.name}) for _ in node.inputs)

    assert pull(diamond(), "e", Paths(1), step) == {"x": Paths(3, frozenset("abcde"))}
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
    sums: list[tuple[str, Paths]] = []
    found = pull(graph, "y", Paths(2), lambda node, form: (form, form), lambda name, form: sums.append((name, form)))
    assert found == {"x": Paths(4)}
    assert sums == [("x", Paths(4))]  # `joined` gets every sum, because sums round


@pytest.mark.parametrize(
    "name", ["deep residual", "deep mobile", "sub", "quotient", "max_pool2d padded", "matmul stack"]
)
def test_pulling_derivatives_gives_the_derivative(name: str) -> None:
    case = MODELS[name]
    graph = graph_of(case, torch.float64)
    x = case.inputs(1, torch.float64).requires_grad_()
    values = {graph.input.name: x}

    def keep(node: Node, *inputs: torch.Tensor) -> torch.Tensor:
        values[node.name] = compute(node, *inputs)
        return values[node.name]

    push(graph, x, keep)

    def step(node: Node, form: torch.Tensor) -> tuple[torch.Tensor, ...]:
        points = [values[i].detach().requires_grad_() for i in node.inputs]
        return torch.autograd.grad(compute(node, *points), points, form)

    seed = torch.ones_like(values[graph.output])
    (expected,) = torch.autograd.grad(graph(x), x, seed)
    torch.testing.assert_close(pull(graph, graph.output, seed, step)["input"], expected)
