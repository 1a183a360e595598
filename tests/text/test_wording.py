"""The wording of balls, shares and counts: rounding never claims more than is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmap.text.wording import around, bound_name, confidence, noise, plural, radius, share, smoothed


@pytest.mark.parametrize(
    ("eps", "said"),
    [
        (0.015, "0.015"),
        (2 / 255, "2/255"),
        (51 / 255, "0.2"),
        (0.5, "0.5"),
        (3, "3"),
        (0.0, "0"),
        (0.026763916015625, "0.0267639"),
        (0.0199999999, "0.0199999"),
        (1e-7 / 3, "3.33333e-08"),
    ],
)
def test_a_radius_is_never_rounded_up(eps: float, said: str) -> None:
    assert radius(eps) == said


@given(st.floats(1e-9, 1e9))
def test_no_radius_is_printed_larger_than_it_is(eps: float) -> None:
    text = radius(eps)
    said = float(text.removesuffix("/255")) / 255 if "/" in text else float(text)
    assert said <= eps
    assert said == pytest.approx(eps, rel=1e-5)


@pytest.mark.parametrize(
    ("ball", "said"),
    [
        ({"eps": 0.01, "norm": "inf", "domain": [0.0, 1.0]}, "ε = 0.01 in L∞, values within [0, 1]"),
        ({"eps": [0.1, 0.2], "norm": 2.0, "domain": None}, "ε = 0.2 in L2, values without limits"),
        (
            {"eps": "auto", "norm": 1.0, "domain": [[0.0], [1.0]]},
            "each sample's own proven ε in L1, values within the limits on record",
        ),
        ({"eps": [0.1] * 3, "norm": "inf", "domain": None}, "each sample's own ε in L∞, values without limits"),
        ({"eps": [[0.1, 0.2]], "norm": "inf", "domain": None}, "an ε for each value in L∞, values without limits"),
        (
            {"eps": 0.1, "norm": "inf", "domain": [0, 1], "half": "+"},
            "ε = 0.1 in L∞, values raised alone, values within [0, 1]",
        ),
        (
            {"eps": 0.1, "norm": "inf", "domain": [0, 1], "relative": True},
            "ε = 0.1 of the way from each value to the ends of its range, values within [0, 1]",
        ),
        ({}, "a ball that is not on record"),
    ],
)
def test_a_ball_in_a_few_words(ball: dict[str, Any], said: str) -> None:
    assert around(ball, 1, 2) == said


def test_a_share_names_its_total_and_is_rounded_down() -> None:
    assert share(9999, 10000, "sample") == "9999 of 10000 samples (99.9 %)"
    assert share(1, 1, "sample") == "1 of 1 sample (100.0 %)"
    assert share(0, 0, "sample") == "0 of 0 samples"
    assert [plural(k, "class", "classes") for k in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]


def test_the_name_of_a_bound_states_its_kind() -> None:
    assert bound_name("certified") == "overlap_upper_proven"
    assert bound_name("sampled", "apart", "frozen") == "overlap_frozen_lower_sampled"
    assert bound_name("none", "mean") == "objective_mean_estimate"
    assert bound_name("probable", part="frozen") == "smoothed_overlap_frozen_upper_probable"


@pytest.mark.parametrize(("level", "said"), [(0.999, "99.9 %"), (0.9, "90 %"), (0.99995, "99.995 %"), (0.5, "50 %")])
def test_a_level_is_not_rounded(level: float, said: str) -> None:
    assert confidence({"level": level}) == said


def test_a_probable_bound_is_stated_with_its_formula() -> None:
    said = smoothed({"level": 0.999, "sigma": 0.25})
    assert "AO(B) <= 2 Φ(Φ⁻¹(q) + ε/σ) - 1" in said
    for words in (
        "with probability 99.9 %",
        "noise σ = 0.25",
        "nothing is proven about the network itself",
        "if the draws are independent",
    ):
        assert words in said
    assert noise({"sigma": None}) == "noise σ = ε"
