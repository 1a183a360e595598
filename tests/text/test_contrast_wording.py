"""Sentences about contrastive sets claim no more than the sets support."""

from dataclasses import replace

import pytest

from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.contrast_wording import (
    COUNTED,
    ContrastFacts,
    changed_caption,
    contrast_clause,
    contrast_sentences,
    contrast_title,
    counted_contrasts,
    open_changes,
    proven_changes,
    size_clause,
)
from proofmap.verify.objectives import Output

BALL = "the ball (ε = 0.05 in L∞)"
FOUND = ContrastFacts(784, 3, 2, noun="pixel", ball=BALL, before="4", after="9")
PRESSURE = Output(0, "up", name="blood pressure", unit="mmHg")


def test_the_sentences_of_a_set_that_may_not_be_smallest() -> None:
    assert contrast_sentences(FOUND) == [
        f"Changing these 3 of 784 pixels within {BALL} can change the decision from 4 to 9: the changed input is "
        "stored.",
        "At least 2 pixels have to change: proven.",
        "Whether fewer than 3 pixels suffice was not decided.",
    ]
    assert [*proven_changes(FOUND), *open_changes(FOUND)] == contrast_sentences(FOUND)
    assert contrast_title(FOUND) == (
        f"changing 3 of 784 pixels can change the decision to 9 over {BALL}; not known to be smallest; at least 2 are "
        "needed: proven"
    )
    assert size_clause(FOUND) == "3 pixels; at least 2 are needed: proven"


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("least", [1, 2, 3])
def test_no_smaller_set_is_said_only_if_the_bound_meets_the_size(size: int, least: int) -> None:
    facts = replace(FOUND, size=size, least=min(size, least))
    said = " ".join([*contrast_sentences(facts), contrast_title(facts), contrast_clause(facts), size_clause(facts)])
    assert ("o smaller set can" in said) == ("a smallest set" in said) == (facts.least == size)
    assert ("was not decided" in said) == ("not known" in said) == (facts.least < size)
    assert ("proven" in said) == (facts.least > 1)


def test_sets_that_do_not_exist_and_sets_that_were_not_found_differ() -> None:
    none = replace(FOUND, size=0, least=785, after=None)
    assert contrast_sentences(none) == [f"Proven: no change within {BALL} changes the class."]
    assert contrast_title(none) == f"proven: no change within {BALL} changes the class"
    missing = replace(none, least=3)
    assert contrast_sentences(missing) == [
        "At least 3 pixels have to change: proven.",
        "No set of pixels was found that can change the decision from 4. It is not known whether there is one.",
    ]
    assert "proven: no change" not in contrast_title(missing)
    assert changed_caption(none) == size_clause(none) == "no set can change the decision"
    assert changed_caption(missing) == "no set was found"


def test_a_class_that_was_asked_for_is_named() -> None:
    aimed = replace(FOUND, aim="7", after="7")
    assert "can change the decision from 4 to 7" in contrast_sentences(aimed)[0]
    nothing = replace(aimed, size=0, least=785, after=None)
    assert contrast_sentences(nothing) == [f"Proven: no change within {BALL} changes the class to 7."]


def test_rounding_and_the_solver_are_named() -> None:
    rough = replace(FOUND, rigorous=False)
    assert NOT_COVERED in contrast_sentences(rough)[1]
    assert NOT_COVERED in contrast_title(rough)
    assert COUNTED not in contrast_sentences(rough)
    assert COUNTED in contrast_sentences(replace(FOUND, counted=True))
    assert COUNTED not in contrast_sentences(replace(FOUND, counted=True, least=1))


def test_outputs_have_their_unit() -> None:
    facts = replace(FOUND, output=PRESSURE, within=0.5, before=None, after=None, noun="column", groups=6)
    assert "can raise blood pressure by more than 0.5 mmHg" in contrast_sentences(facts)[0]
    assert changed_caption(facts) == "changed input: blood pressure rises by more than 0.5 mmHg"
    nothing = replace(facts, size=0, least=7)
    assert (
        contrast_sentences(nothing)[0]
        == f"Proven: no change within {BALL} raises blood pressure by more than 0.5 mmHg."
    )


def test_further_sets_are_counted() -> None:
    one, two = replace(FOUND, further=(4,)), replace(FOUND, further=(4, 6))
    assert "Another set without a common pixel can change it as well: 4 pixels." in proven_changes(one)
    assert any("2 further sets" in said and said.endswith("4 and 6.") for said in proven_changes(two))
    assert counted_contrasts([1, 2, 6], "pixel") == "mean 3.0, from 1 to 6 changed pixels"
