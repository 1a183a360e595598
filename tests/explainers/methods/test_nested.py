"""Nested EVA: the order that ever smaller sets give, in closed form, set by set, and for every ball and grouping."""

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import adversaries, attack, restrict
from proofmap.metrics import RobustnessSr
from tests.explainers.methods.test_path import BALL, X, network

UNIT = (0.0, 1.0)


def linear(weights: list[float], bias: float) -> nn.Module:
    """Two classes: 0 with the logit 0, and 1 with <w, x> + b."""
    layer = nn.Linear(len(weights), 2).double()
    layer.weight.data = torch.tensor([[0.0] * len(weights), weights], dtype=torch.float64)
    layer.bias.data = torch.tensor([0.0, bias], dtype=torch.float64)
    return layer


def ranked(model: nn.Module, x: Tensor, ball: pm.Ball, **settings: float) -> list[int]:
    e = pm.NestedEVA(model, ball, progress=False, **settings).explain(x, 0)  # type: ignore[arg-type]
    assert e.scores[0].sort(descending=True).values.tolist() == [(4 - k) / 4 for k in range(4)]
    return e.scores[0].argsort(descending=True).tolist()


def test_a_variable_without_room_falls_behind_when_few_may_move() -> None:
    """The margin is 4 a + 3 b + 2 c + d - 1, where a has room for .12 alone. With all four the nearest adversary is at
    .1, where the weights decide, 4 before 3. With a and b it is where .48 + 3 r = 1, beyond .17: a has .48, b .52.
    """
    model, x = linear([4.0, 3.0, 2.0, 1.0], -4.52), torch.tensor([[0.88, 0.0, 0.0, 0.0]], dtype=torch.float64)
    ball = pm.Ball(1.0, domain=UNIT)
    assert ranked(model, x, ball, keep=0.5, beyond=1.0) == [1, 0, 2, 3]
    assert ranked(model, x, ball, keep=0.25, beyond=1.0) == [0, 1, 2, 3]  # a set of all, and one of one
    path = pm.PathEVA(model, pm.Ball(0.1, domain=UNIT), progress=False).explain(x, 0)
    assert path.scores[0].argsort(descending=True).tolist() == [0, 1, 2, 3]


def test_how_far_beyond_the_nearest_adversary_counts() -> None:
    """At twice the distance a of the same network has its .48 of 4 · .12 and b has 3 · .2: the first set says so."""
    model, x = linear([4.0, 3.0, 2.0, 1.0], -4.52), torch.tensor([[0.88, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert ranked(model, x, pm.Ball(1.0, domain=UNIT), keep=0.25, beyond=2.0) == [1, 0, 2, 3]


def test_where_no_adversary_is_met_the_attack_has_the_ball() -> None:
    model, x = linear([4.0, 3.0, 2.0, 1.0], -9.0), torch.tensor([[0.88, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert ranked(model, x, pm.Ball(0.1, domain=UNIT), keep=0.5) == [0, 1, 2, 3]
    assert ranked(model, x, pm.Ball(0.3, domain=UNIT), keep=0.5) == [1, 2, 0, 3]  # .48, .9, .6, .3


def test_where_x_is_one_itself_too() -> None:
    model, x = linear([4.0, 3.0, 2.0, 1.0], 1.0), torch.tensor([[0.88, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert ranked(model, x, pm.Ball(0.3, domain=UNIT), keep=0.5) == [1, 2, 0, 3]


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_it_is_its_formula(norm: float) -> None:
    """Sample by sample and set by set, with the integral as the mean of ten gradients."""
    graph, x, ball = network("Tanh").to(X.device, torch.float64), X.double(), pm.Ball(1.0, norm, UNIT)
    e = pm.NestedEVA(graph, ball, groups=pm.groups.grid(2), keep=0.6, progress=False).explain(x)
    mask = pm.groups.grid(2)(tuple(x.shape[1:])).expand(x.shape[1:])
    for k, one in enumerate(x):
        order = list(range(4))
        for size in (4, 2):
            free = torch.stack([mask == group for group in order[:size]]).any(0)[None]
            family, target = restrict(ball.at(one[None]), free), e.target[k : k + 1]
            far = float(adversaries(graph, family, target, rounds=1, steps=10)[0])
            radius = min(1.3 * far, 1.0) if far < inf else 1.0
            _, delta = attack(graph, restrict(pm.Ball(radius, norm, UNIT).at(one[None]), free), target, steps=10)
            used = torch.zeros_like(one)
            for t in range(10):
                z = (one + (t + 0.5) / 10 * delta[0])[None].requires_grad_()
                logits = graph(z)[0]
                others = torch.cat([logits[: int(target)], logits[int(target) + 1 :]])
                used += torch.autograd.grad(others.max() - logits[int(target)], z)[0][0] * delta[0] / 10
            worth = {group: float(used[mask == group].sum()) for group in order[:size]}
            order = sorted(order[:size], key=lambda group: -worth[group]) + order[size:]
        assert e.scores[k].argsort(descending=True).tolist() == order


def test_its_first_groups_lead_to_nearer_adversaries_than_a_path() -> None:
    """Compared by Robustness-Sr on the packaged digits."""
    model, x = pm.zoo.mnist_mlp(), pm.data.digits()[0][:16]
    judge = RobustnessSr()
    nested, path = (
        float(judge(model, x, None, kind(model, pm.Ball(eps, domain=UNIT), progress=False).attribute(x)).mean())
        for kind, eps in ((pm.NestedEVA, 1.0), (pm.PathEVA, 0.1))
    )
    assert nested < path


def test_groups_that_a_sample_lacks_come_last() -> None:
    """Behind those, too, that the attack moved in vain."""
    each = torch.arange(32).view(2, 4, 4)
    settings: Any = {"groups": torch.stack([each, each % 16]), "progress": False}
    e = pm.NestedEVA(network("ReLU"), BALL, beyond=100.0, **settings).explain(X[:2])
    assert bool((e.scores[1, 16:] < e.scores[1, :16].min()).all())
    assert bool((pm.PathEVA(network("ReLU"), BALL, **settings).explain(X[:2]).scores[1, :16] < 0).any())


def test_it_proves_nothing_and_says_so() -> None:
    model = network("ReLU")
    e = pm.NestedEVA(model, BALL, progress=False).explain(X)
    torch.testing.assert_close(e.overlap.full, attack(model, BALL.at(X), e.target, steps=10)[0])
    assert e.guarantee == "sampled"
    assert not e.overlap.certified
    assert not bool(e.proven.any())


@pytest.mark.parametrize(("name", "wrong"), [("keep", 0.0), ("keep", 1.0), ("beyond", 0.9), ("rounds", 0)])
def test_settings_that_are_none(name: str, wrong: float) -> None:
    with pytest.raises(pm.InputError, match=name):
        pm.NestedEVA(network("ReLU"), BALL, **{name: wrong})  # type: ignore[arg-type]
