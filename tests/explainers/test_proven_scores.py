"""Proven statements about scores: compared with all overlaps that lie between their bounds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.batching import Measured, score_of
from proofmap.plots.figure_titles import caption
from proofmap.verify.overlap import Overlap
from tests.explainers.making import Pair, make, make_signed, two_sided


def explained(over: Overlap, opposite: Overlap | None = None, **changes: Any) -> Explanation:
    """One sample whose scores are the drops of its overlaps."""
    scores = over.drop if opposite is None else over.drop - opposite.drop
    sides: dict[str, Any] = {"overlap": over, "opposite": opposite, "signed": opposite is not None}
    groups = scores.shape[1]
    return make((1, groups), groups, dtype=torch.float64, **{"scores": scores, **sides, **changes})


@st.composite
def overlaps(draw: st.DrawFn, groups: int) -> Overlap:
    """Both sides of AO(B) and of every AO(B_u), as any ball has them: what B_u reaches B reaches, and is proven for."""
    ends = [sorted(draw(st.lists(st.integers(0, 12), min_size=2, max_size=2))) for _ in range(groups)]
    frozen: list[Pair] = [(low, high) for low, high in ends]
    full = max(low for low, _ in frozen) + draw(st.integers(0, 3)), max(high for _, high in frozen)
    return two_sided((min(full), max(full)), frozen)


def worlds(over: Overlap) -> Iterator[Tensor]:
    """Drops (G,) that overlaps between the sides may have: those at the ends."""
    lower, upper = over.frozen_lower[0], over.frozen[0]
    for full in {float(over.full_lower), float(over.full)}:
        for which in product((False, True), repeat=len(lower)):
            yield full - torch.where(torch.tensor(which), upper, lower).clamp(max=full)  # B_u is part of B


@given(overlaps(groups=4), st.integers(1, 4))
def test_all_scores_that_are_possible(over: Overlap, k: int) -> None:
    e = explained(over)
    lower, upper = e.intervals[0].T
    every = torch.stack(list(worlds(over)))  # (W, G)
    assert bool((every >= lower).all())
    assert bool((every <= upper).all())
    torch.testing.assert_close(every.amin(0), lower)
    torch.testing.assert_close(every.amax(0), upper)
    assert torch.equal(e.proven_scores[0], (every != 0).all(0))
    assert torch.equal(e.order()[0], (every[:, :, None] > every[:, None, :]).all(0))
    others = (every[:, None, :] >= every[:, :, None]).sum(2) - 1  # (W, G) that reach a group
    assert torch.equal(e.top(k)[0], (others < k).all(0))


@given(overlaps(groups=3), overlaps(groups=3), st.integers(1, 3))
def test_all_scores_of_two_halves(added: Overlap, removed: Overlap, k: int) -> None:
    e = explained(added, removed)
    lower, upper = e.intervals[0].T
    every = torch.stack([plus - minus for plus in worlds(added) for minus in worlds(removed)])
    torch.testing.assert_close(every.amin(0), lower)
    torch.testing.assert_close(every.amax(0), upper)
    assert torch.equal(e.proven_scores[0], (lower > 0) | (upper < 0))
    assert torch.equal(e.order()[0], (every[:, :, None] > every[:, None, :]).all(0))
    sizes = every.abs()
    others = (sizes[:, None, :] >= sizes[:, :, None]).sum(2) - 1
    assert not bool((e.top(k)[0] & ~(others < k).all(0)).any())


def test_an_open_overlap_of_the_ball_hides_no_order() -> None:
    e = explained(two_sided((0, 9), [(-3, -2), (0, 0), (-1, -1)]))
    assert e.intervals[0].tolist() == [[2, 12], [0, 9], [1, 10]]
    assert e.order()[0].nonzero().tolist() == [[0, 1], [0, 2], [2, 1]]
    assert e.top(1)[0].tolist() == [True, False, False]
    assert e.top(2)[0].tolist() == [True, False, True]
    assert e.top(3)[0].tolist() == [True, True, True]
    assert e.proven_scores[0].tolist() == [True, False, True]


def test_signs_are_proven_and_sizes_compared() -> None:
    still = two_sided((0, 0), [(0, 0)] * 3)
    e = explained(two_sided((0, 0), [(0, 0), (-1, -1), (-5, -5)]), two_sided((0, 0), [(-3, -3), (0, 0), (-4, 0)]))
    assert e.intervals[0].tolist() == [[-3, -3], [1, 1], [1, 5]]
    assert e.proven_scores[0].tolist() == [True, True, True]
    assert e.top(2)[0].tolist() == [True, False, False]
    assert e.order()[0].nonzero().tolist() == [[1, 0], [2, 0]]
    assert not explained(still, still).proven_scores.any()


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_number_of_groups(k: Any) -> None:
    with pytest.raises(InputError, match=rf"got k={k}, expected a whole number of at least 1"):
        make().top(k)


def test_what_is_not_certified_proves_nothing() -> None:
    over = replace(two_sided((0, 0), [(-3, -3), (-2, -2)]), certified=False)
    unbounded = replace(two_sided((0, 0), []), frozen=torch.zeros(1, 0).double())
    for e in (explained(over, guarantee="sampled"), make((1, 2), 2, dtype=torch.float64, overlap=unbounded)):
        assert e.intervals.tolist() == [[[-torch.inf, torch.inf]] * 2]
        assert not e.proven_scores.any()
        assert not e.order().any()
        assert not e.top(1).any()


def test_what_rounding_may_have_made_is_not_proven() -> None:
    """Bounds and values come from float32: two groups that do nothing differ by a few units in the last place."""
    tiny = 3 * torch.finfo(torch.float32).eps
    over = two_sided((1 - tiny, 1), [(1 - 2 * tiny, 1 - 2 * tiny), (1, 1)])
    full, frozen, nominal = over.full.float(), over.frozen.float(), over.nominal.float()
    found = Overlap(full, frozen, nominal, over.target, True, full_lower=full, frozen_lower=frozen)
    e = make((1, 2), 2, scores=found.drop, overlap=found)
    assert float(e.intervals[0, 0, 0]) > 0
    assert not e.proven_scores.any()
    assert not e.order().any()


def test_scores_are_what_the_search_reached_while_the_sides_are_apart() -> None:
    """Two samples, one of which nothing was met: its scores are by the upper sides."""
    full, frozen = torch.tensor([9.0, 9.0]), torch.tensor([[5.0, 9.0], [5.0, 8.0]])
    lower, below = torch.tensor([1.0, -2.0]), torch.tensor([[-1.0, 0.5], [-2.0, -2.0]])
    over = Overlap(full, frozen, torch.tensor([-2.0, -2.0]), torch.tensor([0, 0]), True, lower, below)
    assert score_of(over).tolist() == [[2.0, 0.5], [4.0, 1.0]]
    inside = over.intervals
    assert bool(((inside[..., 0] <= score_of(over)) & (score_of(over) <= inside[..., 1])).all())
    assert score_of(replace(over, certified=False)).tolist() == over.drop.tolist()


def test_a_score_that_was_bounded_itself_is_no_number_that_is_excluded() -> None:
    over = two_sided((0, 2), [(-3, -1), (-1, 1)])
    assert score_of(over).tolist() == over.drop.tolist() == [[3, 1]]
    closer = replace(over, drops=torch.tensor([[[0.0, 2.5], [1.5, 9.0]]]))
    assert score_of(closer).tolist() == [[2.5, 1.5]]
    assert Measured.of(closer).scores.tolist() == [[2.5, 1.5]]
    assert Measured.of(closer, over).scores.tolist() == [[-0.5, 0.5]]
    e = explained(closer, scores=score_of(closer))
    assert e.intervals[0].tolist() == [[1, 2.5], [1.5, 3]]
    assert "score = AO(B) - AO(B_u)" in caption(e)


def test_a_bound_below_the_input_itself_proves_nothing() -> None:
    """In a ball of radius 0 all overlaps equal that at the input; bounds may be rounded to below it."""
    over = Overlap(torch.tensor([1.0]), torch.tensor([[0.9, 1.0]]), torch.tensor([1.0]), torch.tensor([0]), True)
    e = make((1, 2), 2, scores=over.drop, overlap=over)
    assert e.intervals[0, :, 0].tolist() == [0, 0]
    assert not e.order().any()


def test_a_group_that_a_sample_lacks_has_the_score_0() -> None:
    """Its column repeats AO(B), which may be open."""
    over = two_sided((0, 4), [(-1, -1), (0, 4), (0, 4)])
    e = make((1, 3), 3, dtype=torch.float64, scores=over.drop, overlap=over, mask=torch.tensor([[0, 1, 1]]))
    assert e.intervals[0].tolist() == [[1, 5], [0, 4], [0, 0]]


def test_bounds_without_a_search_say_little() -> None:
    """A score is at least 0, and at most what the bound is above the overlap at x."""
    model, ball = pm.zoo.mnist_mlp(), pm.Ball(0.01, domain=(0.0, 1.0))
    e = pm.EVA(model, ball, groups=pm.groups.grid(4), progress=False).explain(pm.data.digits()[0][:2])
    over = e.overlap
    assert (over.full_lower <= over.nominal).all()  # what it rounds at x counts too
    assert e.intervals[:, :, 0].abs().max() == 0
    torch.testing.assert_close(e.intervals[:, :, 1], over.full[:, None].double() - over.frozen_lower.double())
    assert not e.proven_scores.any()
    assert not e.order().any()
    assert not e.top(5).any()


def test_parts_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = torch.rand(9, generator=torch.Generator().manual_seed(0)).tolist()
    e = explained(two_sided((1, 1), [(value - 0.05, value) for value in frozen]))
    expected = e.top(4)
    assert 0 < int(expected.sum()) <= 4
    monkeypatch.setattr("proofmap.explainers.proven_scores._PAIRS_PER_PASS", 20)
    assert torch.equal(e.top(4), expected)


def test_samples_have_their_own() -> None:
    e = make_signed()
    for k, part in enumerate(e):
        assert torch.equal(part.intervals[0], e.intervals[k])
        assert torch.equal(part.order()[0], e.order()[k])
