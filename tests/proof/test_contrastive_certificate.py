"""Certificates of pm.Contrastive: the checker bounds all sets of fewer groups together, and evaluates each point."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.errors import ProofmapWarning
from proofmap.explainers import Explanation
from proofmap.proof import check, make_certificate
from proofmap.proof.certificate import Certificate
from proofmap.verify.objectives import Label, Output
from tests.bounds.exact import exact_maximum
from tests.proof.test_sufficient_certificate import BALLS, GROUPS, exact_logits, inputs, layers_of, network


def explained(model: nn.Module, ball: pm.Ball, x: torch.Tensor, target: int | None = None, **more: Any) -> Explanation:
    return pm.Contrastive(model, ball, groups=GROUPS, progress=False, **more).explain(x, target=target)


def checked(made: Certificate, folder: Path) -> check.Claim:
    """The checker's answer about the saved files."""
    claim = check.read_claim(*made.save(folder / "a.proof"))
    assert isinstance(claim.statement, check.ContrastiveSet)
    return claim


@pytest.mark.parametrize("name", BALLS)
@pytest.mark.parametrize("seed", [3, 8])
def test_sets_and_least_numbers_hold(name: str, seed: int, tmp_path: Path) -> None:
    model, ball, x = network(seed), BALLS[name], inputs(seed)
    e = explained(model, ball, x, sets=2)
    assert e.contrast is not None
    claim = checked(e.certificate(progress=False), tmp_path)
    stated = claim.statement
    assert claim.decided(0)
    assert not claim.decision  # it is one of the few groups' ball
    assert stated.sets == [one.nonzero().flatten().tolist() for one in e.contrast.sets]
    assert stated.least == int(e.contrast.least[0])
    mask, target = GROUPS[0].numpy(), int(e.predicted)
    for groups, point in zip(stated.sets, claim.witnesses, strict=True):
        moved = point != x[0].numpy()
        assert not moved[~np.isin(mask, groups)].any()
        logits = exact_logits(model, point)
        assert max(v for c, v in enumerate(logits) if c != target) > logits[target]
    if ball.norm != torch.inf:
        return
    family = ball.at(x)
    rows = [np.eye(3)[c] - np.eye(3)[target] for c in range(3) if c != target]
    for few in combinations(range(5), stated.least - 1):
        moves = torch.from_numpy(np.isin(mask, few))
        ends = [(x + side * moves)[0].double().numpy() for side in (family.lower, family.upper)]
        assert max(exact_maximum(layers_of(model), row, *ends)[0] for row in rows) <= claim.upper(0) < 0


def test_a_chosen_class_is_reached(tmp_path: Path) -> None:
    model, x = network(3), inputs(3)
    e = explained(model, BALLS["box"], x, target=1)
    assert e.contrast is not None
    made = e.certificate(progress=False)
    claim = checked(made, tmp_path)
    assert claim.statement.aim == 1
    first, second, *_ = claim.statement.verdict(claim).splitlines()
    assert first.startswith("Proven: no input within ε = 0.3 (L∞) of this input, with values of any size, that differs")
    assert "has class 1." in first
    assert "class 1 is ahead of all others there" in second
    assert made.summary().startswith("sets of 2 of 5 groups are shown to change the decision; at least 2 are needed")


def test_a_class_that_no_change_reaches(tmp_path: Path) -> None:
    e = explained(network(3), BALLS["box"], inputs(3), target=0)
    assert e.contrast is not None
    assert bool(e.contrast.impossible)
    made = e.certificate(progress=False)
    claim = checked(made, tmp_path)
    assert claim.statement.least == 6
    assert claim.statement.verdict(claim).splitlines() == [
        "Proven: no input within ε = 0.3 (L∞) of this input, with values of any size, has class 0. This holds in real "
        "and in float32 arithmetic.",
        "No set of groups can change this in the ball.",
    ]
    assert made.summary().startswith("no set of 5 groups changes the decision, over the reals and in float32")


def test_an_output_leaves_its_limit(tmp_path: Path) -> None:
    model, x = network(4), inputs(4)
    e = explained(model, pm.Ball(0.2), x, objective=Output(1, "both"), within=0.4)
    assert e.contrast is not None
    claim = checked(e.certificate(progress=False), tmp_path)
    assert claim.statement.limit == "0.4"
    centre = Fraction(claim.statement.about.centre)
    (point,) = claim.witnesses
    assert abs(exact_logits(model, point)[1] - centre) > Fraction("0.4")
    first, second, *_ = claim.statement.verdict(claim).splitlines()
    assert first.startswith(f"Proven: output 1 is not more than 0.4 away from {claim.statement.about.centre}")
    assert f"and output 1 is more than 0.4 away from {claim.statement.about.centre} there" in second


def test_a_label_changes(tmp_path: Path) -> None:
    model, x = network(8), inputs(8)
    e = explained(model, pm.Ball(0.2), x, objective=Label(0))
    claim = checked(e.certificate(progress=False), tmp_path)
    on = bool(exact_logits(model, x[0])[0] > 0)
    assert [bool(exact_logits(model, point)[0] > 0) for point in claim.witnesses] == [not on]


def test_the_largest_number_that_can_be_proven_is_stated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without trees and with a claim that is too large, a smaller number is proven, and the difference is said."""
    model, x = network(3), inputs(3)
    e = explained(model, BALLS["box"], x)
    assert e.contrast is not None
    assert int(e.contrast.least) == 2
    honest = make_certificate._check_proven

    def refuse_two(statement: check.GroupSets, bound: float, *, trees: bool) -> None:
        assert isinstance(statement, check.ContrastiveSet)
        honest(statement, 1.0 if statement.least > 1 else bound, trees=trees)

    monkeypatch.setattr(make_certificate, "_check_proven", refuse_two)
    with pytest.warns(ProofmapWarning, match="it proves that at least 1 groups have to change, and the explanation 2"):
        made = e.certificate(progress=False)
    with pytest.warns(ProofmapWarning):
        claim = checked(made, tmp_path)
    assert claim.statement.least == 1
    assert claim.statement.verdict(claim).splitlines()[-1].startswith("Whether fewer than 2 groups can is not decided")


def test_points_that_the_checker_does_not_accept_are_left_out(tmp_path: Path) -> None:
    model, x = network(3), inputs(3)
    e = explained(model, BALLS["box"], x)
    assert e.contrast is not None
    honest = e.contrast.points[0].clone()
    for point in (x[0], x[0] + 2 * (honest - x[0])):
        e.contrast.points[0] = point
        claim = checked(e.certificate(progress=False), tmp_path)
        assert claim.statement.sets == []
        assert "can is not decided by this file" in claim.statement.verdict(claim)
