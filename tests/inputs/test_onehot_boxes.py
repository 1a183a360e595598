"""One-hot blocks stay one-hot: overlaps against all choices of categories, one by one."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import METHODS
from proofmap.errors import InputError
from proofmap.explainers.auto import explain
from proofmap.inputs import onehot_boxes as categories

pytestmark = pytest.mark.slow

# Two numbers, three categories, one number, two categories.
BLOCKS = ((2, 3, 4), (6, 7))
NUMBERS = (0, 1, 5)
REFUSED = r"one-hot blocks that may change, which pm\.overlap and pm\.EVA take and this does not yet: fix them"


def rows(count: int, seed: int = 0) -> Tensor:
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, (count, 8))
    for block in BLOCKS:
        x[:, list(block)] = np.eye(len(block))[draw.integers(len(block), size=count)]
    return torch.as_tensor(x)


ROWS = rows(400)
DOMAIN = pm.Domain.from_data(ROWS)
X = ROWS[:4]
BALL = pm.Ball(0.1, domain=DOMAIN)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 3)).double().requires_grad_(False)


def choices(row: Tensor, free: tuple[int, ...] = (0, 1)) -> list[Tensor]:
    """The row with every choice of categories in the free blocks."""
    found = []
    for columns in product(*(BLOCKS[k] for k in free)):
        other = row.clone()
        for k, column in zip(free, columns, strict=True):
            other[list(BLOCKS[k])] = 0.0
            other[column] = 1.0
        found.append(other)
    return found


def truth(model: nn.Module, row: Tensor, radii: Tensor, free: tuple[int, ...] = (0, 1)) -> list[float]:
    """AO(B) and every AO(B_u) by an exact search around every choice, in ordinary balls with the blocks held."""
    around = torch.stack(choices(row, free))
    numbers = radii.clone()
    numbers[[k for block in BLOCKS for k in block]] = 0.0
    ball, mask = pm.Ball(numbers[None], domain=(DOMAIN.low, DOMAIN.high)), DOMAIN.groups
    exact = pm.bounds.Exact(seconds=20)
    over = pm.overlap(model, around, ball, groups=mask, bounds=exact, target=int(model(row[None]).argmax()))
    value = torch.cat([over.full[:, None], over.frozen], dim=1)
    assert float((value - torch.cat([over.full_lower[:, None], over.frozen_lower], dim=1)).max()) < 2e-3
    for u in range(int(mask.max()) + 1):
        value[(around != row)[:, mask == u].any(dim=1), 1 + u] = -np.inf
    return value.amax(0).tolist()


def test_both_sides_meet_at_the_truth_over_all_categories() -> None:
    model, radii = network(), DOMAIN.eps(0.1)
    ball = pm.Ball(radii, domain=DOMAIN)
    over = pm.overlap(model, X[1:2], ball, groups=DOMAIN.groups, bounds=pm.bounds.Exact(seconds=20))
    members = truth(model, X[1], radii[0])
    assert [float(over.full), *over.frozen[0].tolist()] == pytest.approx(members, abs=2.5e-3)
    assert [float(over.full_lower), *over.frozen_lower[0].tolist()] == pytest.approx(members, abs=2.5e-3)
    assert max(members) - min(members) > 0.05  # so that there is something to tell apart


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_row_of_the_ball_is_above_its_bound(name: str, seed: int) -> None:
    model, ball = network(seed), pm.Ball(0.2, domain=DOMAIN, relative=True)
    method = pm.bounds.Exact(seconds=2) if name == "exact" else METHODS[name]()
    over = pm.overlap(model, X[:3], ball, groups=DOMAIN.groups, bounds=method)
    draw = torch.Generator().manual_seed(seed)
    for n, row in enumerate(X[:3]):
        target = int(over.target[n])
        assert target == int(model(row[None]).argmax())
        for other in choices(row):
            way = torch.rand(64, 8, generator=draw, dtype=torch.float64) * 0.2
            end = torch.where(torch.rand(64, 8, generator=draw) < 0.5, DOMAIN.low, DOMAIN.high)
            points = other.repeat(64, 1)
            points[:, list(NUMBERS)] += (way * (end - other))[:, list(NUMBERS)]
            logits = model(points)
            rivals = logits.masked_fill(torch.arange(3) == target, -np.inf).amax(1) - logits[:, target]
            assert float(rivals.max()) <= float(over.full[n]) + 1e-9
            held = {int(DOMAIN.groups[k]) for k in range(8) if other[k] != row[k]}
            for u in set(DOMAIN.groups.tolist()) - held:
                logits = model(torch.where(DOMAIN.groups == u, row, points))
                rivals = logits.masked_fill(torch.arange(3) == target, -np.inf).amax(1) - logits[:, target]
                assert float(rivals.max()) <= float(over.frozen[n, u]) + 1e-9
    assert bool((over.frozen <= over.full[:, None]).all())
    assert bool((over.full_lower <= over.full).all())


def test_points_that_reach_lower_sides_are_rows_of_the_ball() -> None:
    model, radii = network(), DOMAIN.eps(0.1)
    ball = pm.Ball(radii, domain=DOMAIN)
    over = pm.overlap(model, X[:2], ball, groups=DOMAIN.groups, bounds=pm.bounds.Exact(seconds=5), rigorous=False)
    assert over.points is not None
    reached = torch.cat([over.full_lower[:, None], over.frozen_lower], dim=1)
    for n, m in product(range(2), range(reached.shape[1])):
        point = over.points[n, m]
        for block in BLOCKS:
            assert sorted(point[list(block)].tolist()) == [0.0] * (len(block) - 1) + [1.0]
        numbers = list(NUMBERS)
        assert bool(((point - X[n]).abs()[numbers] <= radii[0, numbers] + 1e-12).all())
        if m:
            assert torch.equal(point[DOMAIN.groups == m - 1], X[n][DOMAIN.groups == m - 1])
        logits, c = model(point[None])[0], int(over.target[n])
        value = max(float(logits[k] - logits[c]) for k in range(3) if k != c)
        assert value == pytest.approx(float(reached[n, m]), abs=1e-9)


def test_a_block_without_a_radius_stays_as_it_is() -> None:
    model = network()
    radii = DOMAIN.eps(0.1, fixed=[2])
    over = pm.overlap(model, X[:1], pm.Ball(radii, domain=DOMAIN), bounds=pm.bounds.Exact())
    assert float(over.full) == pytest.approx(truth(model, X[0], radii[0], free=(1,))[0], abs=2.5e-3)
    held = DOMAIN.eps(0.1, fixed=[2, 6])
    pair = (DOMAIN.low, DOMAIN.high)
    alone, plain = (pm.overlap(model, X, pm.Ball(held, domain=domain)).full for domain in (DOMAIN, pair))
    assert torch.equal(alone, plain)


def test_half_categories_do_not_count() -> None:
    """The box around the categories allows more."""
    first, last = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
    with torch.no_grad():  # class 1 is ahead by .5 - |a - b|: not at (1, 0) and (0, 1), but half-way
        first.weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        last.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
        last.bias.copy_(torch.tensor([0.0, 0.5]))
    model = nn.Sequential(first, nn.ReLU(), last).double()
    x = torch.eye(2, dtype=torch.float64)
    over = pm.overlap(model, x, pm.Ball(1.0, domain=pm.Domain.from_data(x)), rigorous=False)
    assert over.full.tolist() == [-0.5, -0.5]  # proven: at a = 1/2 class 1 would be ahead
    assert pm.overlap(model, x, pm.Ball(1.0, domain=(0.0, 1.0))).full.min() > 0


def test_the_time_of_a_search_is_for_all_boxes_and_what_it_leaves_is_bounded() -> None:
    """Boxes that nothing searched keep the bound that came first."""
    model, ball, x = network(), pm.Ball(0.3, domain=DOMAIN, relative=True), X[:1]
    first = pm.overlap(model, x, ball, groups=DOMAIN.groups, bounds=pm.bounds.IBP() & pm.bounds.Backward())
    hurried, closed = (
        pm.overlap(model, x, ball, groups=DOMAIN.groups, bounds=pm.bounds.IBP() & pm.bounds.Exact(seconds=seconds))
        for seconds in (1e-6, 5)
    )
    assert torch.equal(hurried.full, first.full)
    assert torch.equal(hurried.frozen, first.frozen)
    assert bool((closed.full < first.full).all())
    assert bool((hurried.full_lower <= closed.full + 1e-9).all())
    assert bool((closed.full - closed.full_lower <= 1.1e-3).all())


def test_what_is_enough_is_not_searched_closer() -> None:
    model, ball = network(1), pm.Ball(0.2, domain=DOMAIN, relative=True)
    known = pm.overlap(model, X[:2], ball, bounds=pm.bounds.Exact(seconds=5))
    over = pm.overlap(model, X[:2], ball, bounds=pm.bounds.Exact(seconds=5), enough=0.0)
    assert torch.equal(over.full <= 0, known.full <= 0)


def test_an_explanation_scores_a_block_as_one() -> None:
    ball = pm.Ball(0.1, domain=DOMAIN, relative=True)
    e = pm.EVA(network(), ball, groups=DOMAIN.groups).explain(X)
    assert e.scores.shape == (4, 5)
    assert torch.equal(e.attributions[:, 2], e.attributions[:, 4])
    assert e.settings["one_hot"] == [[2, 3, 4], [6, 7]]
    assert torch.equal(e.overlap.full, pm.overlap(network(), X, ball, groups=DOMAIN.groups).full)
    assert torch.equal(e[2].overlap.full, e.overlap.full[2:3])
    single = pm.EVA(network().float(), ball).explain(X[:1].float())
    with pytest.raises(InputError, match=REFUSED):
        single.certificate()


def test_a_rival_and_a_target_stay_those_of_the_row() -> None:
    model, ball = network(), pm.Ball(0.1, domain=DOMAIN, relative=True)
    target = model(X).argmax(1)
    each = [pm.overlap(model, X, ball, target=target, rival=(target + k) % 3).full for k in (1, 2)]
    together = pm.overlap(model, X, ball)
    assert bool((together.full <= torch.maximum(*each) + 1e-9).all())
    assert torch.equal(together.target, target)


def test_roundings_are_counted_in_every_box() -> None:
    model, ball = network().float(), pm.Ball(0.1, domain=DOMAIN, relative=True)
    plain, rigorous = (pm.overlap(model, X.float(), ball, rigorous=flag) for flag in (False, True))
    assert bool((rigorous.full > plain.full).all())
    assert bool((rigorous.full_lower < plain.nominal).all())  # what x reaches counts with its roundings too
    assert torch.equal(plain.full_lower, plain.nominal)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": 2}, r"one-hot blocks, eps=0.1, norm=2 and half=None, expected a radius, norm=float\('inf'\)"),
        ({"half": "+"}, r"one-hot blocks, eps=0.1, norm=inf and half='\+'"),
        ({"eps": "auto"}, "one-hot blocks, eps=auto"),
    ],
)
def test_balls_that_have_no_categories_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.Ball(**{"eps": 0.1, "domain": DOMAIN, **settings})


@pytest.mark.parametrize(
    "use",
    [
        lambda m, ball: pm.EmpiricalEVA(m, ball).explain(X),
        lambda m, ball: pm.SmoothEVA(m, ball).explain(X),
        lambda m, ball: pm.GreedyAS(m, ball).explain(X),
        lambda m, ball: pm.HybridEVA(m, ball, split="1").explain(X),
        lambda m, ball: pm.FirstOrder(m, ball).explain(X),
        lambda m, _: pm.certified_radius(m, X, domain=DOMAIN),
        lambda m, _: explain(m, X, domain=DOMAIN, seconds=1),
    ],
    ids=["empirical", "smooth", "greedy", "hybrid", "first-order", "radius", "explain"],
)
def test_methods_that_would_count_half_categories_refuse(use: Any) -> None:
    with pytest.raises(InputError, match=REFUSED):
        use(network(), pm.Ball(0.1, domain=DOMAIN))


def test_rows_that_are_not_one_hot_are_refused() -> None:
    ball = pm.Ball(0.1, domain=DOMAIN)
    wrong = X.clone()
    wrong[1, 2:5] = torch.tensor([0.5, 0.5, 0.0])
    with pytest.raises(InputError, match=r"sample 1 has \[0.5, 0.5, 0.0\] in the one-hot columns \[2, 3, 4\]"):
        pm.overlap(network(), wrong, ball)
    with pytest.raises(InputError, match=r"one-hot columns, got samples \(2, 4\), expected rows of its table"):
        pm.overlap(network(), X.reshape(4, 2, 4), ball)


@pytest.mark.parametrize("use", [lambda x: pm.overlap(nn.Linear(5, 2).double(), x, BALL), BALL.at])
def test_rows_of_another_table_are_refused(use: Any) -> None:
    with pytest.raises(InputError, match=r"expected rows of its table|an end of shape \(8,\) at samples of shape"):
        use(X[:, :5])


def test_too_many_choices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "_MAX_CHOICES", 5)
    with pytest.raises(InputError, match="2 one-hot blocks have 6 choices of categories, expected 5 at most: fix some"):
        pm.overlap(network(), X, pm.Ball(0.1, domain=DOMAIN))
    pm.overlap(network(), X, pm.Ball(DOMAIN.eps(0.1, fixed=[6]), domain=DOMAIN))
