"""Robustness radii: proven radii, and adversaries beyond them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import IBP, Backward
from proofmap.errors import InputError, ProofmapError, RoomError
from proofmap.verify import radius_search
from proofmap.verify.overlap import Overlap
from tests.attack.test_pgd import network


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    return pm.trace(pm.zoo.mnist_mlp(), pm.data.digits()[0][:1])


@pytest.fixture(scope="module")
def x() -> Tensor:
    return pm.data.digits()[0][:3]


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_the_certified_radius_is_certified(graph: pm.Graph, x: Tensor, norm: float) -> None:
    x = x[:1]
    radius = pm.certified_radius(graph, x, norm=norm, domain=(0.0, 1.0), steps=12)
    assert bool((radius > 0).all())
    assert bool((pm.overlap(graph, x, pm.Ball(radius, norm, (0.0, 1.0))).full < 0).all())
    assert bool((pm.overlap(graph, x, pm.Ball(radius * 1.01 + 1e-3, norm, (0.0, 1.0))).full > 0).all())


class Poles(nn.Module):
    """Logits log(x_0) and 1 / x_1, which have no finite bounds from radius x_0 or x_1 on."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0].log() + 9, -1 / x[:, 1]], dim=1)


@pytest.mark.parametrize("bounds", [Backward(), IBP(), pm.bounds.Forward(), pm.bounds.CrownIBP()], ids=repr)
def test_a_radius_without_a_finite_bound_is_not_proven(bounds: pm.bounds.Method) -> None:
    """Alone and in a batch with other samples, each sample gets the same radius."""
    x = torch.tensor([[0.3, 2.0], [9.0, 9.0], [0.5, 0.01], [2.0, 0.3]], dtype=torch.float64)
    graph = pm.trace(Poles(), x)
    together = pm.certified_radius(graph, x, bounds=bounds, steps=8)
    alone = torch.cat([pm.certified_radius(graph, x[k : k + 1], bounds=bounds, steps=8) for k in range(4)])
    torch.testing.assert_close(together, alone)
    assert bool(((together > 0) & (together < x.amin(1))).all())
    assert bool((pm.overlap(graph, x, pm.Ball(together), bounds=bounds).full < 0).all())


def test_an_automatic_ball_keeps_off_poles() -> None:
    x = torch.tensor([[0.3, 2.0], [9.0, 9.0]], dtype=torch.float64)
    found = pm.EVA(Poles(), pm.Ball("auto")).explain(x)
    assert found.overlap is not None
    assert bool((found.overlap.full < 0).all())


def test_memory_that_does_not_suffice_is_no_radius_of_zero(graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(RoomError, match=r"need about \d+\.\d MB a sample, the budget is 2\.0 kB: give more memory"):
        pm.certified_radius(graph, x, bounds=pm.bounds.Forward(), memory=2000)


def test_a_wrong_target_has_no_radius(graph: pm.Graph, x: Tensor) -> None:
    assert pm.certified_radius(graph, x, domain=(0.0, 1.0), target=3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("norm", "whole"), [(float("inf"), 4.0), (2.0, 5.0), (1.0, 7.0)])
def test_a_radius_reaches_as_far_as_the_domain(norm: float, whole: float) -> None:
    """The decision never changes. The farthest point of the domain from (-1, 0) is 4 to the right and 3 up."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    x, domain = torch.tensor([[-1.0, 0.0]]), (torch.tensor([-2.0, -1.0]), torch.tensor([3.0, 3.0]))
    assert pm.certified_radius(model, x, norm=norm, domain=domain).tolist() == [whole]
    assert pm.certified_radius(model, x, norm=norm, steps=20).tolist() == [2.0**20]


@pytest.mark.parametrize(("rigorous", "off"), [(False, 1e-9), (None, 1e-5)])
def test_a_linear_model_has_its_exact_radius(rigorous: bool | None, off: float) -> None:
    """f_1 - f_0 = w·x + b, so the boundary is at distance |w·x + b| / dual norm of w, up to float32 rounding."""
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 2.0]]))
        model.bias.copy_(torch.tensor([0.0, -600.0]))
    x = torch.zeros(1, 3, dtype=torch.float64)
    for norm, dual in ((float("inf"), 5.0), (2.0, 3.0), (1.0, 2.0)):
        found = float(pm.certified_radius(model, x, norm=norm, steps=40, rigorous=rigorous))
        assert found == pytest.approx(600.0 / dual, rel=off)
        assert found <= 600.0 / dual


def test_bad_steps(graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(InputError, match="got steps=0"):
        pm.certified_radius(graph, x, steps=0)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_an_adversary_stands_at_the_other_side(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius_search, "_ATTACK_RESTARTS", 1)
    model = network(6, 8, 3).to(torch.device("cpu"), torch.float32)
    near = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    found = pm.radius(model, near, norm=norm, domain=(0.0, 1.0), steps=4)
    met = found.refuted < torch.inf
    assert int(met.sum()) > 1
    assert bool((found.proven > 0).all())
    assert bool((found.proven <= found.refuted).all())
    assert torch.equal(model(found.points).argmax(1) != model(near).argmax(1), met)
    assert bool(((found.points >= 0) & (found.points <= 1)).all())
    distance = torch.linalg.vector_norm(found.points.double() - near.double(), norm, dim=1)[met]
    assert bool((distance <= found.refuted[met]).all())
    torch.testing.assert_close(found.refuted[met].double(), distance, rtol=1e-6, atol=0)
    assert bool((pm.overlap(model, near, pm.Ball(found.proven, norm, (0.0, 1.0)), sharing="one-pass").full < 0).all())


def line(weight: list[float], bias: float) -> nn.Linear:
    """f_1 - f_0 = w·x + b, in float64."""
    model = nn.Linear(len(weight), 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * len(weight), weight]))
        model.bias.copy_(torch.tensor([0.0, bias]))
    return model


@pytest.mark.parametrize(("norm", "dual"), [(float("inf"), 5.0), (2.0, 3.0), (1.0, 2.0)])
def test_both_sides_of_a_linear_model_meet_at_its_exact_radius(norm: float, dual: float) -> None:
    """The adversary is far away, so the attacked balls have to grow."""
    x = torch.zeros(1, 3, dtype=torch.float64)
    found = pm.radius(line([1.0, -2.0, 2.0], -600.0), x, norm=norm, steps=30)
    assert float(found.proven) <= 600.0 / dual <= float(found.refuted)
    assert float(found.proven) == pytest.approx(600.0 / dual, rel=1e-5)
    assert float(found.refuted) == pytest.approx(600.0 / dual, rel=1e-5)


def test_where_no_adversary_was_found_the_other_side_is_open() -> None:
    x = torch.zeros(1, 2, dtype=torch.float64)
    found = pm.radius(line([0.0, 0.0], -1.0), x, steps=3)
    assert found.refuted.tolist() == [torch.inf]
    assert torch.equal(found.points, x)
    assert found.proven.tolist() == [8.0]


def test_an_input_of_another_class_is_its_own_adversary(graph: pm.Graph, x: Tensor) -> None:
    found = pm.radius(graph, x, domain=(0.0, 1.0), target=3, steps=1)
    assert found.proven.tolist() == found.refuted.tolist() == [0.0, 0.0, 0.0]
    assert torch.equal(found.points, x)


def test_what_the_model_or_the_network_does_not_confirm_refutes_nothing() -> None:
    """An adversary must be one in the model as it runs and in the network in float64."""
    model, rows = line([1.0], -1.0), torch.tensor([0])
    search = radius_search.RadiusSearch.of(
        model, torch.zeros(1, 1, dtype=torch.float64), pm.Ball(1.0), None, None, 3, None
    )
    beyond = torch.full((1, 1), 2.0, dtype=torch.float64)
    assert search.is_adversarial(beyond, rows).tolist() == [True]
    other = pm.trace(line([1.0], -9.0), beyond)
    assert replace(search, model=other).is_adversarial(beyond, rows).tolist() == [False]
    assert replace(search, graph=other).is_adversarial(beyond, rows).tolist() == [False]


def exact_line(graph: pm.Graph, family: pm.Family, target: Tensor, how: object) -> Overlap:
    """Return both bounds of w·x + b over a box, as a search would give them."""
    point = family.x + family.upper
    value = (graph(point)[:, 1] - graph(point)[:, 0]).detach()
    nominal = (graph(family.x)[:, 1] - graph(family.x)[:, 0]).detach()
    none = torch.empty(1, 0, dtype=torch.float64)
    return Overlap(value, none, nominal, target, True, value, none, point[:, None])


def test_a_method_that_refutes_narrows_from_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius_search, "family_overlap", exact_line)
    monkeypatch.setattr(radius_search.RadiusSearch, "attack", lambda self, known: known)
    found = pm.radius(line([1.0], -600.0), torch.zeros(1, 1, dtype=torch.float64), bounds=pm.bounds.Exact(), steps=12)
    assert float(found.proven) <= 600.0 <= float(found.refuted)
    assert float(found.refuted) == pytest.approx(600.0, rel=1e-6)  # moved back towards x
    assert float(found.proven) == pytest.approx(600.0, rel=0.1)


def test_radii_that_a_search_leaves_open_are_narrowed_from_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is open from 560 to 640, and adversaries beyond that do not move back."""

    def vague(graph: pm.Graph, family: pm.Family, target: Tensor, how: object) -> Overlap:
        found = exact_line(graph, family, target, how)
        assert found.points is not None
        clear = found.full > 40
        lower = torch.where(clear, found.full_lower, found.full_lower - 80)
        points = torch.where(clear[:, None, None], found.points, family.x[:, None])
        return Overlap(found.full + 40, found.frozen, lower, target, True, lower, found.frozen, points)

    monkeypatch.setattr(radius_search, "family_overlap", vague)
    monkeypatch.setattr(radius_search.RadiusSearch, "attack", lambda self, known: known)
    monkeypatch.setattr(radius_search, "_ADVERSARY_HALVINGS", 0)
    found = pm.radius(line([1.0], -600.0), torch.zeros(1, 1, dtype=torch.float64), bounds=pm.bounds.Exact(), steps=24)
    assert float(found.proven) == pytest.approx(560.0, rel=0.02)
    assert float(found.refuted) == pytest.approx(640.0, rel=0.02)


def test_an_adversary_within_what_is_proven_is_no_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: pm.Graph, family: pm.Family, target: Tensor, how: object) -> Overlap:
        return Overlap(-family.eps, torch.empty(1, 0), -family.eps, target, True)

    x = torch.zeros(1, 1, dtype=torch.float64)
    search = radius_search.RadiusSearch.of(line([1.0], -1.0), x, pm.Ball(1.0), None, None, 3, None)
    monkeypatch.setattr(radius_search, "family_overlap", wrong)
    known = search.bisect(radius_search.RadiusInterval.at(x))
    with pytest.raises(ProofmapError, match=r"an adversary is 1 from sample 0, whose decision was .* up to 8"):
        search.bounds_of_radii(search.attack(known))


def test_radii_are_readable(graph: pm.Graph) -> None:
    """A line of text, and a table with bars; proven radii are rounded down, refuted ones up."""
    points = torch.zeros(2, 4)
    proven, refuted = torch.tensor([0.1, 0.0]).double(), torch.tensor([0.123456789, float("inf")]).double()
    found = pm.Radius(proven, refuted, points, rigorous=False)
    said = "Radius(2 samples, proven 0 to 0.1, refuted 0.123457 to none found; floating-point rounding is not covered)"
    assert repr(found) == said
    assert len(found) == 2
    page = found._repr_html_()
    assert (page.count("<tr>"), page.count("<rect")) == (3, 6)
    assert ">0.123457<" in page
    assert ">none found<" in page
    assert "rounding is not covered" in page
    many = pm.Radius(proven[:1].repeat(30), refuted[:1].repeat(30), points, rigorous=True)
    assert "and 10 more samples" in many._repr_html_()
    assert "not covered" not in many._repr_html_()
    assert "0.123457" in repr(many)
