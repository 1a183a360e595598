"""Explanations: what fits together, and what the part of one is."""

import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.explanation import spread
from proofmap.storage.hashing import hash_tensor
from tests.explainers.making import SIDES, TENSORS, bounds, content, make, make_signed


def test_content_leaves_nothing_out() -> None:
    assert content(make()).keys() == set(Explanation.__dataclass_fields__) - {"made_from"}  # which no file holds


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"guarantee": "proven"}, r"got guarantee='proven', expected one of 'certified', 'probable'"),
        ({"method": None}, r"got method=None, expected text"),
        ({"seed": 0.5}, r"got seed=0.5, expected a whole number, or None"),
        ({"seconds": -1.0}, r"got seconds=-1.0, expected a finite number >= 0"),
        ({"seconds": math.nan}, r"got seconds=nan"),
        ({"signed": 1}, r"got signed=1, expected True or False"),
        ({"settings": {"ball": {"norm": math.inf}}}, r"settings\['ball'\]\['norm'\] is inf, .* write it as text"),
        ({"settings": {"eps": [torch.ones(1)]}}, r"settings\['eps'\]\[0\] is a Tensor, expected a JSON value"),
        ({"settings": {1: 2}}, r"settings has the key 1, expected text"),
        ({"settings": ["eps"]}, r"got settings=\['eps'\], expected a mapping"),
        ({"versions": {"torch": 2}}, r"got versions=.*, expected text"),
        ({"x": torch.rand(3)}, r"x has shape \(3,\), expected \(N, \*shape\)"),
        ({"x": torch.rand(0, 4)}, r"x has shape \(0, 4\), .* at least one sample"),
        ({"x": torch.rand(2, 1, 4, 4)}, r"scores has shape \(3, 5\), expected \(2, 5\) for x of \(2, 1, 4, 4\)"),
        ({"attributions": torch.rand(3, 4, 4)}, r"attributions has shape \(3, 4, 4\), expected \(3, 1, 4, 4\)"),
        ({"attributions": torch.rand(3, 1, 4, 4)}, r"make them with spread\(scores, mask\)"),
        ({"attributions": torch.rand(3, 1, 4, 4).double()}, r"make them with spread\(scores, mask\)"),
        ({"target": torch.tensor([1])}, r"target has shape \(1,\), expected \(3,\)"),
        ({"predicted": torch.rand(3)}, r"predicted has type torch.float32, expected torch.int64"),
        ({"x": torch.ones(3, 1, 4, 4, dtype=torch.int64)}, r"x has type torch.int64, expected a floating-point type"),
        ({"overlap": bounds(torch.rand(3, 4))}, r"overlap.frozen has shape \(3, 4\), expected \(3, 5\) or \(3, 0\)"),
        ({"overlap": bounds(torch.rand(3, 5), certified=False)}, r"guarantee='certified' with an overlap that is not"),
        ({"opposite": bounds(torch.rand(3, 5))}, r"two half balls with signed=False"),
        ({"opposite": bounds(torch.rand(2, 5)), "signed": True}, r"opposite.full has shape \(2,\), expected \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make(**changes)


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_variable_in_no_group_is_refused(wrong: int) -> None:
    good = make()
    mask = good.mask.clone()
    mask[0, 0, 0, 0] = wrong
    with pytest.raises(InputError, match=r"mask has ids from -?\d to \d, expected 0 to 4"):
        replace(good, mask=mask)


def test_a_mask_needs_the_sample_dimension() -> None:
    good = make()
    with pytest.raises(InputError, match=r"mask has shape \(1, 4, 4\), expected \(3, 1, 4, 4\) or \(1, 1, 4, 4\)"):
        replace(good, mask=good.mask[0])


def test_an_explanation_does_not_change() -> None:
    e = make()
    with pytest.raises(FrozenInstanceError):
        e.method = "other"  # type: ignore[misc]


def test_settings_are_copied_as_json_keeps_them() -> None:
    given_: dict[str, Any] = {"domain": (0.0, 1.0), "inner": {"steps": 3}}
    e = make(settings=given_)
    given_["inner"]["steps"] = 4
    assert e.settings == {"domain": [0.0, 1.0], "inner": {"steps": 3}}


def test_scores_without_a_meaning_are_kept() -> None:
    assert make(scores=torch.full((3, 5), math.nan)).attributions.isnan().all()


@given(st.integers(1, 3), st.integers(1, 6), st.booleans(), st.integers(0, 99))
def test_spread_gives_each_variable_its_groups_score(count: int, groups: int, own: bool, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    mask = torch.randint(groups, (count if own else 1, 2, 3), generator=random)
    scores = torch.rand(count, groups, generator=random)
    found = spread(scores, mask)
    assert found.shape == (count, 2, 3)
    for n in range(count):
        for i in range(2):
            for j in range(3):
                assert found[n, i, j] == scores[n, mask[n if own else 0, i, j]]


@pytest.mark.parametrize("made", [make, make_signed])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("which", [0, 2, -1, -3, slice(1, 3), slice(None, None, 2), slice(-1, None)])
def test_a_part_explains_its_own_samples(made: Callable[..., Explanation], own: bool, which: int | slice) -> None:
    e = made()
    if own:
        e = replace(e, mask=e.mask.repeat(3, 1, 1, 1))
    part = e[which]
    index = torch.arange(3)[which].reshape(-1)
    assert len(part) == len(index)
    for name in TENSORS:
        shared = name == "mask" and not own
        assert torch.equal(getattr(part, name), e.mask if shared else getattr(e, name)[index])
    for whole, some in ((e.overlap, part.overlap), (e.opposite, part.opposite)):
        assert (whole is None) == (some is None)
        if whole is not None and some is not None:
            assert all(torch.equal(getattr(some, name), getattr(whole, name)[index]) for name in SIDES)
    assert part.input_hash == hash_tensor(e.x[index])
    assert part.settings == e.settings


def test_samples_one_by_one() -> None:
    e = make()
    assert [float(part.overlap.full) for part in e] == e.overlap.full.tolist()


@pytest.mark.parametrize("k", [3, -4])
def test_a_sample_that_is_not_there(k: int) -> None:
    with pytest.raises(IndexError, match=f"got sample {k}, expected one of 3"):
        make()[k]


def test_no_samples_are_no_explanation() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        make()[3:]


def test_repr() -> None:
    assert repr(make()) == (
        "Explanation(3 samples of (1, 4, 4), 5 groups, method='EVA', AO <= -3.00 to 2.00, guarantee='certified', "
        "floating-point rounding is not covered)"
    )
    assert repr(replace(make(), overlap=replace(make().overlap, rigorous=True))).endswith("guarantee='certified')")
    assert "1 sample of (1, 4, 4)" in repr(make()[0])
    assert "AO <= -3.00, " in repr(make()[0])
    assert "AO >= " in repr(make(guarantee="sampled"))
    assert "AO about " in repr(make(guarantee="none"))


def test_explanations_travel_between_processes() -> None:
    e = make_signed()
    assert content(pickle.loads(pickle.dumps(e))) == content(e)  # noqa: S301
