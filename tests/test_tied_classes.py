"""A tie proves nothing: if another class can have an equal logit, the overlap is 0 and the decision is undecided."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.explainers.statements.explained_verdict import verdict_of
from proofmap.inputs.membership import largest_below
from proofmap.proof import check
from proofmap.verify.property import Region, Unsafe, decide
from tests.cli.invoke import called

X, BALL = torch.ones(1, 1), pm.Ball(1.0)  # inputs from 0 to 2
SEARCH = pm.bounds.Exact(seconds=5)
METHODS = [pm.bounds.IBP(), pm.bounds.Forward(), pm.bounds.Backward(), pm.bounds.Alpha(steps=2), SEARCH]
TIED = """
import torch
from torch import nn

def net():
    layer = nn.Linear(1, 2)
    layer.weight.data, layer.bias.data = torch.tensor([[0.0], [1.0]]), torch.zeros(2)
    return nn.Sequential(layer)

def jumping():
    return nn.Sequential(net(), nn.Hardshrink())
"""


def network(*layers: tuple[list[list[float]], list[float]]) -> nn.Sequential:
    """Return linear layers of these weights and biases, with ReLU between them."""
    modules: list[nn.Module] = []
    for weight, bias in layers:
        layer = nn.Linear(len(weight[0]), len(weight))
        layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1]).eval()


def tied(bias: float = 0.0) -> nn.Sequential:
    """Return a network with logits (bias, x), which are equal at x = bias."""
    return network(([[0.0], [1.0]], [bias, 0.0]))


@pytest.mark.parametrize("rigorous", [True, False])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_ball_with_a_tie_is_not_proven(method: pm.bounds.Method, rigorous: bool) -> None:
    """Without rounding analysis the bound is exactly 0; with it, it is above 0."""
    how: Any = {"bounds": method, "rigorous": rigorous, "progress": False}
    found, nearer = (pm.EVA(tied(), ball, **how).explain(X) for ball in (BALL, pm.Ball(0.75)))
    assert (float(found.overlap.full) == 0) is not rigorous
    assert found.proven.tolist() == [False]
    assert "not below 0" in repr(found.overlap)
    assert verdict_of(found).outcome == "undecided"
    assert nearer.proven.tolist() == [True]  # every input is at least 0.25
    assert ", below 0" in repr(nearer.overlap)


@pytest.mark.parametrize("rigorous", [True, False])
def test_neither_half_with_a_tie_is_proven(rigorous: bool) -> None:
    found = pm.TargetedEVA(tied(), BALL, rigorous=rigorous, progress=False).explain(X, target=0)
    assert found.opposite is not None
    assert float(found.overlap.full) == pytest.approx(-1, abs=1e-4)  # x increases
    assert float(found.opposite.full) == pytest.approx(0, abs=1e-4)  # x decreases
    assert (float(found.opposite.full) == 0) is not rigorous
    assert found.proven.tolist() == [False]


@pytest.mark.parametrize("rigorous", [True, False])
def test_radii_end_before_a_tie(rigorous: bool) -> None:
    """The first radius is 1, where the bound without rounding analysis is exactly 0."""
    how: Any = {"rigorous": rigorous, "progress": False}
    assert (float(pm.overlap(tied(), X, BALL, rigorous=rigorous).full) == 0) is not rigorous
    assert 0.99 < float(pm.certified_radius(tied(), X, **how)) < 1
    assert 0.99 < float(pm.radius(tied(), X, **how).proven) < 1
    assert float(pm.certified_radius(tied(bias=1.0), X, target=1, **how)) == 0  # x itself is a tie
    assert float(pm.radius(tied(bias=1.0), X, target=1, **how).proven) == 0


@pytest.mark.parametrize("bounds", [None, pm.bounds.Exact()], ids=["backward", "exact"])
def test_a_certificate_of_a_tie_decides_nothing(bounds: pm.bounds.Method | None, tmp_path: Path) -> None:
    """The maker and the checker agree. The network has no unit to split."""
    for eps, proven in ((1.0, False), (0.75, True)):
        e = pm.EVA(tied(), pm.Ball(eps), bounds=bounds, progress=False).explain(X)
        made = e.certificate()
        assert e.proven.tolist() == [made.proven] == [proven]
        assert ("nothing is decided" in made.summary()) is not proven
        verdict = check.check(*made.save(tmp_path / f"{eps}.proof"))
        assert verdict.startswith("Decision 1 is proven" if proven else "NOT proven")


def test_a_search_does_not_stop_at_zero() -> None:
    """relu(x + y) + relu(x - y) - 3 is at most -1 on [-1, 1]², and its first bound is exactly 0."""
    model = network(([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.0]), ([[1.0, 1.0], [0.0, 0.0]], [-3.0, 0.0]))
    x = torch.zeros(1, 2)
    assert float(pm.overlap(model, x, BALL, rigorous=False).full) == 0
    assert float(pm.overlap(model, x, BALL, bounds=SEARCH, enough=0.0, rigorous=False).full) < 0
    wider = network(
        ([[1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]], [0.0, 0.0]), ([[1.0, 1.0], [0.0, 0.0]], [-3.0, 0.0])
    )
    ball, x = pm.Ball(1.0, one_hot=((2, 3),)), torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    assert float(pm.overlap(wider, x, ball, rigorous=False).full) == 0  # the bound of two boxes
    assert float(pm.overlap(wider, x, ball, bounds=SEARCH, enough=0.0, rigorous=False).full) < 0


@pytest.mark.parametrize("end", [0.0, 1.5, -2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_float_below_a_number(end: float, dtype: torch.dtype) -> None:
    stored = torch.tensor(largest_below(end, dtype), dtype=dtype)
    assert float(stored) < end
    assert (
        float(torch.nextafter(stored, torch.full_like(stored, 9.0))) == end or float(stored) == -torch.finfo(dtype).tiny
    )


def test_the_command_leaves_a_tie_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(TIED)
    (tmp_path / "rows.csv").write_text("1.0\n")
    monkeypatch.chdir(tmp_path)
    words = ("net.py:net", "rows.csv", "--domain", "none", "--eps")
    assert "; undecided: " in called("verify", *words, "1").stdout.splitlines()[0]
    assert "; proven: " in called("verify", *words, "0.75").stdout.splitlines()[0]
    jumping = called("verify", "net.py:jumping", *words[1:], "0.75", "--bounds", "ibp", "--no-radius").stdout
    assert "; undecided: " in jumping.splitlines()[0]
    assert "; AO(B) <= 0.00" in jumping.splitlines()[0]
    assert "undecided" in called("explain", *words, "1", "--method", "eva", "--bounds", "backward").stdout


@pytest.mark.parametrize(("strict", "verdicts"), [(False, {"violated"}), (True, {"holds", "unknown"})])
def test_a_property_decides_ties_by_its_own_inequality(strict: bool, verdicts: set[str]) -> None:
    """y_1 <= y_0 is satisfied by a tie; y_1 < y_0 is satisfied nowhere."""
    rows, bias = torch.tensor([[-1.0, 1.0]]).double(), torch.zeros(1).double()
    region = Region(
        torch.zeros(1).double(), torch.full((1,), 2.0).double(), (Unsafe(rows, bias, torch.tensor([strict])),)
    )
    assert decide(pm.trace(tied(), X), [region], bounds=SEARCH).verdict in verdicts
