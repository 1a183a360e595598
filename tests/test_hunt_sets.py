"""A small share of the hunt for false claims about sufficient sets, and tests that it finds deliberate errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.hunting.finding import Finding, Tally
from fuzz.hunting.hunt import hunt
from proofmap.explainers.methods import contrastive
from proofmap.reasons import sufficient_set
from proofmap.reasons.contrasts import contrast_search
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.reason import Reason

pytestmark = pytest.mark.slow
SEEDS = range(1, 21)


def hunted(seeds: Sequence[int], folder: Path) -> tuple[list[Finding], Tally]:
    tally = Tally()
    return [finding for seed in seeds for finding in hunt(seed, tally, folder, "sets")], tally


def test_no_claim_is_false(tmp_path: Path) -> None:
    found, tally = hunted(SEEDS, tmp_path)
    assert not found, "\n".join(map(str, found))
    assert tally.sets >= len(SEEDS)
    assert min(tally.free_groups, tally.necessary_groups, tally.enumerated) > 5
    assert tally.undecided_groups < tally.necessary_groups
    assert tally.contrasts > 5


def test_a_free_set_with_an_adversary_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = FreeBalls.loads
    monkeypatch.setattr(FreeBalls, "loads", lambda self, form: 0.5 * right(self, form))
    found, _ = hunted(SEEDS, tmp_path)
    assert any("exceeds its bound" in one.what for one in found)
    assert {one.kind for one in found} == {"unsound"}


def test_a_necessary_group_that_can_be_freed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sufficient_set, "_TOLERANCE", -0.5)  # points far below the limit refute
    found, _ = hunted(SEEDS, tmp_path)
    assert any("below the limit" in one.what for one in found)


def test_a_point_outside_its_ball_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_reasons(monkeypatch, lambda reason: replace(reason, points=reason.points + 2.0))
    found, _ = hunted(SEEDS, tmp_path)
    assert any("is outside its ball" in one.what for one in found)


def test_a_least_size_that_is_too_large_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_reasons(monkeypatch, lambda reason: replace(reason, least=reason.size))  # as if every set were smallest
    found, _ = hunted(SEEDS, tmp_path)
    assert any("fewer than the proven least" in one.what for one in found)


def test_a_least_number_of_changes_that_is_too_large_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = contrast_search.contrast_sets

    def without_sets(*args: Any) -> Contrast:
        found = right(*args)
        none = {name: getattr(found, name)[:0] for name in ("sets", "owner", "points", "classes", "values")}
        return replace(found, **none, least=found.least + found.found)

    monkeypatch.setattr(contrastive, "contrast_sets", without_sets)
    found, _ = hunted(SEEDS, tmp_path)
    assert any("fewer than the proven" in one.what for one in found)


def test_a_changed_input_outside_of_its_set_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = contrast_search.contrast_sets
    changed: Any = lambda *args: replace(found := right(*args), points=found.points + 2.0)  # noqa: E731
    monkeypatch.setattr(contrastive, "contrast_sets", changed)
    found, _ = hunted(SEEDS, tmp_path)
    assert any("outside the ball of its set" in one.what for one in found)


def change_reasons(monkeypatch: pytest.MonkeyPatch, change: Callable[[Reason], Reason]) -> None:
    right = sufficient_set._reason
    monkeypatch.setattr(sufficient_set, "_reason", lambda *args: change(right(*args)))
