"""Members that go on where their ball ended: rows of their own, for the hidden entries that they gain most by.

The forms of B bound a hidden entry on every member, but with relaxations and slopes of B. How much closer its own would
be is not known: about as much as freezing the group has moved the ends of its interval already. What that changes of
the member's bound is, to first order, the moves times the derivatives of B's bound by the ends. Where this is more than
a small part of what the bound ranges over, the entry gets rows of the member's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from proofmap.bounds import facts
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.chosen import Pairs
from proofmap.bounds.knowledge import Knowledge
from proofmap.bounds.rows import Rows
from proofmap.bounds.tuned import Tuned
from proofmap.rules import Interval

_FEWER = 4  # times fewer steps than for the ball
_PART = 3e-4  # of what a bound ranges over: what may change it by more gets rows of its own


class Again(Tuned):
    """Rows that begin where those of `ball` ended: case c is its case[c], or a member of that."""

    def __init__(self, knowledge: Knowledge, settings: BackwardPass, ball: Tuned, case: Tensor) -> None:
        super().__init__(knowledge, settings, -(-ball.steps // _FEWER))
        self._ball, self._case, self.cases = ball, case, ball.cases

    def look_closer(self, worth: Mapping[str, Interval]) -> Again:
        """Tighten what is worth it, layer by layer, so that what has become closer counts for the next."""
        knowledge = self.knowledge
        for node in filter(facts.is_nonlinear, knowledge.graph.nodes):
            for name, rows in knowledge.unstable(node):
                mine = rows[self._gain(name, rows, worth[name]) > _PART] if name in worth else rows[:0]
                if len(mine):
                    knowledge.tighten(name, self.tighten(name, mine))
                    knowledge.relax(node)
                    self._opened.pop(node.name)
        return self

    def _gain(self, name: str, rows: Rows, worth: Interval) -> Tensor:
        """What moves of the ends, from the ball's interval to the member's, change."""
        at = (self._case[rows.case], rows.entry)
        ball = self._ball.knowledge.interval(name)
        mine = self.knowledge.interval(name)
        ball, mine = (one.like((len(one.lower), -1)) for one in (ball, mine))
        ball, mine, worth = ball.pick(at), mine.pick(rows.at), worth.pick(at)
        return worth.upper * (ball.upper - mine.upper) + worth.lower * (ball.lower - mine.lower)

    def _begin(self, where: tuple[str, str], pairs: Pairs, ids: Tensor) -> Tensor:
        """Where the ball's row ended."""
        return pairs.free.within(self._ball.kept.at(where, pairs.keys(ids), pairs.free.start))

    def _ids(self, rows: Rows, count: int) -> Tensor:
        return super()._ids(Rows(self._case[rows.case], rows.entry), count)
