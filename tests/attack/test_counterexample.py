"""Adversaries that are shown to people: in the ball exactly, and confirmed by those who run the model."""

from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.counterexample import find_counterexample
from tests.attack.test_pgd import network

DOMAIN = (0.0, 1.0)


def sample(k: int) -> Tensor:
    return torch.rand(1, 12, generator=torch.Generator().manual_seed(k))


@pytest.mark.parametrize("domain", [DOMAIN, None])
@pytest.mark.parametrize(("norm", "eps"), [(inf, 0.2), (2.0, 0.7), (1.0, 2.5)])
def test_the_point_lies_in_the_ball_and_the_domain_exactly(
    norm: float, eps: float, domain: tuple[float, float] | None
) -> None:
    graph = network(12, 16, 16, 4).to(torch.device("cpu"), torch.float32)
    met = 0
    for k in range(4):
        x = sample(k)
        target = int(graph(x).argmax())
        found = find_counterexample(graph, x, pm.Ball(eps, norm, domain), target, graph)
        if found is None:
            continue
        met += 1
        point = found.point
        assert float(torch.linalg.vector_norm(point.double() - x[0].double(), norm)) <= eps
        assert domain is None or bool(((point >= 0) & (point <= 1)).all())
        assert point.dtype == torch.float32
        assert found.becomes == int(graph(point[None]).argmax()) != target
        assert float(pm.overlap(graph, x, pm.Ball(eps, norm, domain), target=target).full) > 0
    assert met > 1


def test_an_input_of_another_class_refutes_by_itself() -> None:
    graph = network(12, 16, 16, 4).to(torch.device("cpu"), torch.float32)
    x = sample(0)
    other = int(graph(x).argmin())
    for eps in (0.0, 0.5):
        found = find_counterexample(graph, x, pm.Ball(eps), other, graph)
        assert found is not None
        assert torch.equal(found.point, x[0])
        assert found.becomes == int(graph(x).argmax())


def test_what_the_model_itself_does_not_confirm_refutes_nothing() -> None:
    graph = network(12, 16, 16, 4).to(torch.device("cpu"), torch.float32)
    x = sample(0)
    target = int(graph(x).argmax())
    assert find_counterexample(graph, x, pm.Ball(0.5), target, graph) is not None

    def run(points: Tensor) -> Tensor:
        return graph(x).expand(len(points), -1)

    assert find_counterexample(graph, x, pm.Ball(0.5), target, run) is None


def test_the_same_point_is_found_again() -> None:
    graph = network(12, 16, 16, 4).to(torch.device("cpu"), torch.float32)
    x = sample(1)
    target = int(graph(x).argmax())
    first, again = (find_counterexample(graph, x, pm.Ball(0.3, domain=DOMAIN), target, graph) for _ in range(2))
    assert first is not None
    assert again is not None
    assert torch.equal(first.point, again.point)


@pytest.mark.parametrize("target", [0, 1])
def test_a_model_of_one_probability_has_two_classes(target: int) -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(x[:, :1] - x[:, 1:])

    x = torch.tensor([[0.5, 0.6 - 0.2 * target]])  # the class 1 where x_0 > x_1
    graph = pm.trace(One(), x)
    assert int(graph(x).argmax()) == target
    assert find_counterexample(graph, x, pm.Ball(0.04), target, One()) is None
    found = find_counterexample(graph, x, pm.Ball(0.06), target, One())
    assert found is not None
    assert found.becomes == 1 - target
    assert (float(One()(found.point[None])) > 0.5) == (target == 0)
