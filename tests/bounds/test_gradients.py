"""Forms are differentiable from the output to the ball, in their coefficients and in the free parameters."""

from math import inf

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import Cases
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.forward import ForwardPass
from proofmap.bounds.node_facts import is_nonlinear
from proofmap.bounds.passes import Pass
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.window_forms import WindowForms, places_of_entries
from proofmap.rules import RULES, Linear
from tests.bounds import maps
from tests.bounds.setting import BUDGET, mask_for
from tests.bounds.test_cases import drawn, free_of
from tests.models import MODELS, Case, graph_of


def different(graph: pm.Graph) -> list[Node]:
    """Return the linear nodes of a graph, one of each kind."""
    linear = [node for node in graph.nodes[1:] if isinstance(RULES[node.op], Linear)]
    return list({f"{node.op} {sorted(node.attributes)} {len(node.shape)}": node for node in linear}.values())


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_the_way_back_through_a_linear_operation_has_the_way_there_for_gradient(case: Case) -> None:
    """Since <G, L'(A)> = <L(G), A>, the gradient in A is L(G)."""
    graph = graph_of(case, torch.float64)
    for node in different(graph):
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        shapes = tuple(graph[i].shape for i in node.inputs)
        for rows in (2, 40):  # few and many rows use different code
            form = torch.randn(rows, *node.shape, dtype=torch.float64)
            form[:, form[0].numel() // 2 :].flatten(1)[:, ::2] = 0  # zeros have gradients too
            form = (form * (torch.arange(form[0].numel()).view(node.shape) % 3 > 0)).requires_grad_()
            parts, _ = rule.pull(node, shapes, form)
            others = [torch.randn(rows, *shape, dtype=torch.float64) for shape in shapes]
            total = sum(((part * other).sum() for part, other in zip(parts, others, strict=True)), torch.zeros(()))
            (gradient,) = torch.autograd.grad(total, form)
            torch.testing.assert_close(gradient, rule.apply(node, *others).expand_as(gradient))


def bound(graph: pm.Graph, family: pm.Family, slopes: dict[str, Tensor], way: Pass) -> Tensor:
    """Return upper bounds (N, members, classes) of the logits, with hidden layers by interval arithmetic."""
    known = BoundState(graph, Cases(family, slopes=slopes), BUDGET, for_members=False, arithmetic=True)
    bounder = way.begin(known)
    for node in graph.nodes:
        if is_nonlinear(node):
            known.relax(node)
        known.interval(node.name)
        bounder.visit(node)
    unit = torch.eye(graph.classes, dtype=torch.float64).expand(family.count, -1, -1)
    return bounder.final(unit, torch.ones(unit.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
@pytest.mark.parametrize("case", [c for c in MODELS.values() if c.name.startswith("deep")], ids=lambda case: case.name)
def test_a_bound_has_the_gradient_of_its_slopes(case: Case, norm: float) -> None:
    """Compare with finite differences along a random direction, for all members at once."""
    torch.manual_seed(0)
    x = case.inputs(1, torch.float64, seed=11)
    graph = with_pairwise_maxima(graph_of(case, torch.float64), x)
    family = pm.Ball(0.05 if norm == inf else 0.2, norm, (case.low, case.high)).at(x, mask_for(case.shape, 3))
    free = free_of(graph, family)
    slopes = {name: value.requires_grad_() for name, value in drawn(free).items()}
    for way in (BackwardPass(), ForwardPass()):
        value = bound(graph, family, slopes, way).sum()
        gradients = torch.autograd.grad(value, list(slopes.values()), allow_unused=True)
        moves = {name: torch.randn_like(one.start) * 1e-6 * (one.least < one.most) for name, one in free.items()}
        expected = sum(
            float((gradient * move).sum())
            for gradient, move in zip(gradients, moves.values(), strict=True)
            if gradient is not None
        )
        with torch.no_grad():
            up, down = (
                float(bound(graph, family, {name: s + sign * moves[name] for name, s in slopes.items()}, way).sum())
                for sign in (1, -1)
            )
        assert expected != 0
        assert abs((up - down) / 2 - expected) <= 1e-3 * abs(expected) + 1e-9, way


@pytest.mark.parametrize("name", maps.BODIES)
def test_windows_have_the_gradients_of_dense_forms(name: str) -> None:
    torch.manual_seed(0)
    graph = with_pairwise_maxima(maps.graph_of(name), maps.points(1))
    family = pm.Ball(0.05).at(maps.points(1))
    slopes = {key: value.requires_grad_() for key, value in drawn(free_of(graph, family)).items()}
    known = BoundState(graph, Cases(family, slopes=slopes), BUDGET, for_members=False, arithmetic=True)
    for node in filter(is_nonlinear, graph.nodes):
        known.relax(node)
    start = [node for node in graph.nodes if len(node.shape) == 3][-1]
    owner, entry = torch.zeros(4, dtype=torch.int64), torch.arange(4) * (start.size // 4)
    places, channel = places_of_entries(owner, entry, start.shape)
    window = WindowForms.unit(places, channel, start.shape, family.x)
    gradients = []
    for form in (window, window.dense()):
        forms, bias = backsubstitute(graph, start.name, form, owner, known.relaxations)
        end = forms[graph.input.name]
        values = family.maximise_windows(end)[0] if isinstance(end, WindowForms) else family.maximise(end, owner)
        total = (bias[:, None] + values).sum()
        gradients.append(torch.autograd.grad(total, list(slopes.values()), retain_graph=True, allow_unused=True))
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_a_form_can_be_watched_at_every_node() -> None:
    """The gradient at an activation is the coefficient of its form, for each row."""
    case = MODELS["deep relu"]
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.05).at(case.inputs(1, torch.float64, seed=11))
    known = BoundState(graph, Cases(family), BUDGET, for_members=False, arithmetic=True)
    for node in filter(is_nonlinear, graph.nodes):
        known.relax(node)
    seen: dict[str, object] = {}
    unit = torch.eye(graph.classes, dtype=torch.float64)
    owner = torch.zeros(graph.classes, dtype=torch.int64)
    backsubstitute(graph, graph.output, unit, owner, known.relaxations, lambda node, f: seen.update({node.name: f}))
    last = [node for node in graph.nodes if is_nonlinear(node)][-1]
    after = next(node for node in graph.nodes if last.name in node.inputs)
    assert set(seen) == {node.name for node in graph.nodes[1:]}
    form = seen[last.name]
    assert isinstance(form, Tensor)
    assert after.weight is not None
    torch.testing.assert_close(form, unit @ after.weight)
