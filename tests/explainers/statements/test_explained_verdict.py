"""The verdict on a sample of an explanation: its question, and the bounds that each kind of explanation gives."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_verdict import bounds_of, bounds_text, kind_of, verdict_of
from proofmap.text.verdict import Kind, OverlapBounds
from tests.explainers.making import make, make_signed, probable, two_sided


def searched(guarantee: str) -> Explanation:
    """Return one sample with the upper bound 0.5. A point reaches 0.25, and the input itself -0.75."""
    over = two_sided((0.25, 0.5), [(0.25, 0.5)])
    return make((1, 1), 1, dtype=torch.float64, scores=over.drop, overlap=over, guarantee=guarantee)


def test_the_question_follows_from_the_explanation() -> None:
    signed = make_signed((1, 1, 4, 4))
    kinds: list[tuple[Explanation, Kind]] = [
        (make((1, 1, 4, 4)), "decision"),
        (signed, "targeted"),
        (replace(signed, target=signed.overlap.target), "own"),
        (make((1, 1, 4, 4), settings={"objective": "mean"}), "other"),
        (probable(-0.5), "smoothed"),
    ]
    assert [kind_of(e) for e, _ in kinds] == [kind for _, kind in kinds]


@pytest.mark.parametrize(
    ("guarantee", "known"),
    [
        ("certified", {"upper": 0.5, "searched": 0.25}),
        ("none", {"estimate": 0.5, "searched": 0.25}),
        ("sampled", {"sampled": 0.5}),
    ],
)
def test_a_number_is_the_bound_that_its_guarantee_says(guarantee: str, known: dict[str, Any]) -> None:
    assert bounds_of(searched(guarantee)) == (OverlapBounds(-0.75, **known),)


def test_probable_bounds_have_a_probability_and_no_point_that_refutes() -> None:
    """A point of the network's ball says nothing about the smoothed classifier."""
    e = probable(0.5)
    e = replace(e, overlap=replace(e.overlap, full_lower=e.overlap.nominal + 0.25))
    (side,) = bounds_of(e)
    assert (side.upper, side.searched, side.level) == (0.5, None, "99.5 %")


def test_an_attack_refutes_what_the_bound_leaves_open() -> None:
    e = make((1, 1, 4, 4), overlap=two_sided((-1, 0.5), [(-1, 0.5)] * 5), scores=torch.zeros(1, 5))
    assert verdict_of(e).outcome == "undecided"
    assert (verdict_of(e, 0, 0.25).outcome, verdict_of(e, 0, 0.25).witness) == ("refuted", "attack")


def test_a_targeted_map_has_a_bound_for_each_half() -> None:
    raised, lowered = two_sided((-3, -2), [(-3, -2)]), two_sided((-4, -3.5), [(-4, -3.5)])
    sides: dict[str, Any] = {"overlap": raised, "opposite": lowered, "signed": True, "target": torch.tensor([1])}
    e = make((1, 1), 1, dtype=torch.float64, scores=raised.drop - lowered.drop, **sides)
    assert [side.half for side in bounds_of(e)] == ["+", "-"]
    assert verdict_of(e).halves == ("proven", "proven")
    assert bounds_text(e) == ("AO in [-3.00, -2.00]", "AO in [-4.00, -3.50]")
