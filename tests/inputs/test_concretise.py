from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import product
from math import inf
from typing import Literal

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proofmap.inputs import concretise
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family

Half = Literal["+", "-"] | None

NORMS = (1, 2, inf)
HALVES: tuple[Half, ...] = (None, "+", "-")
DTYPES = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-9}  # relative to the full ball's value


@dataclass(frozen=True)
class Case:
    """A family, with rows of coefficients over it."""

    ball: Ball
    family: Family
    coefficients: Tensor  # (K, *shape)
    owner: Tensor  # (K,)

    def suprema(self) -> Tensor:
        return self.family.concretise(self.coefficients, self.owner)

    def __repr__(self) -> str:
        return f"Case({self.ball}, x={self.family.x.tolist()}, A={self.coefficients.tolist()}, mask={self.family.mask})"


def make(
    seed: int,
    norm: float,
    *,
    domain: bool = True,
    half: Half = None,
    dtype: torch.dtype = torch.float64,
    samples: int = 2,
    variables: int = 6,
    groups: int = 3,
    rows: int = 4,
    eps: float = 0.4,
    mask: Literal["shared", "own"] | None = "shared",
    ties: bool = False,
    spread: float = 0.0,
) -> Case:
    """Random inputs, a third of them at the edge of the domain; coefficients with some zeros, of some powers of ten."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    x = (rand(samples, variables) * 1.6 - 0.3).clamp(0, 1).to(dtype)
    ids = {
        None: None,
        "shared": torch.cat([torch.arange(groups), (rand(variables - groups) * groups).long()]),
        "own": (rand(samples, variables) * groups).long(),
    }[mask]
    if mask == "own":
        assert ids is not None
        ids[0, 0] = groups - 1
    radii = (eps * (0.5 + rand(samples))).to(dtype)
    ball = Ball(radii if samples > 1 else eps, norm, (0.0, 1.0) if domain else None, half)
    coefficients = (rand(rows, variables) * 7 - 3.5).round() if ties else rand(rows, variables) * 2 - 1
    coefficients[rand(rows, variables) < 0.15] = 0
    coefficients *= 10 ** (spread * (2 * rand(rows, variables) - 1))
    return Case(ball, ball.at(x, ids), coefficients.to(dtype), torch.arange(rows) % samples)


def solve(case: Case, row: int, member: int) -> float:
    """The definition of a member, given to a conic solver."""
    sample = int(case.owner[row])
    x = case.family.x[sample].double().numpy()
    delta = cp.Variable(x.shape)
    limits = [cp.norm(delta, case.ball.norm) <= float(case.family.eps[sample])]
    if case.ball.domain is not None:
        limits += [x + delta >= 0, x + delta <= 1]
    if case.ball.half is not None:
        limits += [delta >= 0 if case.ball.half == "+" else delta <= 0]
    if member > 0:
        assert case.family.mask is not None
        frozen = np.flatnonzero(case.family.mask[sample].numpy() == member - 1)
        limits += [delta[frozen] == 0] if len(frozen) else []
    problem = cp.Problem(cp.Maximize(case.coefficients[row].double().numpy() @ delta), limits)
    return float(problem.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_every_member_agrees_with_a_conic_solver(norm: float, domain: bool, half: Half) -> None:
    case = make(7, norm, domain=domain, half=half)
    expected = [[solve(case, row, member) for member in range(case.family.members)] for row in range(4)]
    torch.testing.assert_close(
        case.suprema(), torch.tensor(expected, dtype=torch.float64), atol=2e-6, rtol=0, check_dtype=True
    )


def test_the_box_agrees_with_its_vertices() -> None:
    case = make(3, inf, rows=6)
    for row, sample in enumerate(case.owner):
        lower, upper = case.family.lower[sample], case.family.upper[sample]
        corners = torch.tensor(list(product(*zip(lower.tolist(), upper.tolist(), strict=True))), dtype=torch.float64)
        assert case.family.mask is not None
        for member, value in enumerate(case.suprema()[row]):
            kept = corners * (case.family.mask[sample] != member - 1)
            torch.testing.assert_close(value, (kept @ case.coefficients[row]).max())


def slowly(gain: Sequence[float], cap: Sequence[float], radius: float, norm: float) -> Decimal:
    """max Σ a t over 0 <= t <= c, ||t||_p <= ε in fifty digits.

    p = inf: everything at its cap. p = 1: the best first, until the radius is spent. p = 2: t = min(a / λ, c) with the
    first k by a / c at their caps, for the only k whose λ agrees with itself.
    """
    pairs = [(Decimal(a), Decimal(c)) for a, c in zip(gain, cap, strict=True) if a > 0 and c > 0]
    if norm == inf:
        return sum((a * c for a, c in pairs), Decimal(0))
    left = Decimal(radius)
    if norm == 1:
        value = Decimal(0)
        for a, c in sorted(pairs, reverse=True):
            spent = min(c, left)
            value, left = value + a * spent, left - spent
        return value
    pairs.sort(key=lambda pair: pair[0] / pair[1], reverse=True)
    for k in range(len(pairs) + 1):
        earned = sum((a * c for a, c in pairs[:k]), Decimal(0))
        spare = left**2 - sum((c * c for _, c in pairs[:k]), Decimal(0))
        rest = sum((a * a for a, _ in pairs[k:]), Decimal(0))
        if k == len(pairs):
            return earned
        if spare > 0 and (k == len(pairs) or pairs[k][0] / pairs[k][1] <= (rest / spare).sqrt()):
            return earned + (rest * spare).sqrt()
    raise AssertionError


def compare_with_slow(case: Case) -> None:
    """Not below the supremum (p = inf: up to rounding), and not above it by more than the tolerance."""
    values = case.suprema()
    singles = case.family.split()
    with localcontext() as context:
        context.prec = 50
        for row, sample in enumerate(case.owner.tolist()):
            a = case.coefficients[row].double()
            slack = Decimal(TOLERANCE[values.dtype]) * Decimal(float(values[row, 0]))
            for member in range(case.family.members):
                single = sample * case.family.members + member
                cap = torch.where(a > 0, singles.upper[single], -singles.lower[single]).double()
                exact = slowly(a.abs().tolist(), cap.tolist(), float(singles.eps[single]), case.family.norm)
                got = Decimal(float(values[row, member]))
                assert exact - got <= (slack if case.family.norm == inf else Decimal("1e-45")), (row, member)
                assert got - exact <= slack, (row, member)


CASES = st.builds(
    make,
    seed=st.integers(0, 10**6),
    norm=st.sampled_from(NORMS),
    domain=st.booleans(),
    half=st.sampled_from(HALVES),
    dtype=st.sampled_from(DTYPES),
    samples=st.integers(1, 3),
    variables=st.integers(4, 9),
    groups=st.integers(1, 4),
    rows=st.integers(0, 4),
    eps=st.sampled_from([0.0, 1e-3, 0.2, 0.7, 3.0]),
    mask=st.sampled_from([None, "shared", "own"]),
    ties=st.booleans(),
    spread=st.sampled_from([0.0, 7.0]),
)
hypothesis = settings(max_examples=250, deadline=None, derandomize=True)


@hypothesis
@given(CASES)
def test_every_member_agrees_with_fifty_digits(case: Case) -> None:
    compare_with_slow(case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_many_variables_agree_with_fifty_digits(norm: float, dtype: torch.dtype) -> None:
    for eps in (0.3, 2.0, 9.0):
        compare_with_slow(make(5, norm, dtype=dtype, variables=150, groups=12, rows=2, eps=eps))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("seed", [*range(8), 59, 71, 349])  # the last three need the limit by the full ball's value
def test_cancellation_between_powers_of_ten_stays_on_the_safe_side(seed: int, norm: float) -> None:
    case = make(seed, norm, variables=8, groups=4, eps=0.7, spread=7.0, ties=True, samples=1)
    compare_with_slow(case)
    values = case.suprema()
    assert (values[:, 1:] <= values[:, :1]).all()


@hypothesis
@given(CASES)
def test_a_family_is_its_members_one_by_one(case: Case) -> None:
    values, members = case.suprema(), case.family.members
    index = case.owner[:, None] * members + torch.arange(members)  # (K, M)
    singles = case.family.split(index.flatten())
    rows = torch.arange(index.numel())
    alone = singles.concretise(case.coefficients.repeat_interleave(members, 0), rows)
    assert values.dtype == case.coefficients.dtype
    scale = values[:, :1] if len(values) else torch.ones(0, 1)
    assert (values - alone.view(-1, members)).abs().le(TOLERANCE[values.dtype] * scale).all()


@hypothesis
@given(CASES)
def test_no_member_exceeds_the_full_ball(case: Case) -> None:
    values = case.suprema()
    assert values.shape == (len(case.owner), case.family.members)
    assert (values >= 0).all()
    assert (values[:, 1:] <= values[:, :1]).all()
    assert torch.equal(case.family.concretise(case.coefficients, case.owner, full_only=True), values[:, :1])


@hypothesis
@given(CASES)
def test_no_point_of_a_member_exceeds_its_value(case: Case) -> None:
    singles, members = case.family.split(), case.family.members
    delta = singles.sample(30, torch.Generator().manual_seed(0)).double()  # (30, N M, d)
    values = case.suprema().double()
    for row, sample in enumerate(case.owner.tolist()):
        reached = delta[:, sample * members : (sample + 1) * members] @ case.coefficients[row].double()  # (30, M)
        assert (reached <= values[row] + 2e-6 * values[row, 0]).all()


@hypothesis
@given(CASES)
def test_the_gradient_is_a_maximiser(case: Case) -> None:
    coefficients = case.coefficients.double().requires_grad_()
    values = case.family.concretise(coefficients, case.owner)
    singles = case.family.split()
    for member in range(case.family.members):
        (delta,) = torch.autograd.grad(values[:, member].sum(), coefficients, retain_graph=True)
        assert ((delta * coefficients).sum(dim=1) - values[:, member]).abs().le(1e-9 * values[:, 0]).all()
        if not coefficients.detach().abs().sort(dim=1).values.diff(dim=1).eq(0).any():
            assert singles.pick(case.owner * case.family.members + member).contains(delta).all()


@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_the_gradient_at_zero_is_finite(norm: float, domain: bool) -> None:
    case = make(0, norm, domain=domain)
    coefficients = torch.zeros_like(case.coefficients).requires_grad_()
    values = case.family.concretise(coefficients, case.owner)
    assert torch.equal(values, torch.zeros_like(values))
    (gradient,) = torch.autograd.grad(values.sum(), coefficients)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_group_without_influence_changes_nothing(norm: float, domain: bool) -> None:
    case = make(11, norm, domain=domain, dtype=torch.float32, variables=40, groups=8, eps=1.0)
    assert case.family.mask is not None
    values = case.family.concretise(case.coefficients * (case.family.mask[0] != 5), case.owner)
    assert torch.equal(values[:, 6], values[:, 0])
    assert (values[:, 1:] < values[:, :1]).any()


@pytest.mark.parametrize("norm", NORMS)
def test_a_group_that_is_absent_in_a_sample_changes_nothing(norm: float) -> None:
    x = torch.full((2, 4), 0.5)
    family = Ball(0.6, norm, (0, 1)).at(x, torch.tensor([[0, 0, 1, 1], [1, 1, 2, 2]]))
    values = family.concretise(torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2), torch.tensor([0, 1]))
    assert values[0, 3] == values[0, 0]
    assert values[1, 1] == values[1, 0]
    assert values[1, 3] < values[1, 0]


@pytest.mark.parametrize("domain", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_group_that_holds_nearly_everything_leaves_the_rest(norm: float, domain: bool) -> None:
    ball = Ball(0.5, norm, (0.0, 1.0) if domain else None)
    family = ball.at(torch.tensor([[0.5, 0.7, 0.9]]), torch.tensor([0, 1, 1]))
    coefficients = torch.tensor([[1e6, 3e-3, -4e-3]])
    alone = family.split(torch.tensor([1])).concretise(coefficients, torch.zeros(1, dtype=torch.int64))
    values = family.concretise(coefficients, torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(values[:, 1:2], alone, rtol=1e-6, atol=0 if not domain or norm == inf else 1e-7 * 5e5)


@pytest.mark.parametrize("mask", [None, "shared", "own"])
@pytest.mark.parametrize("norm", NORMS)
def test_rows_do_not_depend_on_how_many_go_at_once(
    norm: float, mask: Literal["shared", "own"] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make(2, norm, rows=7, mask=mask)
    at_once = case.suprema()
    monkeypatch.setattr(concretise, "_CHUNK_COEFFICIENTS", dict.fromkeys(NORMS, 12))
    assert torch.equal(case.suprema(), at_once)


def test_a_radius_a_variable_is_a_box() -> None:
    family = Ball(torch.tensor([[0.1, 0.2, 0.0]]), inf).at(torch.zeros(2, 3), torch.tensor([0, 1, 2]))
    values = family.concretise(torch.tensor([[1.0, -2.0, 5.0]]), torch.tensor([1]))
    torch.testing.assert_close(values, torch.tensor([[0.5, 0.4, 0.1, 0.5]]))


def test_a_radius_a_sample_scales_its_rows() -> None:
    family = Ball(torch.tensor([1.0, 3.0]), 2).at(torch.zeros(2, 2))
    values = family.concretise(torch.tensor([[3.0, 4.0]] * 2), torch.tensor([1, 0]))
    torch.testing.assert_close(values, torch.tensor([[15.0], [5.0]]))
