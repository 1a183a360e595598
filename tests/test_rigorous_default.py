"""By default bounds include rounding errors wherever these are known, and every result says whether they do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import BoundError, InputError
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runs import Job
from proofmap.runs.run_job import Setup
from proofmap.verify.property import Region, Unsafe, decide

NOTE = "floating-point rounding is not covered"
X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
BALL, GROUPS = pm.Ball(0.01, domain=(0.0, 1.0)), torch.arange(4)
SEARCH = pm.bounds.Exact(seconds=0.2)
METHODS = [pm.bounds.IBP(), pm.bounds.Forward(), pm.bounds.Backward(), pm.bounds.Alpha(steps=2), pm.bounds.CrownIBP()]


def network(bend: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), bend or nn.ReLU(), nn.Linear(6, 3)).eval()


COVERED, JUMPING, CURVED = network(), network(nn.Hardshrink(0.1)), network(nn.Tanh())


@pytest.mark.parametrize("method", [*METHODS, METHODS[0] & METHODS[2]], ids=repr)
@pytest.mark.parametrize("sharing", ["shared", "one-pass", "separate"])
def test_every_method_is_rigorous_by_default(method: pm.bounds.Method, sharing: Any) -> None:
    asked: Any = {"groups": GROUPS, "bounds": method, "sharing": sharing}
    found, yes, no = (pm.overlap(COVERED, X, BALL, **asked, rigorous=r) for r in (None, True, False))
    assert (found.rigorous, yes.rigorous, no.rigorous) == (True, True, False)
    assert torch.equal(found.full, yes.full)
    assert torch.equal(found.frozen, yes.frozen)
    assert (found.full > no.full).all()
    assert (NOTE in repr(found), NOTE in repr(no)) == (False, True)


@pytest.mark.parametrize(
    "ball",
    [
        pm.Ball(0.01, 1.0),
        pm.Ball(0.01, 2.0),
        pm.Ball(0.01, half="+"),
        pm.Ball(0.01, relative=True, domain=(0.0, 1.0)),
        pm.Ball(0.01, one_hot=((2, 3),)),
    ],
    ids=["l1", "l2", "half", "relative", "one-hot"],
)
@pytest.mark.parametrize("objective", ["margin", "class", "mean", "apart"])
def test_every_ball_is_rigorous_by_default(ball: pm.Ball, objective: Any) -> None:
    x = torch.tensor([[0.3, 0.6, 1.0, 0.0]])
    found, no = (pm.overlap(COVERED, x, ball, objective=objective, rigorous=r) for r in (None, False))
    assert found.rigorous
    assert (found.full > no.full).all()
    assert (found.full_lower < no.full_lower).all()


@pytest.mark.parametrize("method", [None, *METHODS, SEARCH], ids=repr)
def test_uncovered_methods_fall_back_and_say_so(method: pm.bounds.Method | None) -> None:
    found, no = (pm.overlap(JUMPING, X, BALL, bounds=method, rigorous=r) for r in (None, False))
    assert not found.rigorous
    assert NOTE in repr(found)
    if method is not SEARCH:  # a search depends on the clock
        assert torch.equal(found.full, no.full)
    with pytest.raises(BoundError, match="no rigorous bounds for shrink"):
        pm.overlap(JUMPING, X, BALL, bounds=method, rigorous=True)


def test_a_search_splits_curves_by_default_and_states_the_loss_of_rigour() -> None:
    """With rounding analysis it would split no curve, and prove only the bounds from before the search."""
    found, kinks = (pm.overlap(model, X, BALL, bounds=SEARCH) for model in (CURVED, COVERED))
    assert (found.rigorous, kinks.rigorous) == (False, True)
    assert pm.overlap(CURVED, X, BALL).rigorous
    assert not decide_rigorous(pm.trace(CURVED, X), None, SEARCH & pm.bounds.IBP())
    assert pm.overlap(CURVED, X, BALL, bounds=SEARCH, rigorous=True).rigorous


@pytest.mark.parametrize(("model", "covered"), [(COVERED, True), (JUMPING, False)], ids=["covered", "jumping"])
def test_every_result_says_whether_it_is_rigorous(model: nn.Module, covered: bool, tmp_path: Path) -> None:
    graph = pm.trace(model, X)
    eva = pm.EVA(model, BALL, groups=GROUPS, progress=False).explain(X)
    targeted = pm.TargetedEVA(model, BALL, groups=GROUPS, progress=False).explain(X, 1)
    assert eva.overlap.rigorous is targeted.overlap.rigorous is eva.settings["rigorous"] is covered
    assert targeted.settings["rigorous"] is covered
    assert (NOTE in repr(eva)) is not covered
    assert pm.radius(model, X, steps=2, progress=False).rigorous is covered
    rows, bias = torch.tensor([[1.0, -1.0, 0.0]]).double(), torch.zeros(1).double()
    region = Region(X[0].double(), X[0].double() + 0.01, (Unsafe(rows, bias, torch.tensor([False])),))
    assert decide(graph, [region]).rigorous is covered
    assert Setup(graph, Job("eva", BALL)).about["job"]["settings"]["rigorous"] is covered
    eva.save(tmp_path / "e.proofmap")
    assert pm.Explanation.load(tmp_path / "e.proofmap").overlap.rigorous is covered
    said = pm.explain(model, X[:1], seconds=1, progress=False).said[1]
    assert (NOTE in said.lower()) == (said.startswith("Proven") and not covered)


def test_radii_are_rigorous_by_default() -> None:
    found, yes, no = (pm.certified_radius(COVERED, X, rigorous=r, progress=False) for r in (None, True, False))
    assert torch.equal(found, yes)
    assert (found <= no).all()


def test_automatic_radii_are_those_that_the_explainer_can_prove() -> None:
    found = pm.EVA(COVERED, pm.Ball("auto", domain=(0.0, 1.0)), groups=GROUPS, progress=False).explain(X)
    known = pm.certified_radius(COVERED, X, domain=(0.0, 1.0), target=found.target, progress=False)
    assert found.settings["eps"] == known.tolist()
    assert found.proven.all()


def test_a_file_without_the_setting_is_not_rigorous(tmp_path: Path) -> None:
    """Files of older versions contain the setting only if the user requested it."""
    path = tmp_path / "e.proofmap"
    found = pm.EVA(COVERED, BALL, groups=GROUPS, progress=False, rigorous=True).explain(X)
    replace(found, settings={name: value for name, value in found.settings.items() if name != "rigorous"}).save(path)
    older = pm.Explanation.load(path)
    assert not older.overlap.rigorous
    assert NOTE in repr(older)


@pytest.mark.parametrize("wrong", ["yes", 1, 0.0])
def test_a_flag_must_be_a_boolean(wrong: Any) -> None:
    for call in (
        lambda: pm.overlap(COVERED, X, BALL, rigorous=wrong),
        lambda: pm.certified_radius(COVERED, X, rigorous=wrong),
        lambda: pm.EVA(COVERED, BALL, rigorous=wrong),
    ):
        with pytest.raises(InputError, match=f"got rigorous={wrong!r}, expected True or False"):
            call()


class Ratio(nn.Module):
    """Divide by a small difference of two sums, which rounding may make 0."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.abs().sum(1, keepdim=True)
        return x / (total - total * 0.999999 + 1e-9)


def test_where_rounding_leaves_a_function_undefined_the_error_names_the_fast_mode() -> None:
    x, ibp = torch.rand(1, 4, generator=torch.Generator().manual_seed(0)), pm.bounds.IBP()
    with pytest.raises(BoundError, match=r"on one side of 0, .*, or rigorous=False, which does not cover rounding"):
        pm.overlap(Ratio(), x, pm.Ball(0.0), bounds=ibp, rigorous=True)
    with pytest.raises(BoundError, match=r"or rigorous=False, which does not cover rounding"):
        pm.EVA(Ratio(), pm.Ball(0.0), bounds=ibp, rigorous=True, progress=False).explain(x)
    assert pm.overlap(Ratio(), x, pm.Ball(0.0), bounds=ibp, rigorous=False).full.isfinite().all()


def test_where_rounding_leaves_a_function_undefined_the_default_is_the_fast_mode_and_says_so(tmp_path: Path) -> None:
    x, ibp = torch.rand(1, 4, generator=torch.Generator().manual_seed(0)), pm.bounds.IBP()
    said = rf"{NOTE}: with rounding errors there is no bound \(.*on one side of 0.*\); rigorous=False avoids"
    with pytest.warns(pm.ProofmapWarning, match=said) as caught:
        over = pm.overlap(Ratio(), x, pm.Ball(0.0), bounds=ibp)
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]  # points at the user's line
    assert not over.rigorous
    assert NOTE in repr(over)
    assert torch.equal(over.full, pm.overlap(Ratio(), x, pm.Ball(0.0), bounds=ibp, rigorous=False).full)
    with pytest.warns(pm.ProofmapWarning, match=said):
        found = pm.EVA(Ratio(), pm.Ball(0.0), groups=GROUPS, bounds=ibp, progress=False).explain(x)
    assert found.settings["rigorous"] is found.overlap.rigorous is False
    assert NOTE in repr(found)
    found.save(tmp_path / "e.proofmap")
    assert not pm.Explanation.load(tmp_path / "e.proofmap").overlap.rigorous


def test_where_the_fast_mode_has_no_bound_either_its_own_error_is_raised() -> None:
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(BoundError) as caught:
        pm.overlap(Ratio(), x, pm.Ball(0.5), bounds=pm.bounds.IBP())
    assert "rigorous=False" not in str(caught.value)


class Length(nn.Module):
    """The length of a vector that may be 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.linalg.vector_norm(x, dim=1, keepdim=True), x[:, :1] + 1], dim=1)


def test_the_rounding_of_a_sum_of_squares_leaves_its_root_defined() -> None:
    over = pm.overlap(Length(), torch.zeros(1, 4), pm.Ball(0.1), bounds=pm.bounds.IBP())
    assert over.rigorous
    assert float(over.full) >= 0.2 - 1.1  # at the corner, the length is 0.2
