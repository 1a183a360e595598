"""Randomisation: maps that depend on the weights, and maps that do not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import as_attributor
from proofmap.metrics import Randomisation
from proofmap.metrics.randomisation import shuffled
from tests.metrics.models import drawn, network

MODEL, X = network(36, 12, 8, 3), drawn(3, 1, 6, 6)
GRAPH = pm.trace(MODEL, X)
LAYERS = [node.name for node in GRAPH.nodes if node.weight is not None]


def gradients(net: pm.Graph, x: Tensor, target: Tensor) -> Tensor:
    return as_attributor("saliency", net).attribute(x, target=target)


def test_a_map_that_does_not_see_the_weights_fails() -> None:
    """The map is the image or its negative: |ρ| is 1."""
    assert Randomisation()(MODEL, X, None, lambda net, x, c: x).tolist() == pytest.approx([1.0] * 3)
    sign = iter([1.0, -1.0])  # for the trained network, and for the shuffled one
    turned = Randomisation().correlations(MODEL, X, None, lambda net, x, c: next(sign) * x)
    assert turned.flatten().tolist() == pytest.approx([-1.0] * 3)
    sign = iter([1.0, -1.0])
    assert Randomisation()(MODEL, X, None, lambda net, x, c: next(sign) * x).tolist() == pytest.approx([1.0] * 3)


def test_the_gradient_passes() -> None:
    value = Randomisation(networks=5)(MODEL, X, None, gradients)
    assert bool((value < 0.4).all())
    assert bool((value > 0).all())


def test_the_first_layer_of_a_linear_model() -> None:
    """For logits W x, the gradient of class c is row c of W, before and after: ρ of both rows, as scipy computes it."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).double()
    graph = pm.trace(model, X)
    (layer,) = [node.name for node in graph.nodes if node.weight is not None]
    before, after = graph[layer].weight, shuffled(graph, [layer], 7)[layer].weight
    assert before is not None
    assert after is not None
    found = Randomisation(seed=7).correlations(model, X, 1, _slope)
    assert found.flatten().tolist() == pytest.approx([spearmanr(before[1], after[1])[0]] * 3)


def _slope(net: pm.Graph, x: Tensor, target: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(x).gather(1, target[:, None]).sum(), x)
    return slope


def test_weights_are_shuffled_and_the_rest_stays() -> None:
    """The same numbers in another order, the same operations and shapes; other seeds and networks give other orders."""
    other = shuffled(GRAPH, LAYERS, 0)
    for node, now in zip(GRAPH.nodes, other.nodes, strict=True):
        assert (node.name, node.op, node.shape, node.inputs) == (now.name, now.op, now.shape, now.inputs)
        if node.weight is not None and now.weight is not None and node.bias is not None and now.bias is not None:
            assert torch.equal(node.weight.flatten().sort().values, now.weight.flatten().sort().values)
            assert not torch.equal(node.weight, now.weight)
            assert torch.equal(node.bias.sort().values, now.bias.sort().values)
    assert torch.equal(shuffled(GRAPH, LAYERS, 0)(X), other(X))
    assert not torch.equal(shuffled(GRAPH, LAYERS, 1)(X), other(X))
    assert not torch.equal(shuffled(GRAPH, LAYERS, 0, 1)(X), other(X))
    assert shuffled(GRAPH, LAYERS[-1:], 0).nodes[:-1] == GRAPH.nodes[:-1]
    assert torch.equal(MODEL(X), GRAPH(X))  # the model itself is unchanged


def test_a_cascade_from_the_last_layer_to_the_first() -> None:
    seen: list[pm.Graph] = []

    def watched(net: pm.Graph, x: Tensor, target: Tensor) -> Tensor:
        seen.append(net)
        return x

    Randomisation("cascade")(MODEL, X, None, watched)
    changed = [[name for name in LAYERS if not torch.equal(_weight(net, name), _weight(GRAPH, name))] for net in seen]
    assert changed == [[], LAYERS[-1:], LAYERS[-2:], LAYERS]
    found = Randomisation("cascade", networks=2).correlations(MODEL, X, None, gradients)
    assert found.shape == (3, 2, 3)
    torch.testing.assert_close(
        found[:, :, -1], Randomisation(networks=2).correlations(MODEL, X, None, gradients)[..., 0]
    )
    torch.testing.assert_close(
        Randomisation("cascade", networks=2)(MODEL, X, None, gradients), found.abs().mean((1, 2))
    )


def _weight(net: pm.Graph, name: str) -> Tensor:
    weight = net[name].weight
    assert weight is not None
    return weight


def test_the_class_stays_and_so_does_the_batch() -> None:
    predicted = MODEL(X).argmax(1)

    def named(net: pm.Graph, x: Tensor, target: Tensor) -> Tensor:
        assert torch.equal(target, predicted[torch.cdist(x.flatten(1), X.flatten(1)).argmin(1)])
        return gradients(net, x, target)

    whole = Randomisation()(MODEL, X, None, named)
    torch.testing.assert_close(Randomisation(batch=1)(MODEL, X, None, named), whole)
    torch.testing.assert_close(Randomisation()(MODEL, X[:1], None, named), whole[:1])


def test_in_a_comparison() -> None:
    """Methods by name are built for the shuffled network; a tensor or a user's function has no value."""
    ours = pm.compare(
        MODEL,
        X,
        {"eva": "eva", "saliency": "saliency", "stored": X, "called": lambda x, target: x},
        [Randomisation()],
        ball=pm.Ball(0.05),
        progress=False,
    )
    assert [method for method, cells in ours.rows.items() if cells] == ["eva", "saliency"]
    eva = pm.EVA(GRAPH, pm.Ball(0.05), progress=False)
    expected = Randomisation()(MODEL, X, None, lambda net, x, c: replace(eva, model=net).attribute(x, c))
    torch.testing.assert_close(torch.from_numpy(ours.values["eva"]["randomisation"]), expected)


class Determinant(nn.Module):
    """An operation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = torch.linalg.det(x)[:, :, None].expand(-1, -1, 2).flatten(1)
        return both


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (MODEL, X, "Randomisation got a method of type Tensor, expected a function of"),
        (nn.Flatten(), gradients, "Randomisation got a model without weights, expected a network"),
        (Determinant(), gradients, "Randomisation got a model with .*, whose weights it cannot shuffle"),
    ],
)
def test_invalid_subjects_are_refused(model: nn.Module, method: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Randomisation()(model, X, None, method)
