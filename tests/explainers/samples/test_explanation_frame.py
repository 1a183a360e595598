"""Tidy frames of explanations: each number is that of its group and sample."""

import math
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

from proofmap.errors import InputError
from proofmap.explainers.origin import Origin, Source
from proofmap.explainers.samples.explanation_frame import FRAME_COLUMNS, score_ranks
from tests.explainers.making import make, make_signed, ranked


def test_a_row_for_each_group_of_each_sample() -> None:
    errors = torch.rand(3, 5)
    e = make(errors=errors)
    frame = e.to_frame()
    assert tuple(frame.columns) == FRAME_COLUMNS
    assert len(frame) == 15
    for row in frame.itertuples():
        place = (row.sample, row.group)
        assert row.score == float(e.scores[place])
        assert (row.low, row.high) == tuple(e.intervals[place].tolist())
        assert row.proven == bool(e.proven_scores[place])
        assert row.standard_error == float(errors[place])
        assert row.variables == int((e.mask == row.group).sum())
        assert row.rank == 1 + int((e.scores[row.sample] > e.scores[place]).sum())
        assert (row.target, row.predicted) == (int(e.target[row.sample]), int(e.predicted[row.sample]))
        assert (row.method, row.guarantee) == ("EVA", "certified")
    assert set(frame["proven"]) == {False}  # upper bounds alone prove no score


def test_intervals_and_proofs_of_searched_scores() -> None:
    frame = ranked([3.0, 0.0, 1.0], 0.5).to_frame()
    assert frame["proven"].tolist() == [True, False, True]
    assert frame["rank"].tolist() == [1, 3, 2]
    np.testing.assert_allclose(frame["low"], [2.5, 0.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(frame["high"], [3.5, 0.5, 1.5], atol=1e-12)


def test_scores_without_bounds_have_infinite_ends() -> None:
    e = make()
    frame = replace(e, guarantee="sampled", overlap=replace(e.overlap, certified=False)).to_frame()
    assert set(frame["low"]) == {-math.inf}
    assert set(frame["high"]) == {math.inf}
    assert frame["standard_error"].isna().all()


def test_groups_that_a_sample_does_not_have_get_no_row() -> None:
    mask = make().mask.repeat(3, 1, 1, 1)
    mask[1] = mask[1] % 2  # sample 1 has the groups 0 and 1 only
    frame = make(mask=mask).to_frame()
    assert frame[frame["sample"] == 1]["group"].tolist() == [0, 1]
    assert frame[frame["sample"] == 1]["rank"].tolist() in ([1, 2], [2, 1])
    assert len(frame) == 12


def test_names_and_labels_come_from_the_origin() -> None:
    columns = ("age", "income", "city=A", "city=B")
    origin = Origin(Source("net"), (Source("a"), Source("b")), labels=(1, None), columns=columns)
    mask = torch.tensor([[0, 1, 2, 2]])
    frame = make((2, 4), 3, mask=mask, origin=origin).to_frame()
    assert frame["name"].tolist() == ["age", "income", "city=A, city=B"] * 2
    assert frame["label"].tolist()[:3] == [1, 1, 1]
    assert pandas.isna(frame["label"].tolist()[3])
    assert make((2, 4), 3, mask=mask).to_frame(list("wxyz"))["name"].tolist()[:3] == ["w", "x", "y, z"]


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"got 2 names for the columns of samples \(4,\)"):
        make((2, 4), 3).to_frame(["a", "b"])
    with pytest.raises(InputError, match="got 16 names"):
        make().to_frame([str(k) for k in range(16)])


def test_ranks() -> None:
    nan = math.nan
    assert score_ranks(torch.tensor([0.5, 2.0, 0.5, -3.0]), signed=False) == [2, 1, 2, 4]
    assert score_ranks(torch.tensor([0.5, 2.0, 0.5, -3.0]), signed=True) == [3, 2, 3, 1]
    assert score_ranks(torch.tensor([nan, 1.0, 2.0]), signed=False) == [None, 2, 1]
    assert make_signed().to_frame().groupby("sample")["rank"].max().tolist() == [5, 5, 5]
