"""Lines and records of explanations with lower and upper bounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from proofmap.cli.explain_output import line, record
from proofmap.cli.options.samples_and_balls import SampleInBall
from proofmap.explainers import Explanation, Origin, Source
from proofmap.inputs.ball import Ball
from proofmap.sources import Preparation
from proofmap.sources.named_model import Model
from tests.explainers.making import make, ranked, two_sided
from tests.runs.setting import digits_model

BALL = "ε = 0.01 in L∞, values within [0, 1]"


def case(e: Explanation) -> SampleInBall:
    return SampleInBall("x.npy", e.x, Ball(0.01, domain=(0.0, 1.0)), lambda: Source("x.npy"))


@pytest.fixture
def model() -> Model:
    return Model("net", digits_model().network, Preparation())


def test_a_line_has_both_bounds_and_the_proven_ranks(model: Model) -> None:
    e = ranked([4, 3, 2, 1], 0.004)
    assert line(case(e), e, model) == (
        f"x.npy: 0; proven: no input in the ball ({BALL}) changes the class; AO(B) in [-5.00, -4.99]; these 2 of "
        "4 columns are proven to matter most"
    )
    vague = ranked([4, 3, 2, 1], 9.0)
    assert line(case(vague), vague, model) == (
        f"x.npy: 0; undecided: neither proven nor refuted for the ball ({BALL}); AO(B) in [-5.00, 4.00]"
    )


def test_a_line_names_the_refuting_point(model: Model) -> None:
    over = two_sided((0.5, 0.75), [(0, 0)])
    e = make((1, 1), 1, dtype=torch.float64, scores=over.drop, overlap=over)
    assert line(case(e), e, model) == (
        f"x.npy: 0; refuted: an input in the ball ({BALL}) has another class; AO(B) in [0.50, 0.75]"
    )


def test_a_line_of_two_halves(model: Model) -> None:
    added, removed = two_sided((-3, -2.5), [(-5, -4), (-3, -2.5)]), two_sided((-4, 3.5), [(-4, 3.5), (-4, 3.5)])
    sides: dict[str, Any] = {"overlap": added, "opposite": removed, "signed": True, "target": torch.tensor([1])}
    e = make((1, 2), 2, dtype=torch.float64, scores=added.drop - removed.drop, **sides)
    assert line(case(e), e, model) == (
        f"x.npy: 0; towards 1; undecided: in the ball ({BALL}), raising values alone is proven not to change the class "
        "to 1; lowering them is not; AO(B) in [-3.00, -2.50] by raising, AO(B) in [-4.00, 3.50] by lowering"
    )
    found = record(case(e), e, model, Path("e"), None)
    assert (found["overlap_lower_reached"], found["overlap_opposite_lower_reached"]) == (-3, -4)


def test_a_record_has_the_intervals_of_the_largest_scores(model: Model) -> None:
    columns = ("age", "height", "weight", "income")
    e = replace(ranked([1, 4, 3, 2], 0.125), origin=Origin(Source("net"), (Source("x"),), columns=columns))
    found = record(case(e), e, model, Path("e"), None)
    assert (found["overlap_lower_reached"], found["overlap_upper_proven"]) == (-5, -4.875)
    assert [entry["where"] for entry in found["largest"]] == ["height", "weight", "income", "age"]
    assert found["largest"][0] == {
        "group": 1, "where": "height", "score": 4.0,
        "lower_proven": 3.875, "upper_proven": 4.125, "proven_to_matter_most": True,
    }  # fmt: skip
    assert [entry["proven_to_matter_most"] for entry in found["largest"]] == [True, True, False, False]
    plain = make((1, 4), 4)
    found = record(case(plain), plain, model, Path("e"), None)
    assert found["largest"] is None
    assert "overlap_lower_reached" not in found
