"""The index of an explanation: numbers, slices, lists, masks, tensors, arrays and columns of frames."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.origin import Origin, Source
from proofmap.storage.hashing import hash_tensor
from tests.explainers.making import SIDES, TENSORS, make, make_signed

MASK = [True, False, True]
ORIGIN = Origin(Source("net"), tuple(map(Source, "abc")), labels=(7, None, 9))

INDICES: list[tuple[Any, list[int]]] = [
    ([2, 0], [2, 0]),
    ([-1], [2]),
    ([1, 1], [1, 1]),
    (MASK, [0, 2]),
    (torch.tensor([2, 0]), [2, 0]),
    (torch.tensor(MASK), [0, 2]),
    (torch.tensor(1), [1]),
    (np.array([2, -3], dtype=np.int32), [2, 0]),
    (np.array(MASK), [0, 2]),
    (np.int64(2), [2]),
    (pandas.Series(MASK), [0, 2]),
    (range(2), [0, 1]),
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("which", "positions"), INDICES, ids=[repr(which) for which, _ in INDICES])
def test_every_part_follows_the_index(which: Any, positions: list[int], own: bool) -> None:
    e = make_signed(settings={"eps": [0.1, 0.2, 0.3]}, origin=ORIGIN, errors=torch.rand(3, 5))
    if own:
        e = replace(e, mask=e.mask.repeat(3, 1, 1, 1))
    part = e[which]
    for name in (*TENSORS, "errors"):
        shared = name == "mask" and not own
        assert torch.equal(getattr(part, name), e.mask if shared else getattr(e, name)[positions])
    for whole, some in ((e.overlap, part.overlap), (e.opposite, part.opposite)):
        assert whole is not None
        assert some is not None
        assert all(torch.equal(getattr(some, name), getattr(whole, name)[positions]) for name in SIDES)
    assert part.settings["eps"] == [[0.1, 0.2, 0.3][k] for k in positions]
    assert part.origin is not None
    assert [source.name for source in part.origin.samples] == ["abc"[k] for k in positions]
    assert [part.label(k) for k in range(len(part))] == [[7, None, 9][k] for k in positions]
    assert part.input_hash == hash_tensor(e.x[positions])


def test_the_ball_follows_the_index() -> None:
    """The certificate of a chosen sample is about the sample's own radius."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    radii = torch.tensor([0.01, 0.02, 0.03])
    found = pm.EVA(model, pm.Ball(radii), progress=False).explain(torch.rand(3, 4))[[2, 0]]
    assert found.made_from is not None
    assert torch.equal(torch.as_tensor(found.made_from[1].eps), radii[[2, 0]])


@pytest.mark.parametrize("which", [[3], [0, -4], torch.tensor([0, 7]), np.array([5])])
def test_a_missing_sample_is_an_index_error(which: Any) -> None:
    with pytest.raises(IndexError, match=r"got sample -?\d, expected one of 3"):
        make()[which]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([True, False], "got a mask of 2 entries, expected one for each of 3 samples"),
        (torch.ones(4, dtype=torch.bool), "got a mask of 4 entries"),
        (torch.tensor([True]), "got a mask of 1 entries, expected one for each of 3 samples"),
        (torch.tensor(True), r"got an index of bool and shape \(\)"),
        ([0.5], r"got an index of float64 and shape \(1,\), expected a number, a slice, a list"),
        ([[0, 1]], r"got an index of int64 and shape \(1, 2\)"),
        ((0, 1), r"got the index \(0, 1\), expected a number"),
        (True, "got the index True"),
        ("first", "got the index 'first'"),
        (None, "got an index of object"),
        ([[0], [0, 1]], "got an index of type list"),
        ([], "at least one sample"),
        ([False] * 3, "got an index that chooses none of 3 samples, expected at least one sample"),
    ],
)
def test_other_indices_are_refused(which: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()[which]


def test_a_mask_of_one_sample_is_no_number() -> None:
    """torch takes tensor([False]) for the number 0."""
    one = make()[1]
    assert torch.equal(one[torch.tensor([True])].x, one.x)
    with pytest.raises(InputError, match="chooses none of 1 samples"):
        one[torch.tensor([False])]
    assert torch.equal(make()[torch.tensor(1)].x, one.x)
    assert torch.equal(make()[torch.tensor([1])].x, one.x)
