"""Titles and captions of figures: the verdict with its ball, and no claim beyond the proof."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from proofmap.explainers import Explanation, Origin, Source
from proofmap.plots.figure_titles import caption, group_name, selection, title
from tests.explainers.making import bounds, certified, make, make_signed, probable, ranked, two_sided

BALL = "the ball (ε = 0.01 in L∞, values within [0, 1])"
NOTE = " (floating-point rounding is not covered)"
PROVEN = f"proven{NOTE}: no input in {BALL} changes the class"


def headlines(e: Explanation, names: Sequence[str] | None = None) -> list[str]:
    return [title(e, k, names) for k in range(len(e))]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_title_states_the_verdict() -> None:
    assert headlines(certified(-3.2099, 0.9)) == [
        f"class 0 · {PROVEN}; AO ≤ -3.20",
        f"class 1 · undecided: neither proven nor refuted for {BALL}; AO ≤ 0.90",
    ]


def test_a_rigorous_title_has_no_note() -> None:
    e = certified(-3.2)
    e = replace(e, settings={**e.settings, "rigorous": True})
    assert headlines(e)[0].startswith(f"class 0 · proven: no input in {BALL}")


def test_a_title_names_the_smoothed_classifier() -> None:
    most = "most noisy copies of every input in the ball (ε = 0.5 in L2, values without limits) have the class"
    sure = "with probability 99.5 %, noise σ = 0.25; nothing is proven about the network itself"
    assert headlines(probable(-0.327, 0.101)) == [
        f"class 0 · probable: {most}; smoothed AO ≤ -0.32 {sure}",
        f"class 1 · undecided: it is not known whether {most}; smoothed AO ≤ 0.11 {sure}",
    ]


def test_a_title_states_the_ball_of_its_sample() -> None:
    """A part of the samples keeps its radii."""
    e = replace(certified(-1.0, -2.0, -3.0), settings={"eps": [0.1, 0.2, 0.3], "norm": 2.0, "domain": None})
    said = headlines(e)
    assert ["ε = 0.1 in L2, values without limits" in title for title in said] == [True, False, False]
    assert "ε = 0.3 in L2" in said[2]
    assert headlines(e[2])[0] == said[2]
    assert "ε = 0.2 in L2" in headlines(e[1:])[0]


@pytest.mark.parametrize(("label", "said"), [(0, "cat, as labelled"), (2, "cat, but labelled cow"), (None, "cat")])
def test_a_title_says_the_true_class(label: int | None, said: str) -> None:
    origin = Origin(Source("net.onnx"), (Source("x.png"),), (label,))
    e = replace(certified(-3.0), origin=origin)
    assert headlines(e, ["cat", "dog", "cow", "fox"])[0].startswith(f"{said} · proven")


def test_an_input_of_another_class_is_refuted() -> None:
    over = bounds(torch.rand(1, 5), torch.tensor([2.0]))
    here = torch.tensor([0.5])
    over = replace(over, nominal=here, full_lower=here, frozen_lower=here.expand(1, 5))
    e = replace(certified(2.0), overlap=over, predicted=torch.tensor([3]))
    assert headlines(e) == ["class 0 (predicted: class 3) · refuted: the input itself has another class; AO ≤ 2.00"]


@pytest.mark.parametrize("objective", ["class", "mean"])
def test_a_bound_of_another_objective_is_no_certificate(objective: str) -> None:
    """A value below 0 of another objective says nothing about other classes."""
    e = certified(-3.2)
    e = replace(e, settings={**e.settings, "objective": objective})
    said = f"no verdict: the objective that was bounded for {BALL} does not decide the class"
    assert headlines(e) == [f"class 0 · {said}; objective '{objective}' ≤ -3.20"]


@pytest.mark.parametrize(("settings", "note"), [({}, NOTE), ({"rigorous": False}, NOTE), ({"rigorous": True}, "")])
def test_a_title_says_whether_rounding_is_covered(settings: dict[str, bool], note: str) -> None:
    e = certified(-3.0)
    e = replace(e, settings={**e.settings, **settings})
    assert headlines(e) == [f"class 0 · proven{note}: no input in {BALL} changes the class; AO ≤ -3.00"]


def test_zero_is_no_certificate() -> None:
    assert headlines(certified(0.0)) == [f"class 0 · undecided: neither proven nor refuted for {BALL}; AO ≤ 0.00"]


@pytest.mark.parametrize(
    ("guarantee", "value", "said"),
    [
        ("sampled", 0.234, f"refuted: a sample from {BALL} has another class; AO ≥ 0.23 (from samples)"),
        ("sampled", -1.234, f"NOT proven: no upper bound is known for {BALL}; AO ≥ -1.24 (from samples)"),
        ("none", -2.0, f"NOT proven: no upper bound is known for {BALL}; AO ≈ -2.00 (estimated)"),
        ("none", math.nan, f"NOT proven: no upper bound is known for {BALL}; AO is unknown"),
    ],
)
def test_a_title_states_that_nothing_is_proven(guarantee: str, value: float, said: str) -> None:
    assert headlines(certified(value, guarantee=guarantee)) == [f"class 0 · {said}"]


@pytest.mark.parametrize(
    ("added", "removed", "said"),
    [
        (
            -1.0,
            -2.0,
            f"proven{NOTE}: neither raising nor lowering values alone, in {BALL}, changes the class to class 1",
        ),
        (
            -1.0,
            0.5,
            f"undecided: in {BALL}, raising values alone is proven{NOTE} not to change the class to class 1; "
            "lowering them is not",
        ),
        (
            0.5,
            -2.0,
            f"undecided: in {BALL}, lowering values alone is proven{NOTE} not to change the class to class 1; "
            "raising them is not",
        ),
        (0.5, 0.5, f"undecided: neither proven nor refuted for {BALL}"),
        (0.5, 2.0, f"refuted: an input in {BALL} has a larger output for class 1 than for its own class"),
    ],
)
def test_a_targeted_title_states_the_verdict_on_each_half(added: float, removed: float, said: str) -> None:
    e = make_signed((1, 1, 4, 4))
    assert e.opposite is not None
    scores = torch.zeros(1, 5)
    # x itself reaches 1 less
    e = replace(e, overlap=bounds(scores, torch.tensor([added])), opposite=bounds(scores, torch.tensor([removed])))
    assert headlines(e) == [
        f"class 0, towards class 1 · {said}; raising: AO ≤ {added:.2f}; lowering: AO ≤ {removed:.2f}"
    ]


def test_a_target_equal_to_the_own_class_has_no_verdict() -> None:
    e = make_signed((1, 1, 4, 4))
    assert headlines(replace(e, target=e.overlap.target))[0].endswith("no verdict: the input already has this class")


def test_a_class_that_was_not_predicted() -> None:
    e = replace(certified(0.5), predicted=torch.tensor([3]))
    said = f"undecided: neither proven nor refuted for {BALL}"
    assert headlines(e) == [f"class 0 (predicted: class 3) · {said}; AO ≤ 0.50"]
    assert headlines(e, ["cat", "dog", "cow", "fox"])[0].startswith("cat (predicted: fox) · ")


def test_the_caption_states_the_formula_of_a_score() -> None:
    proven = "an importance, not itself proven"
    assert f"score = AO(B) - AO(B_u), {proven}" in flat(caption(make()))
    assert f"score = φ(+) - φ(-), φ = AO(B) - AO(B_u), {proven}" in flat(caption(make_signed()))
    other = make(scores=torch.eye(3, 5), overlap=make().overlap, method="Saliency")
    assert f"score of Saliency, {proven}" in flat(caption(other))


def test_the_caption_explains_the_colours() -> None:
    assert "red: add ink, blue: remove it" in caption(make_signed())
    assert "red: add ink, blue: remove it" in caption(make_signed((1, 4, 4)))
    assert "red: raise it, blue: lower it" in caption(make_signed((1, 3, 4, 4)))
    assert "red: positive, blue: negative" in caption(make(signed=True))
    assert "red" not in caption(make())


def test_which_scores_are_shown() -> None:
    assert selection(make((1, 30), 30), 20) == "the 20 largest of 30 scores, by column"
    assert selection(make((1, 30), 30), 30) == "all 30 scores, by column"
    assert selection(make((1, 2, 3, 4, 4), 7), 7) == "all 7 scores, by variable"


def test_names_are_cut() -> None:
    assert group_name(["a", "b", "c"]) == "a, b, c"
    assert group_name(["a", "b", "c", "d"]) == "a, b, c…"
    assert group_name(["x" * 300]) == "x" * 31 + "…"
    assert headlines(certified(0.5), ["long\n name " + "x" * 300])[0].startswith("long name " + "x" * 49 + "… ·")


def test_a_title_states_both_bounds_and_the_proven_ranks() -> None:
    (said,) = headlines(ranked([3, 2, 1, 0], 0.004))
    assert said == (f"class 0 · {PROVEN}; AO in [-5.00, -4.99]; these 2 of 4 columns are proven to matter most")
    assert "matter" not in headlines(ranked([3, 2, 1, 0], 9))[0]
    assert flat(caption(ranked([1, 2], 0.1))) == "score = AO(B) - AO(B_u), an importance; its interval is proven"


def test_an_attained_input_refutes() -> None:
    over = two_sided((0.5, 0.75), [(0, 0)])
    e = make((1, 1), 1, dtype=torch.float64, scores=over.drop, overlap=over)
    assert headlines(e) == [f"class 0 · refuted: an input in {BALL} has another class; AO in [0.50, 0.75]"]


def test_a_targeted_title_states_both_bounds_of_both_halves() -> None:
    added, removed = two_sided((-3, -2), [(-5, -4), (-3, -2)]), two_sided((-4, -3.5), [(-4, -3.5), (-4, -3.5)])
    scores = added.drop - removed.drop
    sides = {"overlap": added, "opposite": removed, "signed": True, "target": torch.tensor([1])}
    (said,) = headlines(make((1, 2), 2, dtype=torch.float64, scores=scores, **sides))
    assert said.endswith("raising: AO in [-3.00, -2.00]; lowering: AO in [-4.00, -3.50]")
