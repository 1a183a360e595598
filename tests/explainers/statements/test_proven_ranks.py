"""Proven ranks: the sentence on the most important groups claims no more than is proven."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from proofmap.explainers.statements.proven_ranks import noun, ranks, searched
from tests.explainers.making import make, ranked, two_sided


def test_all_of_the_largest_are_proven() -> None:
    found = ranks(ranked([5, 1, 4, 2, 3, 0], 0.1), 0)
    assert (found.count, found.most, found.proven, found.open) == (6, 3, (0, 2, 4), ())
    assert found.sentence == "these 3 of 6 columns are proven to matter most"


def test_at_most_ten_of_many_groups_are_the_largest() -> None:
    grid = {"groups": "Grid(rows=5, columns=5)"}
    e = ranked([float(k) for k in range(25)], 0.1, (1, 1, 10, 10), settings=grid)
    assert ranks(e, 0).proven == tuple(range(24, 14, -1))
    assert ranks(e, 0).sentence == "these 10 of 25 cells are proven to matter most"


def test_some_of_the_largest_are_proven() -> None:
    found = ranks(ranked([5, 1, 4, 2, 2.05, 0], 0.1), 0)
    assert (found.proven, found.open) == ((0, 2), (4,))
    assert found.sentence == "2 of 6 columns are proven to be among the 3 that matter most"
    assert ranks(ranked([5, 2, 2, 2, 2, 2], 0.1), 0).sentence == (
        "1 of 6 columns is proven to be among the 3 that matter most"
    )


def test_one_matters_most() -> None:
    assert ranks(ranked([5, 1, 2], 0.1), 0).sentence == "this 1 of 3 columns is proven to matter most"


@pytest.mark.parametrize("e", [ranked([5, 4, 3, 2], 20), ranked([5], 0.1), make((1, 6), 6)])
def test_there_is_no_sentence_without_a_proof(e: Any) -> None:
    assert (ranks(e, 0).proven, ranks(e, 0).sentence) == ((), "")


def test_groups_that_a_sample_lacks_do_not_count() -> None:
    over = two_sided((0, 0.1), [(-3, -2.9), (-1, -0.9), (0, 0.1), (0, 0.1)])
    e = make((1, 4), 4, dtype=torch.float64, scores=over.drop, overlap=over, mask=torch.tensor([[0, 1, 1, 0]]))
    assert ranks(e, 0).sentence == "this 1 of 2 groups is proven to matter most"


def test_a_search_is_recognised_by_its_lower_bounds() -> None:
    assert searched(ranked([1, 2], 0.1))
    assert not searched(make())
    bounded = make((1, 2), 2)
    assert searched(replace(bounded, overlap=replace(bounded.overlap, drops=torch.tensor([[[0.0, 9.0]] * 2]))))
    assert not searched(replace(ranked([1, 2], 0.1), guarantee="sampled", overlap=make((1, 2), 2).overlap))


@pytest.mark.parametrize(
    ("shape", "groups", "kind", "name"),
    [
        ((1, 6), 6, None, "column"),
        ((1, 6), 3, None, "group"),
        ((1, 1, 4, 4), 16, "Pixels()", "pixel"),
        ((1, 3, 4, 4), 16, "Pixels()", "pixel"),
        ((1, 1, 4, 4), 4, "Grid(rows=2, columns=2)", "cell"),
        ((1, 1, 4, 4), 4, "Superpixels(segments=4, compactness=10.0)", "superpixel"),
        ((1, 1, 4, 4), 4, "tensor (4, 4) sha256 00", "group"),
    ],
)
def test_the_word_for_a_group(shape: tuple[int, ...], groups: int, kind: str | None, name: str) -> None:
    assert noun(make(shape, groups, settings={"groups": kind})) == name
