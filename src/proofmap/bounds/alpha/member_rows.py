"""Members that go on where their ball ended: rows of their own, for the hidden entries that they gain most by.

The forms of B bound a hidden entry on every member, but with relaxations and slopes of B. How much closer its own would
be is not known: about as much as freezing the group has moved the ends of its interval already. What that changes of
the member's bound is, to first order, the moves times the derivatives of B's bound by the ends. Where this is more than
a small part of what the bound ranges over, an end gets a row of the member's own, over the member's relaxations and B's
slopes; where it is more than ten times that, slopes of its own as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.alpha.optimised_rows import AlphaObjective, OptimisedRows
from proofmap.bounds.alpha.optimiser import LowestBounds
from proofmap.bounds.alpha.relaxation import FreeEntries
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.rules import Interval
from proofmap.rules.rule import AnyForm

_FEWER = 4  # times fewer steps than for the ball
_LOOK = 2  # steps after which rows stop that have not gained: most of them, on members of a few pixels
_PART, _MORE = 1e-4, 1e-3  # of what a bound ranges over: what may change it by more gets a row, and slopes of its own


class MemberRows(OptimisedRows):
    """BoundRows that begin where those of `ball` ended: case c is its case[c], or a member of that."""

    def __init__(self, state: BoundState, settings: BackwardPass, ball: OptimisedRows, case: Tensor) -> None:
        super().__init__(state, settings, -(-ball.steps // _FEWER))
        self._ball, self._case = ball, case
        self.cases: int = ball.cases

    def look_closer(self, worth: Mapping[str, Interval]) -> MemberRows:
        """Tighten what is worth it, layer by layer, so that what has become closer counts for the next."""
        state, still = self.state, copy(self)
        still.steps = 0
        for node in filter(node_facts.is_nonlinear, state.graph.nodes):
            for name, rows in state.unstable(node):
                found = self._worthy(name, rows, worth[name]) if name in worth else []
                for mine, more in found:
                    state.tighten(name, (self if more else still).tighten(name, mine))
                if found:
                    state.relax(node)
                    self._opened.pop(node.name)
        return self

    def _worthy(self, name: str, rows: BoundRows, worth: Interval) -> list[tuple[BoundRows, bool]]:
        """The ends that are worth rows of their own, and whether these are worth steps."""
        at = (self._case[rows.case], rows.entry)
        ball = self._ball.state.interval(name)
        mine = self.state.interval(name)
        ball, mine = (one.like((len(one.lower), -1)) for one in (ball, mine))
        ball, mine, worth = ball.pick(at), mine.pick(rows.at), worth.pick(at)
        moved = (ball.upper - mine.upper) + (mine.lower - ball.lower)
        found = []
        for side, slope in ((1, worth.upper), (-1, -worth.lower)):
            gain = slope * moved
            for more in (False, True):
                some = (gain > _PART) & (gain.gt(_MORE) == more)
                if bool(some.any()):
                    found.append((replace(rows[some], side=side), more))
        return found

    def choose(self, way: AlphaObjective[AnyForm]) -> LowestBounds:
        """A few steps, and more for the rows that gain by them."""
        lowest = way.descend(min(_LOOK, self.steps), near=True)
        if not bool(lowest.gained.any()):
            return lowest
        more = way.pick(lowest.gained, lowest.numbers).descend(self.steps, near=True)
        return lowest.put(lowest.gained, more, way.row())

    def _begin(self, where: tuple[str, str], pairs: FreeEntries, ids: Tensor) -> Tensor:
        """Where the ball's row ended."""
        return pairs.free.within(self._ball.kept.at(where, pairs.keys(ids), pairs.free.start))

    def _ids(self, rows: BoundRows, count: int) -> Tensor:
        return super()._ids(replace(rows, case=self._case[rows.case]), count)
