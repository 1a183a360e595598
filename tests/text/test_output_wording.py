"""The wording of an output's change: outward numbers, units, and no word about decisions."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from proofmap.text.guarantee_statements import statements
from proofmap.text.output_wording import (
    change_column,
    change_text,
    explained_output,
    range_text,
    value_text,
    within_text,
)
from proofmap.text.verdict import OverlapBounds, Verdict
from proofmap.text.verdict_wording import bound_text, clause
from proofmap.text.wording import bound_name, quantity_of
from proofmap.verify.objectives import Output

RISE = Output(0, "up", name="load", unit="MW")
BALL = "the ball (ε = 0.1 in L∞)"
PROVEN = OverlapBounds(0.0, upper=12.301, value=152.126)
SETTINGS: dict[str, Any] = {"objective": RISE.record(), "rigorous": True}


def test_a_bound_is_rounded_outward() -> None:
    assert change_text(RISE, PROVEN, BALL, "certified") == f"it rises by at most 12.31 MW in {BALL}"
    searched = replace(PROVEN, searched=12.299)
    assert change_text(RISE, searched, BALL, "certified") == f"its largest rise in {BALL} lies in [12.29, 12.31] MW"
    both = Output(0, "both")
    assert change_text(both, PROVEN, "the ball", "certified") == "it changes by at most 12.31 in the ball"
    assert range_text(RISE, 152.126, 12.301) == "at most 164.43 MW"
    assert range_text(both, 152.126, 12.301) == "from 139.82 to 164.43"
    assert value_text(RISE, 152.126) == "load = 152.13 MW"


@pytest.mark.parametrize(
    ("bounds", "guarantee", "text"),
    [
        (OverlapBounds(0.0, sampled=3.019), "sampled", "its largest rise in the ball is at least 3.01 MW, which"),
        (OverlapBounds(0.0, estimate=3.019), "none", "its largest rise in the ball is estimated as 3.02 MW"),
        (OverlapBounds(0.0), "none", "no bound of its largest rise in the ball is known"),
    ],
)
def test_other_numbers_say_what_they_are(bounds: OverlapBounds, guarantee: Any, text: str) -> None:
    assert change_text(RISE, bounds, "the ball", guarantee).startswith(text)


def test_statements_are_about_the_output_alone() -> None:
    verdict = Verdict.over("output", (replace(PROVEN, searched=12.0),))
    said = statements(verdict, "class 0", "class 0", "certified", SETTINGS)
    text = " ".join([said.short, *said.guaranteed, *said.open])
    assert verdict.outcome == "bounded"
    assert said.guaranteed == (
        "Everywhere in the ball, the largest rise of load is at most 12.31 MW.",
        "Load = 152.13 MW at the input, and at most 164.43 MW in the ball.",
    )
    assert said.open == ("How far load falls.", "The exact number. It lies between 12.00 MW and the bound.")
    assert "class" not in text
    assert "decision" not in text.lower()


def test_a_sampled_output_is_not_proven() -> None:
    verdict = Verdict.over("output", (OverlapBounds(0.0, sampled=3.0),))
    said = statements(verdict, "class 0", "class 0", "sampled", SETTINGS)
    assert verdict.outcome == "reached"
    assert said.guaranteed[0].startswith("Nothing about the ball as a whole. Its largest rise")
    assert said.open == ("A bound of the largest rise of load.",)


def test_a_bound_without_rounding_errors_says_so() -> None:
    said = statements(Verdict.over("output", (PROVEN,)), "", "", "certified", {**SETTINGS, "rigorous": False})
    assert any("rounding" in line for line in said.open)


def test_an_infinite_bound_states_no_range() -> None:
    verdict = Verdict.over("output", (replace(PROVEN, upper=inf),))
    assert len(statements(verdict, "", "", "certified", SETTINGS).guaranteed) == 1


def test_names_in_tables() -> None:
    assert change_column(Output((1, slice(2, 5), slice(None)), "down")) == "fall_of_mean_of_output_1_2to5_to"
    assert bound_name("certified", RISE.record()) == "rise_of_output_0_upper_proven"
    assert bound_name("certified", "class") == "objective_class_upper_proven"
    assert quantity_of("certified", RISE.record()) == "the largest rise of load"
    assert bound_text(PROVEN, "certified", SETTINGS) == "rise ≤ 12.31 MW"
    assert explained_output({"objective": "margin"}) is None


@pytest.mark.parametrize(("verdict", "start"), [("proven", "proven: no input in"), ("refuted", "refuted: an input in")])
def test_answers_about_a_limit(verdict: str, start: str) -> None:
    assert within_text(RISE, "1/2", verdict, BALL) == f"{start} {BALL} raises it by more than 1/2 MW"
    assert within_text(RISE, "1/2", "undecided", BALL).startswith("undecided: neither proven nor refuted that no input")


def test_the_clause_names_no_class() -> None:
    assert clause(Verdict.over("output", (PROVEN,)), BALL) == f"one output was bounded for {BALL}"
