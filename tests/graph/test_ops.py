"""The table of operations: each record agrees with the operation's computed values."""

from dataclasses import replace
from functools import cache
from math import prod

import pytest
import torch
from torch import nn
from torch.nn.modules import activation

from proofmap.graph import Graph, Node
from proofmap.graph.builder.output_shapes import output_shape
from proofmap.graph.ops import LINEAR, OPERATIONS, compute, reach
from proofmap.graph.receptive_fields import no_window
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.graph.rewrite.twin_network import twin
from proofmap.rules import RULES, Linear
from tests.models import MODELS, graph_of

APART = {"foreign"}  # opaque parts are run and not bounded


@cache
def graphs() -> dict[str, Graph]:
    return {name: graph_of(case, torch.float64) for name, case in MODELS.items()}


@cache
def nodes() -> list[tuple[Node, list[tuple[int, ...]]]]:
    """Return every distinct node of the models with its input shapes, also of pairwise and twin networks."""
    like = torch.empty(0, dtype=torch.float64)
    paired = (graph for one in graphs().values() for graph in (one, with_pairwise_maxima(one, like)))
    met = {}
    for graph in (*paired, twin(with_pairwise_maxima(graphs()["deep relu"], like))):
        for node in (node for node in graph.nodes if node.inputs):
            shapes = [graph[name].shape for name in node.inputs]
            key = (node.op, node.shape, *shapes, repr(node.attributes), repr(node.weight))
            met[key] = (node, shapes)
    return list(met.values())


def test_every_operation_has_a_rule_and_every_rule_an_operation() -> None:
    assert {*OPERATIONS} - APART == {*RULES}


def test_new_nodes_have_the_shapes_of_their_values() -> None:
    for node, shapes in nodes():
        if node.op != "change":
            value = compute(node, *(torch.zeros(3, *shape, dtype=torch.float64) for shape in shapes))
            assert output_shape(node, shapes) == tuple(value.shape[1:]), node


def test_every_operation_is_among_the_models() -> None:
    assert {node.op for node, _ in nodes()} == {*OPERATIONS} - APART


def test_linear_operations_have_linear_rules() -> None:
    assert {op for op, rule in RULES.items() if isinstance(rule, Linear)} == LINEAR


@pytest.mark.parametrize("name", MODELS)
def test_linear_operations_are_linear_up_to_their_bias(name: str) -> None:
    """y = L(x) + bias, and |L| is L with |weight|: column by column."""
    graph = graphs()[name]
    for node in (node for node in graph.nodes if node.op in LINEAR):
        plain = replace(node, bias=None)
        positive = replace(plain, weight=None if node.weight is None else node.weight.abs())
        shapes = [graph[before].shape for before in node.inputs]
        points = [torch.rand(2, *shape, dtype=torch.float64) for shape in shapes]
        bias = 0.0 if node.bias is None else node.bias
        torch.testing.assert_close(compute(node, *points), compute(plain, *points) + bias)
        total = torch.zeros(2, *node.shape, dtype=torch.float64)
        for k, shape in enumerate(shapes):
            basis = torch.eye(prod(shape), dtype=torch.float64).reshape(-1, *shape)
            columns = [basis if j == k else basis.new_zeros(len(basis), *other) for j, other in enumerate(shapes)]
            images = compute(plain, *columns)
            torch.testing.assert_close(images.abs(), compute(positive, *columns))
            total += torch.einsum("ni,i...->n...", points[k].flatten(1), images)
        torch.testing.assert_close(total, compute(plain, *points))


def changes(node: Node, shapes: list[tuple[int, ...]], k: int, places: torch.Tensor) -> torch.Tensor:
    """Return whether entries (P, *node.shape) change if the k-th input changes at the positions (P, *shape)."""
    generator = torch.Generator().manual_seed(0)
    still = [torch.rand(1, *shape, generator=generator, dtype=torch.float64) + 0.5 for shape in shapes]
    moved = [v + 3 * places if j == k else v.expand(len(places), *v.shape[1:]) for j, v in enumerate(still)]
    return (compute(node, *moved) - compute(node, *still)).abs() > 1e-9


def test_entrywise_operations_depend_on_one_position() -> None:
    met = set()
    for node, shapes in nodes():
        if not OPERATIONS[node.op].entrywise:
            continue
        met.add(node.op)
        for k, shape in enumerate(shapes):
            alone = torch.eye(prod(shape), dtype=torch.float64).reshape(-1, *shape)
            assert not bool((changes(node, shapes, k, alone) & (alone == 0)).any()), node
    assert met == {op for op, operation in OPERATIONS.items() if operation.entrywise}


def test_outputs_read_only_their_receptive_field() -> None:
    met = set()
    for node, shapes in nodes():
        reached = reach(node, shapes)
        if reached is None:
            continue
        met.add(node.op)
        for k, shape in enumerate(shapes):
            count = prod(shape[1:])
            alone = torch.eye(count, dtype=torch.float64).reshape(count, 1, *shape[1:])
            changed = changes(node, shapes, k, alone).any(1)  # (positions, *spatial)
            position = torch.cartesian_prod(*map(torch.arange, shape[1:])).reshape(count, -1)
            first, last = reached.changed(position, position, node.shape[1:])
            for p, a, b in zip(changed, first.tolist(), last.tolist(), strict=True):
                box = torch.zeros_like(p)
                box[tuple(slice(low, high + 1) for low, high in zip(a, b, strict=True))] = True
                assert not bool((p & ~box).any()), node
    local = {op for op, operation in OPERATIONS.items() if operation.reach is not no_window}
    assert met >= {op for op in local if not OPERATIONS[op].entrywise}


def test_discontinuous_and_undefined_operations_are_marked() -> None:
    """On a fine grid, no smooth function of the models rises this much between neighbours."""
    line = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    rough, steep = set(), set()
    for node, shapes in nodes():
        operation = OPERATIONS[node.op]
        if not operation.entrywise or operation.linear or len(shapes) > 1:
            continue
        value = compute(node, line.view(-1, *[1] * len(node.shape)).expand(-1, *node.shape))
        if not bool(torch.isfinite(value).all()) or float(value.diff(dim=0).abs().max()) > 0.05:
            rough.add(node.op)
            assert operation.steep(node), node
        if operation.steep(node):
            steep.add(node.op)
    assert rough == steep


def test_activations_are_the_operations_of_torchs_activation_layers() -> None:
    """The models with one such layer define the set; other nonlinear operations in them do not count."""
    kinds = tuple(getattr(nn, name) for name in activation.__all__)
    made = set()
    for name, graph in graphs().items():
        layers = {type(module) for module in MODELS[name].build().modules()}
        alone = layers <= {nn.Sequential, nn.Linear, nn.Flatten, *kinds} and layers & {*kinds}
        made |= {node.op for node in graph.nodes[1:] if alone and node.op not in LINEAR}
    assert made == {op for op, operation in OPERATIONS.items() if operation.activation}
