"""The statements of a finding: no guarantee exceeds the proof."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_verdict import bounds_of, verdict_of
from proofmap.report.finding_texts import ball, claim, name_of, sources
from proofmap.text.guarantee_statements import Statements
from proofmap.text.verdict import OverlapBounds, Verdict
from proofmap.text.wording import number
from proofmap.verify.overlap import Overlap
from tests.explainers.making import make, make_signed, probable, ranked, two_sided

SCORES = "Scores are not proven."


def said(e: Explanation, reached: float | None = None) -> Statements:
    return claim(e, 0, verdict_of(e, 0, reached), None)


def one(full: float, nominal: float = -3.0, **changes: Any) -> Explanation:
    scores = torch.rand(1, 5)
    over = Overlap(torch.tensor([full]), full - scores, torch.tensor([nominal]), torch.tensor([0]), True)
    return make((1, 1, 4, 4), scores=scores, overlap=over, **changes)


def test_a_proof_is_about_every_input_of_the_ball() -> None:
    found = said(one(-2.311))
    assert found.short == "No input in the ball changes the class."
    assert found.guaranteed == (
        "All inputs of the ball are classified as class 0, not only the inputs that were tried. class 0 leads every "
        "other class by at least 2.31.",
    )
    assert "between −3.00 and −2.31" in found.open[0]


def test_uncovered_rounding_errors_are_listed_as_open() -> None:
    plain = one(-2.311)
    rigorous = replace(plain, settings={**plain.settings, "rigorous": True})
    assert [sentence for sentence in said(plain).open if sentence.startswith("Floating-point rounding is not covered:")]
    assert set(said(rigorous).open) == {sentence for sentence in said(plain).open if "rounding" not in sentence}
    assert not [sentence for sentence in said(probable(-0.327)).open if "rounding" in sentence]


def test_a_bound_above_zero_leaves_the_decision_open() -> None:
    found = said(one(1.234), reached=-0.5)
    assert found.short == "Neither proven nor refuted for the ball."
    assert found.guaranteed == ("Another class leads class 0 by at most 1.24 anywhere in the ball.",)
    assert found.open[0].startswith("The decision. ")
    assert "an attack found no such input" in found.open[0]
    assert "no search for such an input was made" in said(one(1.234)).open[0]


def test_a_probable_bound_is_about_most_copies() -> None:
    found = said(probable(-0.327))
    assert found.short == "Most noisy copies of every input in the ball have the class, with probability 99.5 %."
    assert found.guaranteed[0].endswith(" exceeds the share of the others by at most −0.32.")
    assert "AO(B) <= 2 Φ(Φ⁻¹(q) + ε/σ) - 1" in found.guaranteed[1]
    assert found.open[0].startswith("Anything about the network itself")
    assert SCORES in found.open[-1]
    assert said(probable(0.1)).short.startswith("It is not known whether most noisy copies")
    rows = sources(bounds_of(probable(-0.327))[0])
    assert rows == [
        ("at the input itself, with probability 99.5 %", "≥", "−1.33"),
        ("for the whole ball, with probability 99.5 %", "≤", "−0.32"),
    ]


def test_proven_statements_about_scores() -> None:
    found = said(ranked([5, 1, 4, 2, 3, 3], 0.1))
    assert found.guaranteed[1:] == (
        "2 of 6 columns are proven to be among the 3 that matter most, for all true scores within their intervals.",
        "6 of 6 true scores are above zero.",
        "The order of two true scores is proven for 14 of 15 pairs (93.3 %).",
    )
    assert "The true score lies in the interval" in found.open[-1]
    assert SCORES not in found.open[-1]
    open_ = said(ranked([5, 1, 4, 2, 3, 3], 90))
    assert open_.guaranteed[1:] == (
        "0 of 6 true scores are above zero.",
        "The order of two true scores is proven for 0 of 15 pairs (0.0 %).",
    )


def test_proven_statements_about_signed_scores() -> None:
    added, removed = two_sided((-3, -2.9), [(-5, -4.9), (-3, -2.9)]), two_sided((-4, -3.9), [(-4, -3.9), (-7, -6.9)])
    sides: dict[str, Any] = {"overlap": added, "opposite": removed, "signed": True, "target": torch.tensor([1])}
    found = said(make((1, 2), 2, dtype=torch.float64, scores=added.drop - removed.drop, **sides))
    assert found.guaranteed[2:] == (
        "This 1 of 2 columns is proven to matter most, for all true scores within their intervals.",
        "2 of 2 true scores are not zero, with the sign that is shown.",
        "The order of two true scores is proven for 1 of 1 pair (100.0 %).",
    )


def test_the_search_for_the_bound_refutes() -> None:
    over = two_sided((0.5, 0.75), [(0, 0)])
    e = make((1, 1), 1, dtype=torch.float64, scores=over.drop, overlap=over)
    assert said(e).short == "An input in the ball has another class."
    assert said(e).guaranteed[1] == (
        "The search for the bound found an input of the ball at which another class leads class 0 by 0.50."
    )
    assert ("found by the search for the bound", "≥", "0.50") in sources(bounds_of(e)[0])
    assert (
        "the search found no such input"
        in said(make((1, 1), 1, overlap=replace(over, full_lower=over.nominal + 0.1))).open[0]
    )
    halves: dict[str, Any] = {"overlap": over, "opposite": over, "signed": True, "target": torch.tensor([1])}
    aimed = make((1, 1), 1, dtype=torch.float64, scores=over.drop * 0, **halves)
    assert said(aimed).short == "An input in the ball has a larger output for class 1 than for its own class."


def test_an_attained_input_refutes() -> None:
    found = said(one(1.234), reached=0.567)
    assert found.short == "An input in the ball has another class."
    assert found.guaranteed[1] == ("An attack found an input of the ball at which another class leads class 0 by 0.56.")
    at_once = said(one(1.234, nominal=0.5))
    assert at_once.guaranteed[1] == "The input itself is not classified as class 0: another class is ahead by 0.50."


def test_samples_prove_nothing_about_the_others() -> None:
    found = said(one(-2.0, guarantee="sampled"))
    assert found.guaranteed[0].startswith("Nothing about the ball as a whole.")
    assert "that were not tried" in found.open[0]
    broken = said(one(0.5, guarantee="sampled"))
    assert broken.guaranteed == ("Sampling found an input of the ball at which another class leads class 0 by 0.50.",)


@pytest.mark.parametrize("full", [-2.0, 0.5])
def test_an_estimate_proves_nothing(full: float) -> None:
    found = said(one(full, guarantee="none"))
    assert found.short == "No upper bound is known for the ball."
    assert found.guaranteed == (
        "Nothing about the ball as a whole. The overlap is an estimate, which can be too low or too high.",
    )


def test_a_targeted_map_has_statements_about_both_halves() -> None:
    e = make_signed(shape=(1, 1, 4, 4))
    known = (OverlapBounds(-3.0, upper=-1.0, half="+"), OverlapBounds(-3.0, upper=2.0, half="-"))
    found = claim(e, 0, Verdict.over("targeted", known), ["cat", "dog"])
    aim = name_of(int(e.target[0]), ["cat", "dog"])
    assert found.guaranteed[0] == (
        f"Only raising values within the ball never gives an input that is classified as {aim}."
    )
    assert "changed only by lowering them" in found.guaranteed[1]
    assert "some values raised and others lowered" in found.open[0]


def test_nothing_is_claimed_about_the_own_class() -> None:
    e = make_signed(shape=(1, 1, 4, 4))
    found = said(replace(e, target=e.overlap.target))
    assert "already" in found.short
    assert found.guaranteed == ("Nothing: the input already has this class.",)


@pytest.mark.parametrize("objective", ["mean", "class", "other"])
def test_another_objective_says_nothing_about_the_decision(objective: str) -> None:
    found = said(one(-2.0, settings={"eps": 0.1, "objective": objective}))
    assert "does not decide" in found.short
    assert found.open[0].startswith("The decision.")
    assert "classified" not in " ".join(found.guaranteed)


@pytest.mark.parametrize("guarantee", ["certified", "sampled", "none"])
@pytest.mark.parametrize("full", [-1.0, 0.0, 1.0, math.inf, math.nan])
def test_scores_are_always_called_unproven(guarantee: str, full: float) -> None:
    found = said(one(full, guarantee=guarantee))
    assert SCORES in found.open[-1]
    assert found.short
    assert found.guaranteed
    assert ("not only the inputs that were tried" in " ".join(found.guaranteed)) == (
        guarantee == "certified" and full < 0
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"eps": 0.015, "norm": "inf", "domain": [0.0, 1.0]},
            "All inputs where each value differs from this one's by at most 0.015, and all values are within [0, 1].",
        ),
        (
            {"eps": 2, "norm": 2.0, "domain": None},
            "All inputs where the Euclidean distance from this one is at most 2; the values have no limits.",
        ),
        (
            {"eps": [0.1, 0.2], "norm": 1.0, "domain": [[0.0], [1.0]], "half": "+"},
            "All inputs where the absolute differences from this one sum to at most 0.2, no value is lower, and all "
            "values are within the limits in its record.",
        ),
        (
            {"eps": 0.04, "norm": "inf", "domain": [0.0, 1.0], "relative": True},
            "All inputs where each value moves at most 0.04 of the way to either end of its range, and all values are "
            "within [0, 1].",
        ),
        (
            {"eps": "tensor sha256 0", "norm": "?"},
            "All inputs where the distance from this one is at most the radius in its record; "
            "the values have no limits.",
        ),
    ],
)
def test_a_ball_in_words(settings: dict[str, Any], words: str) -> None:
    assert ball(settings, 1, 2) == words


def test_bounds_are_rounded_outward() -> None:
    rows = sources(OverlapBounds(-3.999, upper=1.231, sampled=-2.999, attacked=0.129, estimate=0.125))
    assert [f"{sign} {value}" for _, sign, value in rows] == ["≥ −4.00", "≥ −3.00", "≥ 0.12", "≈ 0.12", "≤ 1.24"]


def test_numbers_and_names() -> None:
    assert number(None) == number(math.nan) == "unknown"
    assert number(-math.inf) == "−∞"
    assert name_of(1, ["a", " b \n c "]) == "“b c”"
