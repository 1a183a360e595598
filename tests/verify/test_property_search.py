"""Searches of properties: conjunctions, disjunctions and clipped boxes agree with an enumeration of all patterns."""

from collections import Counter
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from fuzz.properties import answered, findings, near_boundary, network, wrong
from proofmap.verify.property import Region, decide
from tests.verify.test_property import Ridge, box, traced, unsafe

SEARCHES = ("boxes", "units")


@pytest.mark.parametrize("seed", range(4))
def test_every_search_agrees_with_the_enumeration(seed: int) -> None:
    assert not list(findings(seed, Counter()))


def test_programs_prove_what_no_relaxation_of_the_box_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS solves the programs of all open parts from the first split on. The network's first output is at least 0."""
    module: Any = import_module("proofmap.search.branch_and_bound")
    monkeypatch.setattr(module, "_LP_START_SHARE", 0.0)
    solve, solved = module.solve_part_lps, []

    def counted(*arguments: Any) -> Any:
        found = solve(*arguments)
        solved.append(int(found.solved.sum()))
        return found

    monkeypatch.setattr(module, "solve_part_lps", counted)
    for first, verdict in ((0.01, "holds"), (-0.01, "violated")):
        region = box([-1.0, -1.0], [1.0, 1.0], unsafe([[1, 0], [0, 1]], [first, -0.5]))
        assert answered(Ridge(), region, "units").verdict == verdict  # type: ignore[arg-type]
    assert sum(solved) > 0


@pytest.mark.slow
def test_more_properties_agree_with_the_enumeration() -> None:
    """Runs with more seeds: `python -m fuzz.properties --count 10000`."""
    verdicts: Counter[str] = Counter()
    assert not [what for seed in range(104, 112) for what in findings(seed, verdicts)]
    assert all(verdicts[f"{way}: {verdict}"] > 1 for way in ("all", *SEARCHES) for verdict in ("holds", "violated"))


def test_a_wrong_answer_is_noticed() -> None:
    net = network(0)
    region = near_boundary(net, 0)
    answer = answered(net, region, "all")
    assert wrong(net, region, answer, -1.0) is None or answer.verdict == "violated"
    other = {"holds": 0.5, "violated": -0.5, "unknown": 0.5}[answer.verdict]
    assert wrong(net, region, answer, other) is not None


class Absolute(nn.Module):
    """y = (|x_0|, x_1)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :1].abs(), x[:, 1:]], 1)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ((([[1, 0], [-1, 0]], [-0.3, 0.4]),), "holds"),  # |x_0| <= 0.3 and |x_0| >= 0.4: each row can be met alone
        ((([[1, 0], [-1, 0]], [-0.3, 0.4]), ([[-1, 0], [0, 1]], [0.9, 0.4])), "violated"),  # the second case can happen
        ((([[-1, -1]], [1.6]), ([[1, 1], [1, -1]], [0.05, 0.05])), "holds"),  # |x_0| + x_1 >= 1.6, or both within 0.05
    ],
)
def test_conjunctions_and_disjunctions(
    search: str, rows: tuple[Any, ...], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = box([-1.0, -0.5], [1.0, 0.5], *(unsafe(*case) for case in rows))
    assert answered(Absolute(), region, search, 5.0).verdict == verdict  # type: ignore[arg-type]


def many_boxes(limit: float) -> list[Region]:
    """Return twelve boxes side by side on -1 <= x_0 <= 1, on which |x_0| - x_1 <= limit or x_1 >= 2 is unsafe."""
    cases = (unsafe([[1, -1]], [-limit]), unsafe([[0, -1]], [2.0]))
    return [box([-1 + k / 6, -0.5], [-1 + (k + 1) / 6, 0.5], *cases) for k in range(12)]


@pytest.mark.parametrize(("limit", "verdict"), [(-0.45, "violated"), (-0.51, "holds")])
def test_many_boxes_share_one_search(limit: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the boxes next to x_0 = 0 contain |x_0| - x_1 = -0.5, its smallest value."""
    monkeypatch.setattr(import_module("proofmap.verify.property"), "attack_cases", lambda *_: None)
    found = decide(traced(Absolute()), many_boxes(limit), bounds=pm.bounds.Exact(seconds=5))
    assert found.verdict == verdict
    if verdict == "violated":
        assert found.point is not None
        assert abs(float(found.point[0])) <= 0.06


def test_fixed_inputs_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """x_1 = 0.3 is fixed, and the region's own tensors are not changed by a search."""
    region = box([-1.0, 0.3], [1.0, 0.3], unsafe([[1, 0], [-1, 0], [0, 1]], [-0.3, 0.4, 0.0]), unsafe([[0, 1]], [-0.2]))
    before = region.lower.clone(), region.upper.clone()
    assert answered(Absolute(), region, "boxes").verdict == "holds"  # type: ignore[arg-type]
    assert torch.equal(region.lower, before[0])
    assert torch.equal(region.upper, before[1])
