"""The wording of verdicts: one clause in figures, commands, runs and reports, and no claim beyond the bounds."""

from typing import Any, get_args

import pytest

from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.verdict import Kind, Outcome, OverlapBounds, Verdict
from proofmap.text.verdict_wording import (
    BADGES,
    CERTIFIED_ACCURACY,
    FIRST_WORDS,
    GLYPHS,
    TEXT_SIGNS,
    bound_text,
    clause,
    counted_proven,
    counted_refuted,
    refuted,
    sentence,
    unchanged,
)

BALL = "the ball (ε = 0.01 in L∞)"


def halves(raised: float, lowered: float) -> Verdict:
    """The verdict on a targeted map with these upper bounds."""
    sides = (OverlapBounds(-2.0, upper=raised, half="+"), OverlapBounds(-2.0, upper=lowered, half="-"))
    return Verdict.over("targeted", sides)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict("decision", "proven"), f"proven: no input in {BALL} changes the class"),
        (Verdict("decision", "refuted", "attack"), f"refuted: an input in {BALL} has another class"),
        (Verdict("decision", "refuted", "search"), f"refuted: an input in {BALL} has another class"),
        (Verdict("decision", "refuted", "sample"), f"refuted: a sample from {BALL} has another class"),
        (Verdict("decision", "refuted", "input"), "refuted: the input itself has another class"),
        (Verdict("decision", "undecided"), f"undecided: neither proven nor refuted for {BALL}"),
        (Verdict("decision", "unproven"), f"NOT proven: no upper bound is known for {BALL}"),
        (Verdict("own", "aside"), "no verdict: the input already has this class"),
        (Verdict("other", "aside"), f"no verdict: the objective that was bounded for {BALL} does not decide the class"),
        (Verdict("smoothed", "probable"), f"probable: most noisy copies of every input in {BALL} have the class"),
        (
            Verdict("smoothed", "undecided"),
            f"undecided: it is not known whether most noisy copies of every input in {BALL} have the class",
        ),
        (halves(-1, -1), f"proven: neither raising nor lowering values alone, in {BALL}, changes the class to dog"),
        (
            halves(-1, 1),
            f"undecided: in {BALL}, raising values alone is proven not to change the class to dog; "
            "lowering them is not",
        ),
        (
            halves(1, -1),
            f"undecided: in {BALL}, lowering values alone is proven not to change the class to dog; "
            "raising them is not",
        ),
        (halves(1, 1), f"undecided: neither proven nor refuted for {BALL}"),
    ],
)
def test_a_verdict_is_a_sentence(verdict: Verdict, said: str) -> None:
    assert sentence(verdict, BALL, aim="dog") == said
    assert said.partition(": ")[2] == clause(verdict, BALL, "dog")


def test_a_proof_says_whether_rounding_is_covered() -> None:
    proven, undecided = Verdict("decision", "proven"), Verdict("decision", "undecided")
    assert sentence(proven, BALL, rigorous=False).startswith(f"proven ({NOT_COVERED}): ")
    assert sentence(undecided, BALL, rigorous=False) == sentence(undecided, BALL)
    assert f"is proven ({NOT_COVERED}) not to change" in sentence(halves(-1, 1), BALL, rigorous=False)
    assert sentence(undecided, BALL, rounding=True).startswith("undecided, rounding: ")
    assert sentence(proven, BALL, rounding=True) == sentence(proven, BALL)
    assert counted_proven("ε = 0.01", rigorous=False) == f"proven for ε = 0.01 ({NOT_COVERED})"
    assert counted_proven("ε = 0.01", rigorous=True) == "proven for ε = 0.01"
    accuracy = counted_proven("ε = 0.01", rigorous=True, words=CERTIFIED_ACCURACY)
    assert accuracy == "certified accuracy, proven and predicted as labelled for ε = 0.01"


def test_counts_and_certificates_have_the_same_clauses() -> None:
    assert counted_refuted("input") == f"refuted, {refuted('input')}"
    assert clause(Verdict("decision", "proven"), BALL) == unchanged(BALL)
    assert unchanged("the half δ >= 0") == "no input in the half δ >= 0 changes the class"


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_every_verdict_has_a_badge_a_sign_and_a_word(kind: Kind, outcome: Outcome) -> None:
    assert BADGES[outcome]
    assert GLYPHS[outcome]
    assert sentence(Verdict(kind, outcome), BALL).startswith(f"{FIRST_WORDS[outcome]}: ")


@pytest.mark.parametrize(
    ("bounds", "guarantee", "settings", "said"),
    [
        ({"upper": -3.201}, "certified", {}, "AO(B) <= -3.20"),
        ({"upper": -3.201, "searched": -3.309}, "certified", {}, "AO(B) in [-3.31, -3.20]"),
        ({"upper": 0.5}, "certified", {"objective": "mean"}, "objective 'mean' <= 0.50"),
        ({"sampled": -3.209}, "sampled", {}, "AO(B) >= -3.21 (from samples)"),
        ({"estimate": -3.204}, "none", {}, "AO(B) about -3.20 (estimated)"),
        (
            {"upper": -0.321},
            "probable",
            {"level": 0.99, "sigma": 0.25},
            "smoothed AO(B) <= -0.32 with probability 99 %, noise σ = 0.25; nothing is proven about the network itself",
        ),
        ({}, "certified", {}, "AO(B) is unknown"),
    ],
)
def test_the_kind_names_a_bound(bounds: dict[str, Any], guarantee: Any, settings: dict[str, Any], said: str) -> None:
    assert bound_text(OverlapBounds(-9.0, **bounds), guarantee, settings, "AO(B)", TEXT_SIGNS) == said
