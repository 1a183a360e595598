"""Scores that are too near to be told apart: which are ties, how that is said, and that it is drawn."""

from dataclasses import replace
from io import BytesIO

import torch
from PIL import Image

import proofmap as pm
from proofmap.explainers.statements.proven_ranks import standing
from proofmap.plots.figure_titles import title
from proofmap.plots.score_chart import bars_of
from tests.explainers.making import make

ERRORS = torch.tensor([[0.1, 0.1, 0.1, 0.1, 0.1]])


def means(*scores: float) -> pm.Explanation:
    return make(
        (1, 1, 5, 5),
        5,
        scores=torch.tensor([scores], dtype=torch.float32),
        guarantee="sampled",
        errors=ERRORS,
        method="SmoothEVA",
    )


def test_neighbours_whose_intervals_overlap_are_ties() -> None:
    """1.96 errors to either side: 0.39 apart is told apart, 0.38 is not."""
    assert means(5, 1, 4, 1.38, 3).ties.tolist() == [[False, True, False, True, False]]
    assert means(5, 1, 4, 1.40, 3).ties.tolist() == [[False] * 5]
    assert means(1, 1.3, 1.6, 1.9, 2.2).ties.tolist() == [[True] * 5]
    assert make().ties.tolist() == [[False] * 5] * 3


def test_ties_are_said() -> None:
    assert standing(means(5, 1, 4, 1.38, 3), 0) == (
        "3 of 5 groups differ significantly from their neighbours in rank (95 %); the others are ties"
    )
    assert standing(means(1, 2, 3, 4, 5), 0) == "all 5 groups differ significantly from their neighbours in rank (95 %)"
    assert standing(means(1, 1, 1, 1, 1), 0) == (
        "none of 5 groups differ significantly from their neighbours in rank (95 %): all are ties"
    )
    assert standing(means(9, 1.1, 1.2, 1.3, 1.4), 0) == (
        "1 of 5 groups differs significantly from its neighbours in rank (95 %); the others are ties"
    )
    assert standing(make(), 0) == ""
    assert "the others are ties" in title(means(5, 1, 4, 1.38, 3), 0, None)


def test_ties_are_drawn() -> None:
    e = means(5, 1, 4, 1.38, 3)
    bars = bars_of(e, 0, [0, 2, 4, 3, 1], known=False)
    assert bars.solid == [True, True, True, False, False]
    assert bars.intervals is not None
    torch.testing.assert_close(torch.tensor(bars.intervals[0]), torch.tensor([5 - 0.196, 5 + 0.196]).double())
    with_chart, without = (Image.open(BytesIO(one.plot()._repr_png_())).size for one in (e, replace(e, errors=None)))
    assert with_chart[1] > without[1] + 100
    texts = [text.get_text() for legend in e.plot().legends for text in legend.get_texts()]
    assert texts == ["differs from its neighbours in rank", "a tie", "95 % confidence interval of the mean"]


def test_what_decides_nothing_refutes_nothing() -> None:
    e = means(5, 1, 4, 1.38, 3)
    e = replace(e, settings={**e.settings, "objective": "class"}, overlap=replace(e.overlap, full=torch.tensor([3.0])))
    words = "class 0 · no verdict: the objective that was bounded for the ball (ε = 0.01 in L∞"
    assert title(e, 0, None).startswith(words)
    assert "≥ 3.00 (from samples)" in title(e, 0, None)
    assert "refuted" not in title(e, 0, None)


def test_a_sum_that_was_not_reached_is_said() -> None:
    e = replace(means(5, 1, 4, 1, 3), errors=None, method="PathEVA")
    whole = replace(e, overlap=replace(e.overlap, full=e.overlap.nominal + 14))
    assert "; the scores sum to 14.00, the whole gain of the attack" in title(whole, 0, None)
    short = replace(e, overlap=replace(e.overlap, full=e.overlap.nominal + 14.01))
    assert "; the scores sum to 14.0000, but the attack gained 14.0100" in title(short, 0, None)
