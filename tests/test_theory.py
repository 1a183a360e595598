"""The theorems of docs/theory.md, each tested as the page states it, and examples of why their assumptions are needed.

Overlaps are exact in two kinds of networks: affine ones, where one backward pass is exact, and tiny ReLU networks, by
enumeration of their linear pieces.
"""

import re
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from tests.bounds.test_exact import exact_overlap, tiny

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
COUNT = 5  # variables of the affine networks, each a group
DUAL = {1.0: inf, 2.0: 2.0, inf: 1.0}
RADII = torch.tensor([[0.0, 0.05, 0.1, 0.3, 0.2]], dtype=torch.float64)
BALLS = {
    "inf": pm.Ball(0.2),
    "2": pm.Ball(0.2, norm=2),
    "1": pm.Ball(0.2, norm=1),
    "half": pm.Ball(0.2, half="+"),
    "half of 2": pm.Ball(0.2, norm=2, half="-"),
    "own radii": pm.Ball(RADII),
    "domain": pm.Ball(0.2, domain=(0.0, 1.0)),
    "half in a domain": pm.Ball(0.2, domain=(0.0, 1.0), half="-"),
    "2 in a domain": pm.Ball(0.2, norm=2, domain=(0.0, 1.0)),
    "1 in a domain": pm.Ball(0.2, norm=1, domain=(0.0, 1.0)),
    "relative": pm.Ball(0.3, domain=(0.0, 1.0), relative=True),
    "half of relative": pm.Ball(0.3, domain=(0.0, 1.0), relative=True, half="+"),
}
every_ball = pytest.mark.parametrize("name", BALLS)


def affine(weight: Tensor, bias: Tensor) -> nn.Sequential:
    """Return the network of the logits weight x + bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
    layer.load_state_dict({"weight": weight.double(), "bias": bias.double()})
    return nn.Sequential(layer).eval()


def random(seed: int, classes: int = 4) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Return an affine network whose logits do not all read each variable, its weights, and its biases."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, COUNT, dtype=torch.float64, generator=generator)
    weight = weight * (torch.rand(classes, COUNT, generator=generator) < 0.8)
    weight[:, seed % COUNT] = 0.0  # no logit reads this variable
    bias = 0.3 * torch.randn(classes, dtype=torch.float64, generator=generator)
    return affine(weight, bias), weight, bias


def points(count: int, seed: int, width: int = COUNT) -> Tensor:
    return torch.rand(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scores(model: nn.Module, x: Tensor, ball: pm.Ball, target: Any = None) -> Tensor:
    """Return EVA (N, groups) of an affine network, where `Backward` without rounding is exact."""
    over = pm.overlap(model, x, ball, target=target, groups=torch.arange(x.shape[1]), rigorous=False)
    return over.full[:, None] - over.frozen


def lipschitz(weight: Tensor, norm: float) -> float:
    """Return the least L with |f_i(x) - f_i(z)| <= L ||x - z|| for each logit of an affine network."""
    return float(torch.linalg.vector_norm(weight, DUAL[norm], dim=1).max())


def test_the_page_names_tests_that_exist() -> None:
    """Each theorem has a line with its tests."""
    theorems = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").partition("## Theorems")[2].split("\n### ")[1:]
    assert len(theorems) >= 6
    for theorem in theorems:
        named = NAMED.findall(theorem)
        assert named, theorem.partition("\n")[0]
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


# Theorem 1: the range of a score


@every_ball
def test_a_score_is_at_least_zero_and_at_most_two_l_eps(name: str) -> None:
    """The largest norm in the ball is ε; scores of any two inputs and classes then differ by at most 2 L ε."""
    ball, x = BALLS[name], points(40, 1)
    for seed in range(2):
        model, weight, _ = random(seed)
        bound = 2 * lipschitz(weight, ball.norm) * float(ball.at(x).eps.max())
        for target in (None, 2):
            found = scores(model, x, ball, target)
            assert float(found.min()) >= -1e-12
            assert float(found.max()) <= bound + 1e-12


def test_the_range_of_a_score_cannot_be_smaller() -> None:
    """Logits (-L x, L x): the score of the only group is 2 L ε."""
    model = affine(torch.tensor([[-3.0], [3.0]]), torch.tensor([1.0, 0.0]))
    assert float(scores(model, torch.zeros(1, 1, dtype=torch.float64), pm.Ball(0.1))) == pytest.approx(2 * 3 * 0.1)


# Theorem 2: scores of a fixed class are continuous


@every_ball
def test_scores_of_a_fixed_class_move_by_at_most_four_l_r(name: str) -> None:
    """In each norm, for any ball that moves with its centre, with and without a domain."""
    ball, x = BALLS[name], points(40, 2)
    largest = 0.0
    for seed in range(2):
        model, weight, _ = random(seed)
        here = scores(model, x, ball, 1)
        for size in (0.3, 0.01):
            z = (x + size * (points(40, 3 + seed) - 0.5)).clamp(0, 1)
            change = (scores(model, z, ball, 1) - here).abs().amax(1)
            for norm in DUAL:  # L and r are in one norm; the norm of the ball does not matter
                moved = torch.linalg.vector_norm(z - x, norm, dim=1)
                assert bool((change <= 4 * lipschitz(weight, norm) * moved + 1e-12).all())
            largest = max(largest, float((change / (4 * lipschitz(weight, inf) * size / 2)).max()))
    assert largest > 0.01  # the scores do change


@pytest.mark.parametrize("name", ["inf", "domain", "half", "relative", "half of relative"])
@pytest.mark.parametrize("seed", [1, 2])
def test_scores_of_relu_networks_move_by_at_most_four_l_r(name: str, seed: int) -> None:
    """Exact overlaps by enumeration. L is the product of the layers' constants in the maximum norm."""
    model, ball, mask = tiny(seed), BALLS[name], torch.arange(4)
    bound = 1.0
    for layer in model:
        if isinstance(layer, nn.Linear):
            bound *= float(layer.weight.detach().abs().sum(1).max())
    x = points(1, seed, 4)
    z = (x + 0.02 * (points(1, seed + 9, 4) - 0.5).sign()).clamp(0, 1)
    truth, _ = exact_overlap(model, ball.at(torch.cat([x, z]), mask), torch.ones(2, dtype=torch.int64))
    here, there = truth[:, :1] - truth[:, 1:]
    assert float((there - here).abs().max()) <= 4 * bound * float((z - x).abs().max())


def test_one_hot_blocks_move_with_their_row() -> None:
    """A block that may change reaches the same categories from every row. A frozen one moves by the distance."""
    ball = pm.Ball(0.2, domain=(0.0, 1.0), one_hot=((0, 1, 2),))
    mask = torch.tensor([0, 0, 0, 1, 2])
    rows = torch.cat([torch.eye(3, dtype=torch.float64)[[0, 1, 2, 1]], points(4, 5, 2)], dim=1)
    for seed in range(3):
        model, weight, _ = random(seed)
        over = pm.overlap(model, rows, ball, target=0, groups=mask, rigorous=False)
        found = over.full[:, None] - over.frozen
        for i, j in combinations(range(4), 2):
            for norm in DUAL:
                moved = float(torch.linalg.vector_norm(rows[i] - rows[j], norm))
                assert float((found[i] - found[j]).abs().max()) <= 4 * lipschitz(weight, norm) * moved + 1e-12


def test_the_factor_four_is_needed() -> None:
    """M = 2 L max(-x, x - ε), and x may only grow: AO(B) rises by 2 L r while AO(B_u) = M(x) falls by as much."""
    eps, r = 0.5, 0.1
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    first.load_state_dict({"weight": torch.tensor([[1.0], [2.0]]), "bias": torch.tensor([0.0, -eps])})
    last.load_state_dict({"weight": torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), "bias": torch.tensor([1.0, 0.0])})
    x = torch.tensor([[0.0], [r]], dtype=torch.float64)  # the logits are 1 + h and -h, with slopes of -1 and 1
    ball = pm.Ball(eps, half="+")
    e = pm.EVA(model, ball, bounds=pm.bounds.Exact(gap=1e-6), rigorous=False, progress=False).explain(x, target=0)
    here, there = e.scores[:, 0].tolist()
    assert there - here == pytest.approx(4 * 1 * r, abs=1e-4)


def sum_of_a_hundred() -> nn.Sequential:
    """Return the network of the logits 0 and relu(Σ x) - 0.001."""
    model = nn.Sequential(nn.Linear(100, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    first.load_state_dict({"weight": torch.ones(1, 100), "bias": torch.zeros(1)})
    last.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.tensor([0.0, -0.001])})
    return model


def test_a_score_jumps_where_the_class_changes() -> None:
    """The predicted class changes between x and z, and the score falls from 10 to 0.002. For one class it stays."""
    x = torch.cat([torch.zeros(1, 100), torch.full((1, 100), 2e-5)]).double()
    how: Any = {"groups": torch.zeros(100, dtype=torch.int64), "bounds": pm.bounds.Exact(gap=1e-5), "progress": False}
    eva = pm.EVA(sum_of_a_hundred(), pm.Ball(0.1), rigorous=False, **how)
    predicted, fixed = eva.explain(x), eva.explain(x, target=0)
    assert predicted.target.tolist() == [0, 1]
    assert predicted.scores[:, 0].tolist() == pytest.approx([10.0, 0.002], abs=1e-4)
    jump = float((predicted.scores[1] - predicted.scores[0]).abs())
    least = {norm: 100 ** (1 / DUAL[norm]) for norm in DUAL}  # L of relu(Σ x): the dual norm of a vector of ones
    assert least[inf] == 100
    assert least[2.0] == pytest.approx(10)
    for norm, slope in least.items():
        moved = float(torch.linalg.vector_norm(x[1] - x[0], norm))
        assert jump > 4 * slope * moved  # theorem 2 needs the fixed class
        assert float((fixed.scores[1] - fixed.scores[0]).abs()) <= 4 * slope * moved + 2e-5
    assert jump <= 2 * least[inf] * 0.1  # theorem 1 does not: the ball and L are in the maximum norm
    moved = float(torch.linalg.vector_norm(x[1] - x[0]))
    assert jump > 4 * least[2.0] * (0.1 + moved)  # L and r in ℓ2, the ball in ℓ∞: the paper's bound fails


def test_bounds_may_jump() -> None:
    """The lower line of relu has the slope 1 or 0, whichever is tighter: at x = 0 the bound jumps, not the overlap."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    first.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
    last.load_state_dict({"weight": torch.tensor([[1.0], [0.0]]), "bias": torch.tensor([1.0, 0.0])})
    x = torch.tensor([[-1e-3], [1e-3]], dtype=torch.float64)
    loose, exact = (
        pm.EVA(model, pm.Ball(1.0), bounds=bounds, rigorous=False, progress=False).explain(x, target=0).scores[:, 0]
        for bounds in (pm.bounds.Backward(), pm.bounds.Exact(gap=1e-6))
    )
    limit = 4 * 1 * 2e-3
    assert float((exact[1] - exact[0]).abs()) <= limit
    assert float((loose[1] - loose[0]).abs()) > 0.9


# Theorem 3: the groups that the worst case needs


SEEDS = [1, 2, 5, 8, 9, 10]  # the overlap is not constant on the ball, so that the worst point is unique


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_that_the_worst_point_moves_score_above_zero(seed: int) -> None:
    """The worst point is unique. Half of the inputs are at the edge of the domain, where it may not move."""
    model = tiny(seed)
    x = points(1, seed, 4)
    x[:, :2].round_()
    ball, mask, target = pm.Ball(0.3, domain=(0.0, 1.0)), torch.arange(4), model(x).argmax(1)
    truth, worst = exact_overlap(model, ball.at(x, mask), target)
    found, moved = truth[:, :1] - truth[:, 1:], worst[:, 0].abs() > 1e-9
    assert bool((found[moved] > 1e-9).all())
    assert bool((found[~moved].abs() < 1e-9).all())

    small = pm.Ball(1e-3, domain=(0.0, 1.0))  # no ReLU changes there, so that certified bounds are exact
    truth, worst = exact_overlap(model, small.at(x, mask), target)
    e = pm.EVA(model, small, groups=mask, progress=False).explain(x, target)
    torch.testing.assert_close(e.scores, truth[:, :1] - truth[:, 1:], atol=1e-9, rtol=0)
    moved = worst[0, 0].abs() > 1e-12
    order = e.scores[0].argsort(descending=True)
    assert set(order[: int(moved.sum())].tolist()) == set(moved.nonzero().flatten().tolist())


def test_worst_points_of_both_kinds_are_tested() -> None:
    """Among these networks there are worst points that leave a variable, and such that move all."""
    counts = set()
    for seed in SEEDS:
        x, model = points(1, seed, 4), tiny(seed)
        x[:, :2].round_()
        _, worst = exact_overlap(model, pm.Ball(0.3, domain=(0.0, 1.0)).at(x), model(x).argmax(1))
        counts.add(int((worst[0, 0].abs() > 1e-9).sum()))
    assert len(counts) > 1


def test_a_group_that_one_of_several_worst_points_leaves_scores_zero() -> None:
    """With rivals x_0 and x_1, a worst point may leave either variable: both score 0. Then all need x_0."""
    x = torch.zeros(1, 2, dtype=torch.float64)
    either = affine(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 0.0, 0.0]))
    assert scores(either, x, pm.Ball(0.5)).tolist() == [[0.0, 0.0]]
    needed = affine(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, -1.0], [1.0, 0.0]]), torch.tensor([1.0, 0.5, 0.0, 0.5]))
    found = scores(needed, x, pm.Ball(0.5))  # worst points: x_0 = 0.5, and any x_1
    assert float(found[0, 0]) == pytest.approx(0.5)
    assert float(found[0, 1]) == 0


# Theorems 4 and 5: the nearest adversary, and Robustness-Sr


class Adversary:
    """The nearest point of an affine network with a tie, for changes of a set of variables: in closed form."""

    def __init__(self, seed: int, norm: float) -> None:
        self.norm, (self.model, weight, bias) = norm, random(seed)
        self.domain = (0.0, 1.0) if norm == inf else None
        self.x = points(1, 40 + seed)
        self.x[:, :2].round_()  # at an edge of the domain, where a variable may be unable to help
        self.target = int(self.model(self.x).argmax())
        rivals = [c for c in range(len(bias)) if c != self.target]
        self.forms = weight[rivals] - weight[self.target]
        self.lead = self.forms @ self.x[0] + (bias[rivals] - bias[self.target])

    def gains(self, eps: float, variables: tuple[int, ...]) -> Tensor:
        """Return the largest increase of each rival's lead within radius eps of changes of these variables."""
        forms = self.forms[:, list(variables)]
        if self.norm != inf:
            increase: Tensor = eps * torch.linalg.vector_norm(forms, DUAL[self.norm], dim=1)
            return increase
        here = self.x[0, list(variables)]
        low, high = (-here).clamp(min=-eps), (1 - here).clamp(max=eps)
        return torch.maximum(forms * low, forms * high).sum(1)

    def distance(self, variables: tuple[int, ...]) -> float:
        """Return the smallest radius at which a rival draws level; infinite if none does."""
        low, high = 0.0, 100.0
        if float((self.lead + self.gains(high, variables)).max()) < 0:
            return inf
        for _ in range(80):
            middle = (low + high) / 2
            reached = float((self.lead + self.gains(middle, variables)).max()) >= 0
            low, high = (low, middle) if reached else (middle, high)
        return high

    def moved(self, eps: float) -> set[int]:
        """Return the variables that the nearest adversary, at this distance, moves."""
        form = self.forms[int((self.lead + self.gains(eps, tuple(range(COUNT)))).argmax())]
        if self.norm == 1:
            return {int(form.abs().argmax())}
        if self.norm == 2:
            return set(form.nonzero().flatten().tolist())
        outward = torch.where(form > 0, 1 - self.x[0], self.x[0])
        return set(((form != 0) & (outward > 0)).nonzero().flatten().tolist())


CASES = [(seed, norm) for norm in DUAL for seed in range(6)]
ALL = tuple(range(COUNT))


@pytest.mark.parametrize(("seed", "norm"), CASES)
def test_the_map_of_the_ball_that_ends_at_the_nearest_adversary(seed: int, norm: float) -> None:
    """Theorem 4: AO(B) = 0, and exactly the variables that the nearest adversary moves score above 0."""
    case = Adversary(seed, norm)
    eps = case.distance(ALL)
    ball = pm.Ball(eps, norm=norm, domain=case.domain)
    assert float(pm.overlap(case.model, case.x, ball, rigorous=False).full) == pytest.approx(0, abs=1e-9)
    inner = pm.Ball(0.999 * eps, norm=norm, domain=case.domain)
    assert float(pm.overlap(case.model, case.x, inner, rigorous=False).full) < 0
    found = scores(case.model, case.x, ball)[0]
    assert {k for k in ALL if float(found[k]) > 1e-9} == case.moved(eps)
    assert bool((found >= -1e-12).all())


@pytest.mark.parametrize(("seed", "norm"), CASES)
def test_the_map_is_optimal_for_robustness_sr_from_step_u(seed: int, norm: float) -> None:
    """Theorem 5: for every k >= |u|, no set of k variables has a nearer adversary than the first k of the map."""
    case = Adversary(seed, norm)
    eps = case.distance(ALL)
    order = scores(case.model, case.x, pm.Ball(eps, norm=norm, domain=case.domain))[0].argsort(descending=True).tolist()
    least = len(case.moved(eps))
    for k in range(1, COUNT + 1):
        ours, best = case.distance(tuple(order[:k])), min(case.distance(s) for s in combinations(ALL, k))
        assert ours >= best * (1 - 1e-9)
        if k >= least:
            assert ours == pytest.approx(best, rel=1e-9)
            assert ours == pytest.approx(eps, rel=1e-9)


def test_the_cases_of_theorem_5_say_something_and_some_say_nothing() -> None:
    """|u| is 1 in ℓ1 and less than the number of variables elsewhere, because one is not read."""
    steps = {
        norm: {len(case.moved(case.distance(ALL))) for s, n in CASES if n == norm for case in [Adversary(s, n)]}
        for norm in DUAL
    }
    assert steps[1.0] == {1}
    assert all(0 < step < COUNT for step in steps[2.0] | steps[inf])


def test_theorem_5_says_nothing_if_all_variables_move() -> None:
    """|u| = d = 2: the map's first variable is not the best set of one variable.

    Class 1 draws level at the radius 1 if both variables move. Of one variable, 1 has the nearer adversary, by class 2.
    """
    weight = torch.tensor([[0.0, 0.0], [3.5, 0.5], [0.0, 9.0]])
    model, x = affine(weight, torch.tensor([0.0, -4.0, -10.0])), torch.zeros(1, 2, dtype=torch.float64)
    found = scores(model, x, pm.Ball(1.0))[0]
    assert float(pm.overlap(model, x, pm.Ball(1.0), rigorous=False).full) == 0
    assert found.tolist() == [1.0, 0.5]
    alone = (
        [pm.Ball(torch.tensor([[eps, 0.0]])) for eps in (1.11, 1.15)],
        [pm.Ball(torch.tensor([[0.0, eps]])) for eps in (1.11, 1.12)],
    )
    over = [[float(pm.overlap(model, x, ball, rigorous=False).full) for ball in balls] for balls in alone]
    assert over[0][0] < 0 < over[0][1]  # d_1 of the map is 4 / 3.5
    assert over[1][0] < 0 < over[1][1]  # the other variable's is 10 / 9
    assert 10 / 9 < 4 / 3.5


def test_the_map_of_another_radius_need_not_be_optimal() -> None:
    """Class 1 is reached first, by variable 0. In a larger ball the worst case is class 2, by variable 1."""
    model = affine(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([1.0, 0.0, -2.5]))
    x = torch.zeros(1, 2, dtype=torch.float64)  # adversaries: x_0 > 1, or x_1 > 3.5 / 3
    near, far = scores(model, x, pm.Ball(1.0))[0], scores(model, x, pm.Ball(1.5))[0]
    assert near.argmax() == 0
    assert far.argmax() == 1
    assert float(far[0]) == 0


def test_d_k_is_an_infimum() -> None:
    """An adversary is strictly ahead. At the distance d_k there is only a tie; just beyond it there are adversaries."""
    model = affine(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.tensor([1.5, 0.0]))
    x = torch.zeros(1, 2, dtype=torch.float64)
    metric = pm.metrics.RobustnessSr(domain=(-9.0, 9.0), largest=9.0, steps=2, halvings=30)
    curve = metric.distances(model, x, None, torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    for k, (free, distance) in enumerate([(torch.tensor([[0.0, 1.0]]), 0.75), (torch.ones(1, 2), 0.5)]):
        assert float(curve.proven[0, k]) == pytest.approx(distance, rel=1e-5)
        assert float(curve.proven[0, k]) <= distance <= float(curve.found[0, k])
        assert float(pm.overlap(model, x, pm.Ball(distance * free.double()), rigorous=False).full) == 0
        assert float(pm.overlap(model, x, pm.Ball(distance * (1 + 1e-6) * free.double()), rigorous=False).full) > 0


@pytest.mark.parametrize("norm", [2.0, inf])
def test_the_metric_finds_what_theorem_5_states(norm: float) -> None:
    """The curve of `RobustnessSr` of EVA's map ends at the distance of the nearest adversary, from step |u| on."""
    case = Adversary(3, norm)
    eps = case.distance(ALL)
    found = scores(case.model, case.x, pm.Ball(eps, norm=norm, domain=case.domain))
    metric = pm.metrics.RobustnessSr(norm=norm, domain=case.domain or (-inf, inf), largest=10, steps=COUNT, halvings=20)
    curve = metric.distances(case.model, case.x, None, found)
    least = len(case.moved(eps))
    assert least < COUNT
    tail = slice(least - 1, None)
    assert bool((curve.proven[0, tail] <= eps * (1 + 1e-9)).all())
    assert bool((curve.found[0, tail] >= eps * (1 - 1e-9)).all())
    assert curve.proven[0, tail].tolist() == pytest.approx([eps] * (COUNT + 1 - least), rel=2e-3)
    assert curve.found[0, tail].tolist() == pytest.approx([eps] * (COUNT + 1 - least), rel=2e-2)
