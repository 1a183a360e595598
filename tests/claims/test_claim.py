"""Claims of explanations as VNN-LIB: form, box and threshold."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.claims.claim import BoundClaim, ClaimedForm, Which, claims_of, vnnlib_text
from proofmap.errors import InputError
from proofmap.sources import Preparation, read_specification

MASK = torch.tensor([0, 0, 1, 2])


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def e() -> pm.Explanation:
    ball = pm.Ball(0.05, domain=(0.0, 1.0))
    return pm.EVA(network(), ball, groups=MASK).explain(torch.rand(2, 4, generator=torch.manual_seed(0)))


def of(e: pm.Explanation, which: Which = "all") -> list[BoundClaim]:
    return [claim for _, claim in claims_of(e, "x", 3, which)]


def read(claim: BoundClaim, folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read the box, and the rows and thresholds of all cases, with our reader."""
    file = folder / "claim.vnnlib"
    file.write_text(vnnlib_text(claim, "net.onnx", ["about"]), encoding="utf-8")
    (region,) = read_specification(file, Preparation(shape=tuple(claim.lower.shape)))
    rows = torch.cat([case.weight for case in region.unsafe])
    return region.lower, region.upper, rows, torch.cat([case.bias for case in region.unsafe])


def test_every_bound_is_a_claim(e: pm.Explanation) -> None:
    claims = of(e)
    assert [claim.name for claim in claims if "u" not in claim.name] == ["x-0", "x-1"]
    assert len(claims) == 8
    for claim in claims:
        sample, _, group = claim.name.removeprefix("x-").partition("-u")
        assert claim.value == float(e.overlap.frozen[int(sample), int(group)] if group else e.overlap.full[int(sample)])
        assert claim.form.target == int(e.target[int(sample)])


def test_a_file_says_what_is_claimed(e: pm.Explanation, tmp_path: Path) -> None:
    """-Y_k + t <= 0 in every case; frozen variables are at x; t is the bound, to the last bit."""
    for number, claim in claims_of(e, "x", 3, "all"):
        lower, upper, rows, numbers = read(claim, tmp_path)
        assert torch.equal(rows, -torch.eye(2, dtype=torch.float64))
        assert numbers.tolist() == [claim.value] * 2
        x = e.x[number].double()
        frozen = torch.eq(MASK, int(claim.name.partition("-u")[2] or -1))
        assert torch.equal(lower[frozen], x[frozen])
        assert torch.equal(upper[frozen], x[frozen])
        assert bool((lower[~frozen] < x[~frozen]).all())
        assert bool((upper[~frozen] - lower[~frozen] <= 0.1 + 1e-12).all())


def test_which_groups(e: pm.Explanation) -> None:
    assert [claim.name for claim in of(e, "none")] == ["x-0", "x-1"]
    assert len(of(pm.EVA(network(), pm.Ball(0.05), groups=torch.arange(4)).explain(e.x[:1]), "top")) == 5
    wide = pm.EVA(nn.Linear(12, 2), pm.Ball(0.05)).explain(torch.rand(1, 12))
    names = [claim.name for claim in of_two(wide, "top")]
    first = int(wide.scores[0].argmax())
    assert names[:2] == ["x", f"x-u{first}"]
    assert len(names) == 11


def of_two(e: pm.Explanation, which: Which) -> list[BoundClaim]:
    return [claim for _, claim in claims_of(e, "x", 2, which)]


@pytest.mark.parametrize("objective", ["margin", "apart", "class", "mean"])
def test_rows_are_the_objective(objective: str) -> None:
    logits = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
    form = ClaimedForm(1, (0, 2, 3), "margin" if objective == "apart" else objective, 4)
    expected = {"class": [1.0], "mean": [1.5 + 3.0 + 1.25]}.get(objective, [1.5, 3.0, 1.25])
    assert (form.rows @ logits).tolist() == expected
    assert bool((form.rows == form.rows.round()).all())


@pytest.mark.parametrize("value", [0.1, -0.1, 1 / 3, 2.0, -7.7])
def test_a_mean_is_claimed_by_its_sum_and_rounded_down(value: float) -> None:
    claim = BoundClaim("x", "", ClaimedForm(0, tuple(range(1, 8)), "mean", 8), torch.zeros(1), torch.zeros(1), value)
    assert Fraction(claim.threshold) <= 7 * Fraction(value)
    assert claim.threshold == pytest.approx(7 * value, rel=1e-15)


def test_a_targeted_map_claims_both_halves_towards_its_class(tmp_path: Path) -> None:
    x = torch.rand(1, 4, generator=torch.manual_seed(1))
    model = network()
    decided = int(model(x).argmax())
    aim = (decided + 1) % 3
    e = pm.TargetedEVA(model, pm.Ball(0.05), groups=MASK).explain(x, aim)
    adding, removing = of(e, "none")
    assert e.opposite is not None
    assert (adding.value, removing.value) == (float(e.overlap.full), float(e.opposite.full))
    assert adding.form == removing.form == ClaimedForm(decided, (aim,), "margin", 3)
    assert torch.equal(adding.lower, x[0].double())
    assert torch.equal(removing.upper, x[0].double())
    assert read(adding, tmp_path)[2].tolist() == [[-1.0]]
    assert of(pm.TargetedEVA(model, pm.Ball(0.05), groups=MASK).explain(x, decided), "all") == []


def test_what_claims_nothing_is_refused(e: pm.Explanation) -> None:
    sampled = pm.EmpiricalEVA(network(), pm.Ball(0.05), groups=MASK, samples=4).explain(e.x)
    with pytest.raises(InputError, match="x is sampled, expected a certified explanation"):
        of(sampled)
    unknown = replace(e, settings={**e.settings, "domain": ["tensor (9, 9) sha256 0", 1.0]})
    with pytest.raises(InputError, match="does not contain its ball"):
        of(unknown)


def test_no_number_needs_an_exponent() -> None:
    claim = BoundClaim("x", "", ClaimedForm(0, (1,), "margin", 2), torch.tensor([1e-9]), torch.tensor([-0.0]), 1e-7)
    lines = [line for line in vnnlib_text(claim, "net.onnx", []).splitlines() if line.startswith("(assert")]
    assert not any("e" in line.removeprefix("(assert") for line in lines)
    assert lines[0] == "(assert (<= X_0 0))"
