"""Linear operations as they stand in the traced networks: adjoint, interval and forms against the matrix."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from proofmap.graph import Graph, Node
from proofmap.graph.ops import UNSIGNED, WEIGHTED, compute
from proofmap.rules import RULES, AffineBounds, Interval, Linear
from proofmap.rules.linear_operations import Filter
from tests.models import MODELS, Case, graph_of

every_case = pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)


def linear_nodes(case: Case) -> list[tuple[Node, Linear, tuple[tuple[int, ...], ...]]]:
    graph = graph_of(case, torch.float64)
    found = []
    for node in graph.nodes[1:]:
        rule = RULES[node.op]
        if isinstance(rule, Linear):
            found.append((node, rule, shapes_of(graph, node)))
    return found


def shapes_of(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return tuple(graph[name].shape for name in node.inputs)


def random(count: int, *shape: int) -> Tensor:
    return torch.randn(count, *shape, dtype=torch.float64)


def matrices(node: Node, shapes: tuple[tuple[int, ...], ...]) -> tuple[list[Tensor], Tensor]:
    """The operation written out: one matrix an input, and the value at zero."""
    zeros = [torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes]
    offset = compute(node, *zeros).flatten()
    found = []
    for k, shape in enumerate(shapes):
        size = torch.Size(shape).numel()
        points = [z.expand(size, *z.shape[1:]) for z in zeros]
        points[k] = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
        found.append((compute(node, *points).flatten(1) - offset).T)
    return found, offset


@every_case
def test_the_adjoint_turns_the_product_round(case: Case) -> None:
    """<A, L x> = Σ <L'A, x>, and pull's bias is <A, b>."""
    torch.manual_seed(0)
    for node, rule, shapes in linear_nodes(case):
        xs = [random(4, *shape) for shape in shapes]
        rows = random(4, *node.shape)
        parts, bias = rule.pull(node, shapes, rows)
        assert [tuple(p.shape[1:]) for p in parts] == list(shapes), node
        pulled = sum((p * x).flatten(1).sum(1) for p, x in zip(parts, xs, strict=True))
        pulled = pulled if bias is None else pulled + bias
        torch.testing.assert_close((rows * compute(node, *xs)).flatten(1).sum(1), pulled, msg=f"{node.op} {node.name}")


@every_case
def test_intervals_are_exact_for_one_linear_operation(case: Case) -> None:
    """u = W⁺ u + W⁻ l + b, with the matrix written out."""
    torch.manual_seed(1)
    for node, rule, shapes in linear_nodes(case):
        inputs = [Interval(c - r, c + r) for c, r in ((random(2, *s), random(2, *s).abs()) for s in shapes)]
        found = rule.interval(node, *inputs)
        weights, offset = matrices(node, shapes)
        low, high = offset.clone(), offset.clone()
        for w, i in zip(weights, inputs, strict=True):
            below, above = i.lower.flatten(1).T, i.upper.flatten(1).T
            low = low + (w.clamp(min=0) @ below + w.clamp(max=0) @ above).T
            high = high + (w.clamp(min=0) @ above + w.clamp(max=0) @ below).T
        torch.testing.assert_close(found.lower.flatten(1), low, msg=f"{node.op} {node.name}")
        torch.testing.assert_close(found.upper.flatten(1), high, msg=f"{node.op} {node.name}")


@every_case
def test_the_magnitude_is_that_of_the_matrix(case: Case) -> None:
    """|L| r with the matrix written out. An operation without a weight has nothing that could be negative."""
    torch.manual_seed(3)
    for node, rule, shapes in linear_nodes(case):
        weights, _ = matrices(node, shapes)
        reach = [random(2, *shape).abs() for shape in shapes]
        expected = sum((w.abs() @ r.flatten(1).T).T for w, r in zip(weights, reach, strict=True))
        torch.testing.assert_close(rule.magnitude(node, *reach).flatten(1), expected, msg=f"{node.op} {node.name}")
        if node.op in UNSIGNED:
            assert node.weight is None, f"{node.op} {node.name}"
            assert all(bool((w >= 0).all()) for w in weights), f"{node.op} {node.name}"


@every_case
def test_forms_are_split_by_sign(case: Case) -> None:
    """U = W⁺ U + W⁻ L for the weights of a form, and the same for its bias."""
    torch.manual_seed(2)
    for node, rule, shapes in linear_nodes(case):
        forms = []
        for shape in shapes:
            w, b = random(2, 3, *shape), random(2, *shape)
            forms.append(AffineBounds(w - random(2, 3, *shape).abs(), b - random(2, *shape).abs(), w, b))
        pushed = rule.push(node, *forms)
        weights, offset = matrices(node, shapes)
        plus = [w.clamp(min=0) for w in weights]
        minus = [w.clamp(max=0) for w in weights]
        weight = sum(
            f.upper_weight.flatten(2) @ p.T + f.lower_weight.flatten(2) @ m.T
            for f, p, m in zip(forms, plus, minus, strict=True)
        )
        bias = offset + sum(
            f.upper_bias.flatten(1) @ p.T + f.lower_bias.flatten(1) @ m.T
            for f, p, m in zip(forms, plus, minus, strict=True)
        )
        torch.testing.assert_close(pushed.upper_weight.flatten(2), weight, msg=f"{node.op} {node.name}")
        torch.testing.assert_close(pushed.upper_bias.flatten(1), bias, msg=f"{node.op} {node.name}")


@pytest.mark.parametrize("op", sorted(UNSIGNED))
def test_what_has_no_weight_cannot_be_given_a_sign(op: str) -> None:
    with pytest.raises(AssertionError, match="weight of either sign"):
        Node("y", op, ("x",), (1,), torch.tensor(-1.0))
    for factor in (-3.0, torch.tensor([-3.0])):
        with pytest.raises(AssertionError, match=r"\['divisor'\]: numbers of either sign belong into a weight"):
            Node("y", op, ("x",), (1,), attributes={"divisor": factor})


def test_every_linear_operation_is_met() -> None:
    met = {node.op for case in MODELS.values() for node, _, _ in linear_nodes(case)}
    assert met == {op for op, rule in RULES.items() if isinstance(rule, Linear)} == WEIGHTED | UNSIGNED
    assert WEIGHTED.isdisjoint(UNSIGNED)


def test_a_wrong_adjoint_is_seen() -> None:
    """The check has power: with another stride the product no longer turns round."""
    case = MODELS["deep conv"]
    node, rule, shapes = next(entry for entry in linear_nodes(case) if entry[0].op == "conv")
    weight = node.weight
    assert weight is not None
    rows = random(3, *node.shape)
    x = random(3, *shapes[0])
    parts, _ = rule.pull(replace(node, weight=weight.flip(-1), bias=None), shapes, rows)
    assert not torch.allclose((rows * rule.apply(node, x)).flatten(1).sum(1), (parts[0] * x).flatten(1).sum(1))


def test_filters_are_laid_out_as_they_come() -> None:
    """A network may be channels last: windows go back through it, one by one and by one matrix."""
    torch.manual_seed(0)
    weight = random(6, 2, 3, 3).to(memory_format=torch.channels_last)
    for values in (random(5, 6, 2, 2), random(5, 6, 2, 2).to(memory_format=torch.channels_last)):
        one = Filter(weight, (2, 2), (0, 0), (1, 1), groups=3)
        whole = torch.nn.functional.conv_transpose2d(values, weight, stride=2, groups=3)
        torch.testing.assert_close(one.transposed(values, (6, 5, 5)), whole)
        torch.testing.assert_close(one.by_matrix(values, (6, 5, 5)), whole)


@pytest.mark.parametrize(("shape", "groups"), [((6, 2, 1, 1), 1), ((6, 1, 3, 3), 6)], ids=["one tap", "one channel"])
def test_forms_keep_one_layout(shape: tuple[int, ...], groups: int) -> None:
    """Filters that are contiguous and channels last at once do not turn forms over on their way."""
    weight = random(*shape).to(memory_format=torch.channels_last)
    assert weight.is_contiguous()
    seen = (shape[1] * groups, 3 + shape[2], 3 + shape[3])
    assert Filter(weight, (1, 1), (0, 0), (1, 1), groups).transposed(random(5, 6, 4, 4), seen).is_contiguous()
