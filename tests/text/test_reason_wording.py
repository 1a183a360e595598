"""Sentences about sufficient sets claim no more than the set supports."""

from dataclasses import replace

import pytest

from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.reason_wording import (
    ReasonFacts,
    counted_reasons,
    group_clause,
    open_sentences,
    proof_sentence,
    proven_sentences,
    reason_sentences,
    short_clause,
    size_sentence,
    standing,
    title_clause,
)
from proofmap.verify.objectives import Output

OPEN = ReasonFacts(784, 39, 37, noun="pixel", ball="the ball (ε = 0.05 in L∞)")
MINIMAL = replace(OPEN, necessary=39)
PRESSURE = Output(0, "up", name="blood pressure", unit="mmHg")


def test_the_sentences_of_a_set_with_undecided_groups() -> None:
    assert reason_sentences(OPEN) == [
        "Of 784 pixels, 39 keep their values: these decide.",
        "Proven: no change of the other 745 pixels within the ball (ε = 0.05 in L∞) changes the class.",
        "37 kept pixels are necessary: freeing one more of them admits an adversarial example, which is stored.",
        "2 kept pixels are undecided: it is not known whether one of them can be freed as well.",
    ]
    assert [*proven_sentences(OPEN), *open_sentences(OPEN)] == reason_sentences(OPEN)
    assert title_clause(OPEN).endswith(
        "39 of 784 pixels decide over the ball (ε = 0.05 in L∞); 37 necessary, 2 undecided"
    )


def test_a_set_is_minimal_only_if_nothing_is_undecided() -> None:
    minimal = "The set is subset-minimal: no kept pixel can be freed as well."
    assert minimal in proven_sentences(MINIMAL)
    assert not any("minimal" in one for one in [*reason_sentences(OPEN), title_clause(OPEN)])
    assert title_clause(MINIMAL).endswith("; subset-minimal")


@pytest.mark.parametrize("necessary", [37, 39])
@pytest.mark.parametrize("least", [0, 1, 38, 39])
def test_a_set_is_smallest_only_if_the_bound_meets_its_size(necessary: int, least: int) -> None:
    facts = replace(OPEN, necessary=necessary, least=least)
    said = " ".join([*reason_sentences(facts), title_clause(facts), short_clause(facts), size_sentence(facts)])
    assert ("smallest" in said) == (least == 39)
    assert ("fewer than" in said) == (0 < least < 39)
    assert ("mixed-integer solver" in said) == (least > 0)
    if 0 < least < 39:
        assert size_sentence(facts) == f"39 pixels; no sufficient set has fewer than {least}"


def test_no_kept_group_is_the_whole_ball_and_the_smallest_set() -> None:
    none = replace(OPEN, kept=0, necessary=0)
    assert proven_sentences(none) == [
        "None of 784 pixels has to keep its value.",
        "Proven: no change within the ball (ε = 0.05 in L∞) changes the class.",
    ]
    assert title_clause(none).startswith("proven: no pixel has to keep its value; no change within the ball")
    assert standing(none) == "the empty set is the smallest"
    assert open_sentences(none) == []
    assert short_clause(none) == "no pixel has to keep its value"


def test_nothing_is_proven_if_all_groups_are_kept() -> None:
    every = replace(OPEN, groups=39)
    said = [*reason_sentences(every), title_clause(every), short_clause(every)]
    assert not any("proven" in one.lower().replace("no pixel is proven", "") for one in said)
    necessary = replace(every, necessary=39)
    assert title_clause(necessary) == "every pixel is necessary over the ball (ε = 0.05 in L∞)"
    assert proof_sentence(every) == "Nothing else can move: every pixel keeps its value."


def test_a_proof_says_whether_rounding_is_covered() -> None:
    for said in (title_clause, short_clause, proof_sentence):
        assert NOT_COVERED not in said(OPEN)
        assert NOT_COVERED in said(replace(OPEN, rigorous=False))


def test_points_within_rounding_errors_are_no_adversarial_examples() -> None:
    some, all_ = replace(MINIMAL, within_rounding=3), replace(MINIMAL, within_rounding=39)
    errors = "the class at the stored input is decided within the rounding errors that the proof covers."
    assert f"But for 3 of them, {errors}" in proven_sentences(some)
    assert "The set is subset-minimal: no kept pixel can be freed as well with these errors covered." in (
        proven_sentences(some)
    )
    assert standing(some) == "subset-minimal up to rounding errors"
    assert not any("adversarial example" in one for one in reason_sentences(all_))
    assert f"For all of them, {errors}" in proven_sentences(all_)
    assert group_clause(some, "row 3", adversarial=False, became="class 7") == (
        "row 3 freed as well: decided within rounding errors"
    )
    assert group_clause(some, "row 3", adversarial=True, became="class 7") == "row 3 freed as well: class 7"


def test_an_output_stays_below_its_limit() -> None:
    facts = ReasonFacts(5, 1, 1, noun="column", output=PRESSURE, within=0.5)
    assert proof_sentence(facts) == (
        "Proven: no change of the other 4 columns within the ball raises blood pressure by 0.5 mmHg or more."
    )
    assert proven_sentences(facts)[2] == (
        "1 kept column is necessary: freeing it as well admits a rise of blood pressure by more than 0.5 mmHg, which "
        "is stored."
    )
    assert group_clause(facts, "age", adversarial=True, became=None).endswith(
        "a rise of blood pressure by more than 0.5 mmHg"
    )


def test_sizes_of_some_sets() -> None:
    assert counted_reasons([3, 4, 8], "cell") == "mean 5.0, from 3 to 8 kept cells"
