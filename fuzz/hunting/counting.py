"""Count the splits, parts and linear programs of searches, and how many searches met their goal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from torch import Tensor

from proofmap.search import branch_and_bound
from proofmap.search.frontier import Frontier, SearchResult
from proofmap.search.lp import solve_leaf_lps


@dataclass
class Work:
    """Counts of a number of searches."""

    searches: int = 0
    met: int = 0  # searches in which both bounds of every member met
    splits: int = 0
    parts: int = 0
    programs: int = 0  # linear programs of parts without unstable units


@contextmanager
def counted(most: int | None) -> Iterator[Work]:
    """Count the work of all searches in the block. `most` limits the parts instead of the time, reproducibly."""
    work = Work()
    split, spent, boxed = (
        branch_and_bound.SearchTree._split,
        branch_and_bound.SearchTree.stop_reason,
        Frontier.stop_reason,
    )

    def splitting(tree: branch_and_bound.SearchTree, part: Mapping[str, Tensor]) -> None:
        work.splits += len(part["row"])
        split(tree, part)

    def solving(units: Any, balls: Any, rows: Any, *rest: Any) -> Any:
        work.programs += len(rows)
        return solve_leaf_lps(units, balls, rows, *rest)

    def found(upper: Tensor, parts: int, stopped: str) -> SearchResult:
        work.searches += 1
        work.met += not stopped
        work.parts += parts
        return SearchResult(upper, parts, stopped)

    def ended(tree: branch_and_bound.SearchTree, until: float) -> str:
        return spent(tree, until) if most is None else "time" if tree.parts > most else ""

    def left(frontier: Frontier) -> str:
        return boxed(frontier) if most is None else "time" if frontier.parts > most else ""

    with (
        patch.object(branch_and_bound.SearchTree, "_split", splitting),
        patch.object(branch_and_bound, "solve_leaf_lps", solving),
        patch.object(branch_and_bound, "SearchResult", found),
        patch.object(branch_and_bound.SearchTree, "stop_reason", ended),
        patch.object(Frontier, "stop_reason", left),
    ):
        yield work
