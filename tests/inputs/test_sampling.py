from math import inf
from typing import Literal

import cvxpy as cp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest
from torch import Tensor

from proofmap.inputs import sampling
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family

Half = Literal["+", "-"] | None

NORMS = (1, 2, inf)
HALVES: tuple[Half, ...] = (None, "+", "-")
LUCK = 1e-3  # a p-value below it is no chance: seeds are fixed


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(
    seed: int,
    norm: float,
    *,
    domain: bool = True,
    half: Half = None,
    dtype: torch.dtype = torch.float64,
    shape: tuple[int, ...] = (5,),
    eps: float = 0.6,
) -> Family:
    """Two random samples, a third of the variables at the edge of the domain."""
    x = (torch.rand(2, *shape, generator=seeded(seed), dtype=torch.float64) * 1.6 - 0.3).clamp(0, 1).to(dtype)
    return Ball(torch.tensor([eps, eps / 3]), norm, (0.0, 1.0) if domain else None, half).at(x)


FAMILIES = st.builds(
    make,
    seed=st.integers(0, 10**6),
    norm=st.sampled_from(NORMS),
    domain=st.booleans(),
    half=st.sampled_from(HALVES),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shape=st.sampled_from([(1,), (5,), (2, 3, 3)]),
    eps=st.sampled_from([0.0, 1e-4, 0.3, 1.0, 4.0]),
)
hypothesis = settings(max_examples=120, deadline=None, derandomize=True)


def check_members(family: Family, delta: Tensor) -> None:
    assert (delta >= family.lower).all()
    assert (delta <= family.upper).all()
    assert family.contains(delta).all()


@hypothesis
@given(FAMILIES)
def test_samples_are_members(family: Family) -> None:
    delta = family.sample(20, seeded())
    assert delta.shape == (20, *family.x.shape)
    assert delta.dtype == family.x.dtype
    check_members(family, delta)


@pytest.mark.parametrize("norm", [1, 2])
def test_rounding_does_not_lead_out_of_the_box(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_sample_by_symmetry", lambda sets, *_: sets.upper[None] * (1 + 1e-15))
    family = Ball(0.8, norm).at(torch.zeros(2, 3, dtype=torch.float64))
    assert torch.equal(family.sample(1)[0], family.upper)


def reject(family: Family, count: int, seed: int) -> Tensor:
    """The definition: uniform in the box until in the ball, for the first sample; (count, d)."""
    lower, upper = family.lower[0].flatten(), family.upper[0].flatten()
    drawn = lower + (upper - lower) * torch.rand(200 * count, len(lower), generator=seeded(seed), dtype=torch.float64)
    inside = drawn[torch.linalg.vector_norm(drawn, family.norm, dim=1) <= family.eps[0]]
    assert len(inside) >= count
    return inside[:count]


def _summaries(delta: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    return torch.linalg.vector_norm(delta, 1, dim=1), torch.linalg.vector_norm(delta, 2, dim=1), delta @ slope


def check_same_law(one: Tensor, other: Tensor) -> None:
    """Two samples (count, d) agree in every coordinate, in both norms, and in a direction across the axes."""
    slope = torch.linspace(-1, 2, one.shape[1], dtype=torch.float64)
    for left, right in zip(_summaries(one, slope), _summaries(other, slope), strict=True):
        assert ks_2samp(left, right).pvalue > LUCK
    for i in range(one.shape[1]):
        if one[:, i].any() or other[:, i].any():
            assert ks_2samp(one[:, i], other[:, i]).pvalue > LUCK


CORNERS = {
    "cut on both sides": ([0.1, 0.8], 0.7),
    "one variable fixed on one side": ([0.0, 0.6, 0.9], 0.7),
    "hardly cut": ([0.5, 0.5, 0.45], 0.52),
    "the box nearly inside": ([0.3, 0.5], 0.8),
    "uneven": ([0.01, 0.02, 0.5], 0.4),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("norm", NORMS)
def test_samples_have_the_law_of_plain_rejection(norm: float, corner: str, half: Half) -> None:
    x, eps = CORNERS[corner]
    family = Ball(eps, norm, (0.0, 1.0), half).at(torch.tensor([x], dtype=torch.float64))
    check_same_law(family.sample(3000, seeded(1))[:, 0], reject(family, 3000, seed=2))


@pytest.mark.parametrize("norm", [1, 2])
def test_the_tilt_does_not_change_the_law(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Ball(0.8, norm, (0.0, 1.0)).at(torch.tensor([[0.1, 0.5, 0.7, 0.2]], dtype=torch.float64))
    expected = reject(family, 3000, seed=3)
    tilt = sampling._tilt
    for factor in (0.0, 0.3, 1.0, 2.5):
        monkeypatch.setattr(sampling, "_tilt", lambda *args, factor=factor: factor * tilt(*args))
        check_same_law(family.sample(3000, seeded(4))[:, 0], expected)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("eps", [1e-120, 1e-165, 1e-310, 1e-322, 1e200])
def test_the_size_of_a_ball_that_the_domain_cuts_does_not_change_the_law(norm: float, eps: float) -> None:
    """ε² may be 0 or infinite. Numbers are 5e-324 apart at the least."""
    x = torch.zeros(1, 3, dtype=torch.float64)
    ends = torch.tensor([0.5, 1.0, 1.0], dtype=torch.float64)
    drawn, like = (Ball(size, norm, (-size, size * ends)).at(x).sample(400, seeded()) for size in (eps, 1.0))
    torch.testing.assert_close(drawn / eps, like, rtol=1e-9, atol=1e-12 + 5e-324 / eps)


@pytest.mark.parametrize("norm", [1, 2])
def test_thirty_variables_of_which_one_is_cut(norm: float) -> None:
    low = torch.full((30,), -9.0)
    low[0] = -0.06
    cut = Ball(1.0, norm, (low, 9.0)).at(torch.zeros(1, 30, dtype=torch.float64))
    assert cut.capped
    whole = Ball(1.0, norm).at(torch.zeros(1, 30, dtype=torch.float64)).sample(6000, seeded(5))[:, 0]
    check_same_law(cut.sample(3000, seeded(6))[:, 0], whole[whole[:, 0] >= -0.06])


@pytest.mark.parametrize("norm", [1, 2])
def test_the_proposal_has_the_wanted_size_and_many_are_accepted(norm: float) -> None:
    family = make(9, norm, shape=(400,), eps=3.0)
    args = (family.lower, family.upper, family.eps, norm)
    tilt = sampling._tilt(*args)
    random = torch.rand(4000, 2, 400, generator=seeded(), dtype=torch.float64)
    size = sampling._propose(random, family.lower, family.upper, tilt, norm).abs().pow(norm).sum(2)  # (4000, N)
    torch.testing.assert_close(size.mean(0), family.eps.pow(norm), rtol=0.01, atol=0)
    excess = size - family.eps.pow(norm)
    assert ((torch.exp(tilt * excess) * (excess <= 0)).mean(0) > 0.3 / 400**0.5).all()


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("norm", [1, 2])
def test_the_norm_of_a_whole_ball_has_the_law_of_a_root(norm: float, half: Half) -> None:
    delta = Ball(0.3, norm, half=half).at(torch.zeros(1, 7, dtype=torch.float64)).sample(4000, seeded(7))[:, 0]
    share = torch.linalg.vector_norm(delta, norm, dim=1) / 0.3
    assert kstest(share.pow(7), "uniform").pvalue > LUCK
    if half is None:
        assert abs(float((delta > 0).double().mean()) - 0.5) < 0.01
    else:
        assert (delta > 0).all() if half == "+" else (delta < 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_frozen_group_stays_and_takes_no_part(norm: float) -> None:
    family = Ball(0.5, norm).at(torch.zeros(1, 6, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 1]))
    delta = family.split(torch.tensor([2])).sample(3000, seeded(8))[:, 0]
    assert not delta[:, 3:].any()
    three = Ball(0.5, norm).at(torch.zeros(1, 3, dtype=torch.float64)).sample(3000, seeded(9))[:, 0]
    check_same_law(delta[:, :3], three)


@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_seed_fixes_the_samples(norm: float, domain: bool) -> None:
    family = make(1, norm, domain=domain)
    assert torch.equal(family.sample(9, seeded(1)), family.sample(9, seeded(1)))
    assert not torch.equal(family.sample(9, seeded(1)), family.sample(9, seeded(2)))


@hypothesis
@given(FAMILIES, st.integers(0, 10**6), st.sampled_from([1e-3, 0.5, 1.0, 30.0, 1e6]))
def test_the_projection_is_the_nearest_member(family: Family, seed: int, scale: float) -> None:
    points = scale * torch.randn(3, *family.x.shape, generator=seeded(seed), dtype=family.x.dtype)
    found = family.project(points)
    assert found.dtype == points.dtype
    check_members(family, found)
    # the nearest point p of a convex set: <z - p, y - p> <= 0 for all y in it
    way = (points - found).double()[:, None]  # (3, 1, N, *shape)
    others = torch.cat([family.sample(20, seeded(seed)), torch.zeros_like(family.x)[None]]).double()
    angle = (way * (others - found.double()[:, None])).flatten(3).sum(3)
    error = 1e-6 if points.dtype == torch.float32 else 1e-9
    assert (angle <= error * way.flatten(3).norm(dim=3) * (family.eps + error) * family.x[0].numel()).all()


@hypothesis
@given(FAMILIES)
def test_the_projection_of_a_member_is_itself(family: Family) -> None:
    delta = family.sample(10, seeded())
    torch.testing.assert_close(family.project(delta), delta)
    found = family.project(10 * delta)
    torch.testing.assert_close(family.project(found), found)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_the_projection_agrees_with_a_conic_solver(norm: float, domain: bool, half: Half) -> None:
    family = make(4, norm, domain=domain, half=half)
    points = torch.randn(2, 5, generator=seeded(3), dtype=torch.float64)
    found = family.project(points)
    for sample in range(2):
        delta = cp.Variable(5)
        x = family.x[sample].numpy()
        limits = [cp.norm(delta, norm) <= float(family.eps[sample])]
        limits += [x + delta >= 0, x + delta <= 1] if domain else []
        limits += [delta >= 0] if half == "+" else [delta <= 0] if half == "-" else []
        cp.Problem(cp.Minimize(cp.sum_squares(delta - points[sample].numpy())), limits).solve(solver=cp.CLARABEL)
        torch.testing.assert_close(found[sample], torch.from_numpy(delta.value), atol=2e-4, rtol=0)
