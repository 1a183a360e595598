"""Certificates of pm.Sufficient: the checker proves the free set, and each point in fractions is what it shows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import BoundError, InputError
from proofmap.explainers import Explanation
from proofmap.proof import check
from proofmap.proof.certificate import Certificate
from proofmap.verify.objectives import Label, Output
from tests.bounds.exact import exact_maximum
from tests.reasons import cases

BALLS = {
    "box": pm.Ball(0.3),
    "domain": pm.Ball(0.4, domain=(0.0, 1.0)),
    "l2": pm.Ball(0.6, norm=2.0),
    "l2 in a domain": pm.Ball(0.6, norm=2.0, domain=(0.0, 1.0)),
    "l1 in a domain": pm.Ball(0.8, norm=1.0, domain=(0.0, 1.0)),
    "half": pm.Ball(0.4, half="+"),
    "relative": pm.Ball(0.5, domain=(0.0, 1.0), relative=True),
}
GROUPS = torch.tensor([[0, 1, 2, 3, 4, 4]])


def network(seed: int) -> nn.Sequential:
    return cases.network(seed, (6, 4, 3, 3))


def inputs(seed: int, count: int = 1) -> Tensor:
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(seed))


def explained(model: nn.Module, ball: pm.Ball, x: Tensor, groups: Any = GROUPS, **more: Any) -> Explanation:
    return pm.Sufficient(model, ball, groups=groups, progress=False, **more).explain(x)


def checked(made: Certificate, folder: Path) -> check.Claim:
    """The checker's answer about the saved files."""
    claim = check.read_claim(*made.save(folder / "a.proof"))
    assert isinstance(claim.statement, check.SufficientSet)
    return claim


def layers_of(model: nn.Sequential) -> list[tuple[Any, Any]]:
    linear = [m for m in model if isinstance(m, nn.Linear)]
    return [(m.weight.detach().double().numpy(), m.bias.detach().double().numpy()) for m in linear]


def exact_logits(model: nn.Sequential, point: Any) -> list[Fraction]:
    """The logits in fractions."""
    value = [Fraction(v) for v in point.reshape(-1).tolist()]
    layers = layers_of(model)
    for k, (weight, bias) in enumerate(layers):
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        value = [sum((Fraction(a) * v for a, v in zip(row, value, strict=True)), Fraction(b)) for row, b in rows]
        value = [max(v, Fraction(0)) for v in value] if k < len(layers) - 1 else value
    return value


def check_points(claim: check.Claim, model: nn.Sequential, ball: pm.Ball, x: Tensor) -> int:
    """Repeat what the checker does with each point, in fractions; return their number."""
    stated, mask = claim.statement, GROUPS[0].numpy()
    at = [Fraction(v) for v in x[0].tolist()]
    eps = Fraction(str(ball.eps))
    low, high = (Fraction(-9), Fraction(9)) if ball.domain is None else (Fraction(0), Fraction(1))
    for group, point in zip(stated.necessary, claim.witnesses, strict=True):
        step = [Fraction(v) - a for v, a in zip(point.tolist(), at, strict=True)]
        assert all(s == 0 or g == group or g in stated.free for s, g in zip(step, mask.tolist(), strict=True))
        assert all(low <= a + s <= high for a, s in zip(at, step, strict=True))
        if ball.relative:
            assert all(eps * (low - a) <= s <= eps * (high - a) for a, s in zip(at, step, strict=True))
        else:
            power = 2 if ball.norm == 2 else 1
            size = max(map(abs, step)) if ball.norm == torch.inf else sum(abs(s) ** power for s in step)
            assert size <= eps**power
        assert ball.half is None or min(step) >= 0
        logits = exact_logits(model, point)
        target = stated.about.target
        assert max(v for c, v in enumerate(logits) if c != target) > logits[target]
    return len(stated.necessary)


@pytest.mark.parametrize("name", BALLS)
@pytest.mark.parametrize("seed", [3, 4, 8])
def test_free_sets_and_points_hold(name: str, seed: int, tmp_path: Path) -> None:
    model, ball, x = network(seed), BALLS[name], inputs(seed)
    e = explained(model, ball, x)
    assert e.reason is not None
    claim = checked(e.certificate(progress=False), tmp_path)
    assert claim.decided(0)
    assert not claim.decision  # it is one of the free groups' ball
    free = e.reason.free[0].numpy()
    assert claim.statement.free == np.flatnonzero(free).tolist()
    assert {*claim.statement.necessary} == {*e.reason.adversarial[0].nonzero().flatten().tolist()}
    check_points(claim, model, ball, x)
    if ball.norm != torch.inf:
        return
    family = ball.at(x)
    moves = torch.from_numpy(free)[GROUPS[0]]
    ends = [(x + side * moves)[0].double().numpy() for side in (family.lower, family.upper)]
    target = int(e.target[0])
    rows = [np.eye(3)[c] - np.eye(3)[target] for c in range(3) if c != target]
    assert max(exact_maximum(layers_of(model), row, *ends)[0] for row in rows) <= claim.upper(0) < 0


def test_points_are_checked_in_these_cases() -> None:
    """The cases above are not all about groups that are free: there are ten points or more."""
    cases = (explained(network(seed), ball, inputs(seed)) for ball in BALLS.values() for seed in (3, 4, 8))
    counts = (int(e.reason.adversarial.sum()) for e in cases if e.reason is not None)
    assert any(total >= 10 for total in accumulate(counts))


def test_a_network_of_convolutions(tmp_path: Path) -> None:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 2, stride=2), nn.LeakyReLU(0.1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(8, 3)).eval()
    x = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    e = explained(model, pm.Ball(0.8, domain=(0.0, 1.0)), x, pm.groups.grid(2))
    assert e.reason is not None
    claim = checked(e.certificate(progress=False), tmp_path)
    assert claim.decided(0)
    assert 0 < len(claim.statement.free) < 4
    assert claim.statement.necessary


@pytest.mark.parametrize("direction", ["up", "down", "both"])
def test_an_output_stays_within_its_limit(direction: Any, tmp_path: Path) -> None:
    model, x = network(4), inputs(4)
    e = explained(model, pm.Ball(0.2), x, objective=Output(1, direction), within=0.4)
    assert e.reason is not None
    made = e.certificate(progress=False)
    claim = checked(made, tmp_path)
    assert claim.decided(0)
    assert claim.statement.limit == "0.4"
    assert len(claim.statement.necessary) == int(e.reason.adversarial.sum()) > 0
    centre = Fraction(claim.statement.about.centre)
    sign = {"up": 1, "down": -1}.get(direction)
    for point in claim.witnesses:
        change = exact_logits(model, point)[1] - centre
        assert (abs(change) if sign is None else sign * change) > Fraction("0.4")
    word = {"up": "above", "down": "below", "both": "away from"}[direction]
    first, second, *_ = claim.statement.verdict(claim).splitlines()
    assert first.startswith(f"Proven: output 1 is not more than 0.4 {word} {claim.statement.about.centre} for every")
    assert f"and output 1 is more than 0.4 {word} {claim.statement.about.centre} there" in second


@pytest.mark.parametrize("sigmoid", [True, False])
def test_a_label_stays_the_same(tmp_path: Path, *, sigmoid: bool) -> None:
    model, x = network(8), inputs(8)
    shown = nn.Sequential(*model, nn.Sigmoid()).eval() if sigmoid else model
    e = explained(shown, pm.Ball(0.2), x, objective=Label(0))
    assert e.reason is not None
    claim = checked(e.certificate(progress=False), tmp_path)
    assert claim.decided(0)
    assert claim.statement.limit is None
    on = bool(exact_logits(model, x[0])[0] > 0)
    assert len(claim.statement.necessary) == int(e.reason.adversarial.sum()) > 0
    for point in claim.witnesses:
        assert (exact_logits(model, point)[0] > 0) != on
    where = ("above", "below") if on else ("below", "above")
    first, second, *_ = claim.statement.verdict(claim).splitlines()
    assert first.startswith(f"Proven: output 0 is {where[0]} {'0.5' if sigmoid else '0'} for every input")
    assert f"and output 0 is {where[1]} {'0.5' if sigmoid else '0'} there" in second


@pytest.mark.parametrize(("seed", "eps"), [(6, 0.5), (8, 0.3), (11, 0.5)])
def test_trees_prove_a_label_behind_a_sigmoid(seed: int, eps: float, tmp_path: Path) -> None:
    """Trees split the ReLUs, and the sigmoid of the largest logit is the largest probability."""
    model, x = network(seed), inputs(seed)
    e = explained(nn.Sequential(*model, nn.Sigmoid()).eval(), pm.Ball(eps), x, objective=Label(0))
    assert e.reason is not None
    made = e.certificate(progress=False)
    claim = checked(made, tmp_path)
    assert claim.decided(0)
    assert "tree" in {name.removesuffix(".npy") for name in made.arrays}
    moves = e.reason.free[0][GROUPS[0]]
    ends = [(x + side * moves)[0].double().numpy() for side in (-eps, eps)]
    side = 1 if exact_logits(model, x[0])[0] < 0 else -1  # the label is off, or on
    logit = exact_maximum(layers_of(model), side * np.eye(3)[0], *ends)[0]
    assert 1 / (1 + np.exp(-logit)) - 0.5 <= claim.upper(1) <= claim.upper(0) < 0


def test_a_softmax_at_the_end_is_taken_off(tmp_path: Path) -> None:
    model, x = network(4), inputs(4)
    soft = nn.Sequential(*model, nn.Softmax(1)).eval()
    e = explained(soft, BALLS["box"], x)
    claim = checked(e.certificate(progress=False), tmp_path)
    assert claim.decided(0)
    check_points(claim, model, BALLS["box"], x)


def test_all_groups_free(tmp_path: Path) -> None:
    model, x = network(3), inputs(3)
    made = explained(model, pm.Ball(0.001), x).certificate(progress=False)
    claim = checked(made, tmp_path)
    first, second = claim.statement.verdict(claim).splitlines()
    assert first == (
        "Proven: no input within ε = 0.001 (L∞) of this input, with values of any size, has another class than "
        f"{claim.statement.about.target}. This holds in real and in float32 arithmetic."
    )
    assert second == "All 5 groups are free: no group has to keep its values."
    assert "necessary.npy" not in made.arrays
    assert made.summary().startswith(
        "5 of 5 groups are proven to be free, over the reals and in float32; 0 kept groups"
    )


def test_no_group_free(tmp_path: Path) -> None:
    """Each group alone can change the class, so that each has to keep its values."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2)).eval()
    for parameter, value in zip(model.parameters(), (torch.eye(2), torch.zeros(2)), strict=True):
        parameter.data = value
    x = torch.tensor([[0.5, 0.25]])
    made = explained(model, pm.Ball(0.5), x, torch.tensor([[0, 1]])).certificate(progress=False)
    claim = checked(made, tmp_path)
    first, *rest = claim.statement.verdict(claim).splitlines()
    assert first == "Proven: this input has class 0. This holds in real and in float32 arithmetic."
    assert rest == [
        "No group is free: all 2 keep their values.",
        "All 2 kept groups are necessary: for each, the file has an input of the ball that changes this group only, "
        "and the network decides otherwise there, over the reals and in float32.",
        "None of the kept groups can be freed as well: the set of kept groups is subset-minimal.",
    ]


def test_points_within_rounding_are_undecided(tmp_path: Path) -> None:
    """pm.Sufficient counts a point as necessary if it is below the limit by less than rounding errors."""
    model, ball, x = network(4), BALLS["box"], inputs(4)
    e = explained(model, ball, x)
    assert e.reason is not None
    assert bool(e.reason.necessary.any())
    first = int(e.reason.point_of[0, 1])
    below = e.reason.values.clone()
    below[0] = -1e-12
    e.reason.values.copy_(below)
    assert not bool(e.reason.adversarial[0, first])
    claim = checked(e.certificate(progress=False), tmp_path)
    assert first not in claim.statement.necessary
    assert "1 kept group is undecided" in claim.statement.verdict(claim)


def test_points_that_the_checker_does_not_accept_are_undecided(tmp_path: Path) -> None:
    """A point with a wrong value, outside the ball, or of a kept group is left out."""
    model, ball, x = network(4), BALLS["box"], inputs(4)
    e = explained(model, ball, x)
    assert e.reason is not None
    first = int(e.reason.point_of[0, 1])
    honest = e.reason.points[0].clone()
    for point in (x[0], x[0] + 2 * (honest - x[0])):
        e.reason.points[0] = point
        claim = checked(e.certificate(progress=False), tmp_path)
        assert first not in claim.statement.necessary
    e.reason.points[0] = honest
    assert first in checked(e.certificate(progress=False), tmp_path).statement.necessary


def test_a_free_set_without_a_proof_has_no_certificate() -> None:
    model, ball, x = network(4), BALLS["box"], inputs(4)
    e = explained(model, ball, x)
    assert e.reason is not None
    of, free = e.reason, torch.ones_like(e.reason.free)
    none = {"points": of.points[:0], "point_of": of.point_of[:0], "values": of.values[:0]}
    e = replace(e, reason=replace(of, free=free, necessary=~free, **none))
    with pytest.raises(BoundError, match="the certificate does not prove the free groups: its bound is"):
        e.certificate(progress=False)


def test_each_sample_has_its_own_certificate(tmp_path: Path) -> None:
    model, x = network(4), inputs(4, 3)
    e = explained(model, BALLS["box"], x)
    assert e.reason is not None
    for k in range(3):
        claim = checked(e.certificate(k, progress=False), tmp_path)
        assert claim.statement.free == e.reason.free[k].nonzero().flatten().tolist()
    with pytest.raises(InputError, match="expected the number of one"):
        e.certificate(progress=False)


@pytest.mark.slow
def test_digits_on_a_coarse_grid(tmp_path: Path) -> None:
    """The packaged network and a packaged digit, whose class is not far from another one."""
    model, (x, _) = pm.zoo.mnist_mlp(), pm.data.digits()
    with torch.no_grad():
        top = model(x).topk(2).values
    x = x[(top[:, 0] - top[:, 1]).argsort()[2]][None]
    e = explained(model, pm.Ball(0.01, domain=(0.0, 1.0)), x, pm.groups.grid(7), seconds=60.0)
    assert e.reason is not None
    made = e.certificate(progress=False)
    claim = checked(made, tmp_path)
    assert claim.decided(0)
    assert len(made.content) < 20_000
    assert 0 < len(claim.statement.free) < 49
