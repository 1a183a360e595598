"""How much work trees did, and how their searches ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from torch import Tensor

from proofmap.search import branch_and_bound as search
from proofmap.search.goal import Found
from proofmap.search.lp import solved
from proofmap.search.two_sides import Sides


@dataclass
class Work:
    """Of some searches."""

    searches: int = 0
    met: int = 0  # searches that ended because both sides of every member met
    splits: int = 0
    parts: int = 0
    programs: int = 0  # parts without a bend that were solved


@contextmanager
def counted(most: int | None) -> Iterator[Work]:
    """The work of all searches inside; each ends after so many parts: the same on every machine, as no time is."""
    work = Work()
    split, spent, boxed = search.Tree._split, search.Tree.spent, Sides.spent

    def splitting(tree: search.Tree, part: Mapping[str, Tensor]) -> None:
        work.splits += len(part["row"])
        split(tree, part)

    def solving(units: Any, balls: Any, rows: Any, *rest: Any) -> Any:
        work.programs += len(rows)
        return solved(units, balls, rows, *rest)

    def found(upper: Tensor, parts: int, stopped: str) -> Found:
        work.searches += 1
        work.met += not stopped
        work.parts += parts
        return Found(upper, parts, stopped)

    def ended(tree: search.Tree, until: float) -> str:
        return spent(tree, until) if most is None else "time" if tree.parts > most else ""

    def left(sides: Sides) -> str:
        return boxed(sides) if most is None else "time" if sides.parts > most else ""

    with (
        patch.object(search.Tree, "_split", splitting),
        patch.object(search, "solved", solving),
        patch.object(search, "Found", found),
        patch.object(search.Tree, "spent", ended),
        patch.object(Sides, "spent", left),
    ):
        yield work
