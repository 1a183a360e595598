"""Greedy-AS and Greedy-AO: the ranking that their paper describes, from attacks that are seeded."""

from math import ceil, inf
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import adversaries, attack, restrict
from proofmap.errors import InputError
from proofmap.explainers.methods.greedy import Greedy, GreedyAO, GreedyAS, regress

BOTH: list[type[Greedy]] = [GreedyAS, GreedyAO]
BALL = pm.Ball(0.2, domain=(0.0, 1.0))


def quick(kind: type[Greedy], model: nn.Module | pm.Graph, ball: pm.Ball = BALL, **settings: Any) -> Greedy:
    return kind(model, ball, progress=False, **{"subsets": 60, "attack_steps": 4, **settings})


class Small(nn.Module):
    """A convolution and two dense layers over (1, 5, 5), whose decisions do change within [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 10), nn.ReLU())
            self.head = nn.Linear(10, 4)
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=0.5) if parameter.ndim > 1 else nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(scope="module")
def graph(x: Tensor) -> pm.Graph:
    return pm.trace(Small().double(), x)


class TwoPixels(nn.Module):
    """f_1 - f_0 = 2 relu(x_5) + 3 relu(x_10) - 1.5: the other fourteen pixels are not read."""

    def forward(self, x: Tensor) -> Tensor:
        read = torch.relu(x.flatten(1)[:, [5, 10]])
        margin = 2 * read[:, :1] + 3 * read[:, 1:] - 1.5
        return torch.cat([torch.zeros_like(margin), margin], 1)


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
@pytest.mark.parametrize("kind", BOTH)
def test_the_pixels_that_are_read_rank_first(kind: type[Greedy], norm: float) -> None:
    x = torch.full((1, 1, 4, 4), 0.1)
    e = quick(kind, TwoPixels(), pm.Ball(0.5, norm, (0.0, 1.0)), subsets=40, step=0.3, attack_steps=2).explain(x)
    assert e.scores.argsort(dim=1, descending=True)[:, :2].tolist() == [[10, 5]]


@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
def test_a_linear_model_ranks_by_what_each_variable_adds(domain: tuple[float, float] | None) -> None:
    """The overlap of a set is a sum over its variables of |w_i| c_i, c_i the way the box leaves in w_i's direction."""
    generator = torch.Generator().manual_seed(5)
    layer = nn.Linear(20, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(2, 20, generator=generator))
    x = torch.rand(3, 20, generator=generator)
    ball = pm.Ball(0.4, domain=domain)
    target = torch.tensor([0, 1, 0])
    w = (layer.weight[1] - layer.weight[0]).detach() * torch.tensor([[1.0], [-1.0], [1.0]])
    family = ball.at(x)
    adds = torch.maximum(w * family.lower, w * family.upper)
    for batch in (1, 3):
        e = quick(GreedyAO, layer, ball, batch=batch).explain(x, target)
        assert torch.equal(e.scores.argsort(dim=1, descending=True), adds.argsort(dim=1, descending=True))


class Together(nn.Module):
    """f_1 - f_0 = x_0 + 8 leaky(x_0 + x_1 + x_2 + x_3 - 3.5): the first adds alone, the next three only together."""

    def forward(self, x: Tensor) -> Tensor:
        margin = x[:, :1] + 8 * nn.functional.leaky_relu(x[:, :4].sum(1, keepdim=True) - 3.5, 0.01)
        return torch.cat([torch.zeros_like(margin), margin], 1)


def test_an_earlier_step_outranks_a_larger_weight() -> None:
    """Once the others are chosen, the last of the four is worth 4, more than the first ever was."""
    e = quick(GreedyAO, Together(), pm.Ball(1.0, domain=(0.0, 1.0)), step=1 / 6).explain(torch.zeros(1, 6))
    order = e.scores[0].argsort(descending=True).tolist()
    assert (order[0], sorted(order[1:4])) == (0, [1, 2, 3])


def slow_ranking(kind: type[Greedy], graph: pm.Graph, x: Tensor, mask: Tensor, seed: int, step: float) -> list[int]:
    """The paper's procedure for one sample, a subset and an attack at a time."""
    generator = torch.Generator().manual_seed(seed)
    target, groups = graph(x).argmax(1), int(mask.max()) + 1

    def value(chosen: list[int]) -> float:
        free = torch.isin(mask, torch.tensor(chosen, dtype=torch.int64)).expand(x.shape)
        if kind is GreedyAO:
            return float(attack(graph, restrict(BALL.at(x), free), target, steps=4)[0])
        family = restrict(pm.Ball(1.0, domain=(0.0, 1.0)).at(x), free)
        return -min(1.0, float(adversaries(graph, family, target, steps=4, rounds=5)[0]))

    ranked: list[int] = []
    while len(ranked) < groups:
        open_ = [u for u in range(groups) if u not in ranked]
        drawn = (torch.rand(1, 25, groups, generator=generator) < 0.5)[0]
        subsets = [[u for u in open_ if row[u]] for row in drawn]
        design = np.array([[1.0, *(float(u in v) for u in open_)] for v in subsets])
        weights = np.linalg.lstsq(design, np.array([value(ranked + v) for v in subsets]), rcond=None)[0][1:]
        best = np.argsort(-weights, kind="stable")[: ceil(step * groups)]
        ranked += [open_[k] for k in best]
    return ranked


@pytest.mark.parametrize("step", [0.2, 0.5])
@pytest.mark.parametrize("kind", BOTH)
def test_the_ranking_is_the_papers(kind: type[Greedy], step: float, graph: pm.Graph, x: Tensor) -> None:
    """Attacks on one subset after another, least squares by numpy, groups chosen in a list."""
    mask = (torch.arange(25) % 6).view(1, 5, 5)
    e = quick(kind, graph, groups=mask, step=step, seed=7, subsets=25).explain(x[:1])
    expected = slow_ranking(kind, graph, x[:1], mask, 7, step)
    assert expected != sorted(expected)  # more than ties in the order of their numbers
    assert e.scores[0].argsort(descending=True).tolist() == expected


@pytest.mark.parametrize("kind", BOTH)
def test_every_group_has_a_score_of_its_own(kind: type[Greedy], graph: pm.Graph, x: Tensor) -> None:
    for step in (0.05, 0.1, 0.34, 1.0):
        e = quick(kind, graph, step=step, subsets=30).explain(x)
        torch.testing.assert_close(e.scores.sort(dim=1).values, (torch.arange(1, 26).double() / 25).expand(2, 25))
        assert e.attributions.shape == x.shape


@pytest.mark.parametrize("kind", BOTH)
def test_the_seed_decides(kind: type[Greedy], graph: pm.Graph, x: Tensor) -> None:
    first, again, other = (quick(kind, graph, seed=seed, subsets=30).explain(x) for seed in (1, 1, 2))
    assert torch.equal(first.scores, again.scores)
    assert torch.equal(first.overlap.frozen, again.overlap.frozen)
    assert not torch.equal(first.scores, other.scores)
    assert first.seed == 1


@pytest.mark.parametrize("kind", BOTH)
def test_the_number_of_attacks_at_once_changes_nothing(kind: type[Greedy], graph: pm.Graph, x: Tensor) -> None:
    whole, pieces = (quick(kind, graph, attacks=attacks).explain(x) for attacks in (1000, 7))
    assert torch.equal(whole.scores, pieces.scores)
    torch.testing.assert_close(whole.overlap.full, pieces.overlap.full)
    torch.testing.assert_close(whole.overlap.frozen, pieces.overlap.frozen)


@pytest.mark.parametrize("kind", BOTH)
def test_the_overlap_is_what_attacks_reached(kind: type[Greedy], graph: pm.Graph, x: Tensor) -> None:
    e = quick(kind, graph, groups=pm.groups.grid(2)).explain(x)
    proven = pm.overlap(graph, x, BALL, groups=pm.groups.grid(2))
    assert e.guarantee == "none"
    assert e.overlap.certified is False
    torch.testing.assert_close(e.overlap.nominal, proven.nominal)
    assert bool((e.overlap.full <= proven.full + 1e-9).all())
    assert bool((e.overlap.frozen <= proven.frozen + 1e-9).all())
    assert bool((e.overlap.frozen <= e.overlap.full[:, None]).all())
    assert bool((e.overlap.frozen >= e.overlap.nominal[:, None]).all())
    assert bool((e.overlap.full > e.overlap.nominal).all())


@pytest.mark.parametrize("kind", BOTH)
def test_samples_with_masks_and_radii_of_their_own(kind: type[Greedy], graph: pm.Graph, x: Tensor) -> None:
    """Together as alone, and a group that a sample does not have ranks last there."""
    mask = torch.stack([torch.arange(25) % 6, torch.arange(25) % 4]).view(2, 1, 5, 5)
    ball = pm.Ball(torch.tensor([0.1, 0.3]), domain=(0.0, 1.0))
    for batch in (1, 2):
        e = quick(kind, graph, ball, groups=mask, batch=batch).explain(x)
        assert e.scores.shape == (2, 6)
        assert bool(e.scores[1, :4].min() > e.scores[1, 4:].max())
        torch.testing.assert_close(e.overlap.frozen[1, 4:], e.overlap.full[1].expand(2))
    alone = quick(kind, graph, pm.Ball(0.1, domain=(0.0, 1.0)), groups=mask[0]).explain(x[:1])
    together = quick(kind, graph, ball, groups=mask).explain(x)
    assert torch.equal(alone.scores, together.scores[:1])
    torch.testing.assert_close(alone.overlap.full, together.overlap.full[:1])


@pytest.mark.parametrize("kind", BOTH)
def test_a_group_that_is_absent_ranks_below_those_that_are_not_read(kind: type[Greedy]) -> None:
    mask = torch.stack([torch.arange(16), torch.arange(16).clamp(min=1)]).view(2, 1, 4, 4)
    x = torch.full((2, 1, 4, 4), 0.1)
    e = quick(kind, TwoPixels(), pm.Ball(0.5, domain=(0.0, 1.0)), groups=mask, batch=2).explain(x)
    assert e.scores[0].argmin() != 0
    assert e.scores[1].argmin() == 0


def test_the_distance_does_not_depend_on_the_radius(graph: pm.Graph, x: Tensor) -> None:
    near, far = (quick(GreedyAS, graph, pm.Ball(eps, domain=(0.0, 1.0))).explain(x) for eps in (0.01, 0.5))
    assert torch.equal(near.scores, far.scores)
    assert bool((near.overlap.full < far.overlap.full).all())


def test_the_settings_are_recorded(graph: pm.Graph, x: Tensor) -> None:
    e = quick(GreedyAS, graph, groups=pm.groups.grid(2)).explain(x)
    assert {"step", "subsets", "attack_steps", "largest", "rounds"} <= e.settings.keys()
    assert e.method == "GreedyAS"


@pytest.mark.parametrize(("subsets", "groups"), [(40, 12), (40, 40), (12, 40)])
def test_regression_is_least_squares(subsets: int, groups: int) -> None:
    """With an intercept; of all fits that are as good, the one with the smallest weights."""
    generator = torch.Generator().manual_seed(0)
    member = torch.rand(3, subsets, groups, generator=generator) < 0.5
    value = torch.randn(3, subsets, generator=generator, dtype=torch.float64)
    for rows, values, found in zip(member.double(), value, regress(member, value), strict=True):
        expected = torch.linalg.pinv(rows - rows.mean(0), rtol=1e-10) @ (values - values.mean())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_regression_gives_nothing_to_what_never_varies() -> None:
    member = torch.rand(1, 30, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    member[:, :, 1], member[:, :, 3] = True, False
    found = regress(member, member[:, :, 0] * 2.0 + 1.0)
    torch.testing.assert_close(found, torch.tensor([[2.0, 0, 0, 0, 0]]).double(), rtol=1e-6, atol=1e-6)
    assert bool((regress(torch.ones(1, 3, 2).bool(), torch.rand(1, 3)) == 0).all())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step": 0.0}, r"step=0.0, expected a share of the groups above 0"),
        ({"step": 1.5}, r"step=1.5, expected"),
        ({"subsets": 1}, "subsets=1, expected a whole number of at least 2"),
        ({"subsets": 2.5}, r"subsets=2\.5, expected a whole number"),
        ({"step": "all"}, "step='all', expected a share"),
        ({"attack_steps": 0}, "attack_steps=0, expected a whole number of at least 1"),
        ({"attacks": 0}, "attacks=0, expected a whole number of at least 1"),
        ({"batch": 0}, "batch=0, expected a whole number of at least 1"),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_bad_arguments(kind: type[Greedy], settings: dict[str, Any], message: str, graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=message):
        kind(graph, BALL, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"largest": 0.0}, "largest=0.0, expected a finite"),
        ({"rounds": 0}, "rounds=0, expected a whole number of at least 1"),
    ],
)
def test_bad_arguments_of_the_distance(settings: dict[str, Any], message: str, graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=message):
        GreedyAS(graph, BALL, **settings)
