"""The outcome of a verdict follows from the bounds of the overlap, and so does the point that refutes a decision."""

import math
from dataclasses import replace
from typing import Any

import pytest

from proofmap.text.verdict import Kind, Outcome, OverlapBounds, Verdict, Witness


@pytest.mark.parametrize(
    ("kind", "known", "outcome"),
    [
        ("decision", {"upper": -1.0}, "proven"),
        ("decision", {"upper": 0.0}, "undecided"),
        ("decision", {"upper": 0.1}, "undecided"),
        ("decision", {"upper": 0.1, "attacked": 0.05}, "refuted"),
        ("decision", {"sampled": -0.5}, "unproven"),
        ("decision", {"sampled": 0.5}, "refuted"),
        ("decision", {"estimate": -0.5}, "unproven"),
        ("decision", {"estimate": 0.5}, "unproven"),
        ("decision", {}, "unproven"),
        ("own", {"upper": -1.0}, "aside"),
        ("other", {"upper": -1.0}, "aside"),
        ("smoothed", {"upper": -0.1}, "probable"),
        ("smoothed", {"upper": 0.1}, "undecided"),
    ],
)
def test_the_outcome_follows_from_the_bounds(kind: Kind, known: dict[str, Any], outcome: Outcome) -> None:
    assert Verdict.over(kind, (OverlapBounds(-2.0, **known),)).outcome == outcome


def test_a_targeted_decision_is_proven_if_both_halves_are() -> None:
    raised, lowered = OverlapBounds(-2.0, upper=-1.0, half="+"), OverlapBounds(-2.0, upper=1.0, half="-")
    both = Verdict.over("targeted", (raised, replace(lowered, upper=-0.5)))
    assert (both.outcome, both.halves) == ("proven", ("proven", "proven"))
    one = Verdict.over("targeted", (raised, lowered))
    assert (one.outcome, one.halves) == ("undecided", ("proven", "undecided"))
    assert Verdict.over("decision", (raised,)).halves == ()


@pytest.mark.parametrize(
    ("known", "witness"),
    [
        ({"nominal": 0.5, "upper": 1.0}, "input"),
        ({"sampled": 0.5}, "sample"),
        ({"searched": 0.5, "upper": 1.0}, "search"),
        ({"searched": 0.5, "attacked": 0.75, "upper": 1.0}, "attack"),
        ({"upper": 1.0}, None),
    ],
)
def test_the_witness_is_the_point_with_the_largest_overlap(known: dict[str, Any], witness: Witness | None) -> None:
    assert Verdict.over("decision", (OverlapBounds(**{"nominal": -2.0, **known}),)).witness == witness


def test_the_lower_bound_is_the_largest_known_value() -> None:
    assert OverlapBounds(-2.0, sampled=-1.0, attacked=math.nan).lower == -1.0
    assert OverlapBounds(math.nan).lower == -math.inf
    assert OverlapBounds(-2.0, upper=1.0, attacked=0.5).gap == 0.5
    assert OverlapBounds(-2.0).gap is None
