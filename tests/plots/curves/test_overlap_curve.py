"""pm.curve: bounds of AO at several radii from both sides, checked against points, enumeration and pm.overlap."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ProofmapError
from proofmap.plots.curves import overlap_curve
from proofmap.plots.curves.overlap_curve import OverlapCurve
from proofmap.verify.overlap import Overlap, OverlapSettings, attained_value, two_sided_overlap

EPS = [0.02, 0.05, 0.1, 0.2, 0.4]


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)).double().eval()


X = torch.rand(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(scope="module")
def found() -> OverlapCurve:
    return pm.curve(network(), X, EPS, domain=(0.0, 1.0), steps=6, progress=False)


def margins(points: Tensor, target: int) -> Tensor:
    """Return the overlap at points (K, 3)."""
    logits = network()(points)
    others = logits.clone()
    others[:, target] = -torch.inf
    margin: Tensor = (others.amax(1) - logits[:, target]).detach()
    return margin


def test_the_true_overlap_lies_between_both_bounds(found: OverlapCurve) -> None:
    """A fine grid over each ball reaches nearly the true overlap."""
    steps = torch.linspace(-1, 1, 41, dtype=torch.float64)
    grid = torch.tensor(list(product(steps.tolist(), repeat=3)), dtype=torch.float64)
    for n, k in product(range(3), range(len(EPS))):
        reached = float(margins((X[n] + EPS[k] * grid).clamp(0, 1), int(found.target[n])).max())
        assert reached <= float(found.upper[n, k]) + 1e-9
        assert float(found.lower[n, k]) >= reached - 0.02
        assert float(found.lower[n, k]) <= float(found.upper[n, k])


@pytest.mark.slow
def test_exact_bounds_meet() -> None:
    exact = pm.bounds.Exact(seconds=20, gap=1e-6)
    options: Any = {"domain": (0.0, 1.0), "steps": 4, "rigorous": False, "progress": False}
    curve = pm.curve(network(), X[:1], EPS[:3], bounds=exact, **options)
    torch.testing.assert_close(curve.lower, curve.upper, rtol=0, atol=1e-5)
    plain = pm.curve(network(), X[:1], EPS[:3], **options)
    assert bool((plain.upper >= curve.lower - 1e-9).all())
    assert bool((plain.lower <= curve.upper + 1e-9).all())


def test_bounds_grow_with_the_radius_and_are_never_worse_than_those_of_one_ball(found: OverlapCurve) -> None:
    assert found.eps.tolist() == EPS
    assert bool((found.upper.diff(dim=1) >= 0).all())
    assert bool((found.lower.diff(dim=1) >= 0).all())
    for k, eps in enumerate(EPS):
        one = pm.overlap(network(), X, pm.Ball(eps, domain=(0.0, 1.0)))
        assert bool((found.upper[:, k] <= one.full).all())
        assert bool((found.lower[:, k] >= one.nominal - 1e-9).all())
    assert found.rigorous


def test_the_curve_and_the_radii_agree(found: OverlapCurve) -> None:
    radii = pm.radius(network(), X, domain=(0.0, 1.0), steps=6, progress=False)
    torch.testing.assert_close(found.radius.proven, radii.proven)
    inside = found.eps <= found.radius.proven[:, None]
    beyond = found.eps > found.radius.refuted[:, None]
    assert bool(inside.any())
    assert bool(beyond.any())
    assert bool((found.upper[inside] < 0).all())
    assert bool((found.lower[beyond] > 0).all())


def test_the_radii_contain_all_that_the_curve_shows() -> None:
    """A search of few steps leaves a wide gap. The bounds of the curve prove and refute radii inside it."""
    sizes = [0.02 * k for k in range(1, 21)]
    curve = pm.curve(network(), X, sizes, domain=(0.0, 1.0), steps=1, progress=False)
    alone = pm.radius(network(), X, domain=(0.0, 1.0), steps=1, progress=False)
    proven, refuted = curve.radius.proven[:, None], curve.radius.refuted[:, None]
    size = curve.eps.to(proven)
    assert bool(((curve.upper < 0) == (size <= proven)).all())
    assert bool((curve.lower[size < refuted] <= 0).all())
    assert bool((curve.radius.proven > alone.proven).any())
    assert bool((curve.radius.refuted <= alone.refuted).all())
    at = curve.radius.points
    assert bool((network()(at).argmax(1) != curve.target).all())
    torch.testing.assert_close((at - X).abs().flatten(1).amax(1), curve.radius.refuted)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_other_norms(norm: float) -> None:
    curve = pm.curve(network(), X[:1], [0.05, 0.2], norm=norm, steps=2, progress=False)
    generator = torch.Generator().manual_seed(0)
    for k, eps in enumerate(curve.eps.tolist()):
        points = pm.Ball(eps, norm).at(X[:1]).sample(500, generator)[:, 0]
        assert float(margins(X[0] + points, int(curve.target[0])).max()) <= float(curve.upper[0, k])
    assert curve.norm == norm


def test_an_attained_value_is_that_of_a_point_in_the_ball() -> None:
    """The lower bound does not rest on the attack's own account."""
    graph = pm.trace(network(), X)
    how = OverlapSettings(pm.bounds.Backward(), 2**28, rigorous=False)
    target = network()(X).argmax(1)
    over = two_sided_overlap(graph, pm.Ball(0.2, domain=(0.0, 1.0)).at(X), target, how)
    assert over.points is not None
    points = over.points[:, 0]
    assert bool(((points - X).abs() <= 0.2 + 1e-12).all())
    assert bool(((points >= 0) & (points <= 1)).all())
    for n in range(3):
        torch.testing.assert_close(over.full_lower[n], margins(points[n : n + 1], int(target[n]))[0])


def test_attained_values_are_rounded_down() -> None:
    """In float32, a stored value does not exceed the exact one; with rounding errors counted, it is below it."""
    graph, points = (
        pm.trace(network().float(), X.float()),
        torch.rand(200, 3, generator=torch.Generator().manual_seed(2)),
    )
    how = OverlapSettings(pm.bounds.Backward(), 2**28)
    target = torch.zeros(200, dtype=torch.int64)
    plain, rigorous = (attained_value(graph, points, target, how, certain) for certain in (False, True))
    precise = network().float().double()(points.double())
    exact = (precise[:, 1:].amax(1) - precise[:, 0]).detach()
    assert bool((plain.double() <= exact).all())
    torch.testing.assert_close(plain.double(), exact, rtol=1e-6, atol=1e-6)
    assert bool((rigorous < plain).all())
    torch.testing.assert_close(rigorous, plain, rtol=1e-3, atol=1e-4)


def test_radii_are_sorted_and_read_as_balls_read_them() -> None:
    options: Any = {"domain": (0.0, 1.0), "steps": 2, "progress": False}
    texts = pm.curve(network(), X[:1], ["2/255", 0.1, "2/255", 0.05], **options)
    assert texts.eps.tolist() == [2 / 255, 0.05, 0.1]
    tensor = pm.curve(network(), X[:1], torch.tensor([0.1, 2 / 255, 0.05], dtype=torch.float64), **options)
    torch.testing.assert_close(tensor.upper, texts.upper)


@pytest.mark.parametrize(
    ("eps", "message"),
    [
        (0.1, "expected several radii"),
        ("0.1", "expected several radii"),
        (torch.ones(2, 2), "expected several radii"),
        ([], "got no radius or 'auto'"),
        (["auto"], "got no radius or 'auto'"),
        ([-0.1], "expected finite radii >= 0"),
        ([float("inf")], "expected finite radii >= 0"),
        ([[0.1, 0.2]], "a list, expected a number or a tensor"),
    ],
)
def test_wrong_radii_are_refused(eps: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.curve(network(), X, eps, progress=False)


def test_a_wrong_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If bounds of a large ball are below what a point of a small one reaches, the error names the contradiction."""

    def wrong(*arguments: Any) -> Overlap:
        over = two_sided_overlap(*arguments)
        large = float(arguments[1].eps.max()) > 0.3
        low = over.full - 9
        return replace(over, full=low, full_lower=low - 1, nominal=low - 1) if large else over

    monkeypatch.setattr(overlap_curve, "two_sided_overlap", wrong)
    with pytest.raises(ProofmapError, match="one of both is wrong, please report the model"):
        pm.curve(network(), X, EPS, domain=(0.0, 1.0), steps=2, progress=False)


def test_a_tidy_frame(found: OverlapCurve) -> None:
    frame = found.to_frame()
    columns = ["sample", "eps", "attained", "proven", "holds", "certified_radius", "refuted_radius"]
    assert list(frame.columns) == columns
    assert len(frame) == 3 * len(EPS)
    row = frame[(frame["sample"] == 1) & (frame["eps"] == 0.1)].iloc[0]
    assert row["proven"] == float(found.upper[1, 2])
    assert row["attained"] == float(found.lower[1, 2])
    assert row["holds"] == (row["proven"] < 0)
    assert row["certified_radius"] == float(found.radius.proven[1])
    assert bool(frame["holds"].any())
    assert not bool(frame["holds"].all())


def test_one_sample_of_a_curve(found: OverlapCurve) -> None:
    one = found[-1]
    assert len(one) == 1
    assert torch.equal(one.upper[0], found.upper[2])
    assert torch.equal(one.radius.proven, found.radius.proven[2:])
    assert repr(one).startswith("OverlapCurve(1 sample, 5 radii, ε from 0.02 to 0.4; certified radius ")
    with pytest.raises(IndexError, match="got sample 3"):
        found[3]


def test_bounds_of_one_ball_hold_for_others() -> None:
    """An upper bound holds for smaller balls, a lower bound for larger ones, and the radii for both."""
    eps, nested = torch.tensor([1.0, 2.0, 3.0]), overlap_curve._nested
    lower, upper = torch.tensor([[-3.0, -1.0, -2.0]]), torch.tensor([[-0.5, 2.0, 1.0]])
    unknown = pm.Radius(torch.tensor([0.5]), torch.tensor([torch.inf]), torch.zeros(1, 3))
    low, high = nested(eps, lower, upper, unknown, torch.tensor([0.25]))
    assert low.tolist() == [[-3.0, -1.0, -1.0]]
    assert high.tolist() == [[-0.5, 1.0, 1.0]]
    known = pm.Radius(torch.tensor([2.0]), torch.tensor([2.5]), torch.zeros(1, 3))
    low, high = nested(eps, lower, upper, known, torch.tensor([0.25]))
    assert low.tolist() == [[-3.0, -1.0, 0.25]]
    assert high[0, 0] == -0.5
    assert -1e-30 < float(high[0, 1]) < 0
    assert high[0, 2] == 1.0


def test_a_notebook_shows_the_figure(found: OverlapCurve) -> None:
    image = found[0]._repr_png_()
    assert image is not None
    assert image.startswith(b"\x89PNG")


def test_an_adversary_of_the_curve_is_one_of_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the search of the radius finds none."""

    def blind(*args: Any, **options: Any) -> pm.Radius:
        found = pm.radius(*args, **options)
        return replace(found, refuted=torch.full_like(found.refuted, torch.inf), points=X)

    monkeypatch.setattr(overlap_curve, "radius", blind)
    curve = pm.curve(network(), X, [0.05, 0.2, 0.4], domain=(0.0, 1.0), steps=1, progress=False)
    reached = (curve.lower > 0).any(dim=1)
    assert bool(reached.any())
    assert bool((curve.radius.refuted[reached] <= 0.4).all())
    assert bool((network()(curve.radius.points[reached]).argmax(1) != curve.target[reached]).all())
