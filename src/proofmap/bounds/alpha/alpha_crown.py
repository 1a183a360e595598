"""Backward with slopes of each bound's own: what rules leave free, moved along the gradient of the bound.

Every row that is sent back, an entry of a hidden layer or a row of the output, gets numbers of its own for all open
entries on its way (α-CROWN, Xu et al. 2021). They are chosen on the full ball; the form that they give serves all
members, and on each the closest of it and Backward's counts. Then members go on from there (`members`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds.alpha.interval_gradients import Worth
from proofmap.bounds.alpha.member_rows import Again
from proofmap.bounds.alpha.optimised_rows import Tuned
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.state import Knowledge
from proofmap.graph.ir import Node
from proofmap.rules import Interval


@dataclass(frozen=True)
class SlopesPass(BackwardPass):
    """Backward, then so many steps for each row that it leaves open."""

    steps: int = 20

    chooses = True

    def begin(self, knowledge: Knowledge) -> SlopesBounder:
        return SlopesBounder(knowledge, self)


class SlopesBounder(BackwardBounder):
    """The pass in one walk."""

    _settings: SlopesPass

    def __init__(self, knowledge: Knowledge, settings: SlopesPass) -> None:
        super().__init__(knowledge, settings)
        self._tuned = Tuned(knowledge, settings, settings.steps)
        self._worth: dict[str, Interval] = {}

    def settle(self, node: Node) -> None:
        super().settle(node)
        if self._tuned.open():
            for name, rows in self.knowledge.unstable(node):
                self.knowledge.tighten(name, self._tuned.tighten(name, rows))

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        bounds = super().final(specification, wanted)
        if self._tuned.open():
            bounds = torch.minimum(bounds, self._tuned.final(specification, wanted))
            if self.knowledge.for_members:
                front = bounds[:, 0].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
                first = torch.zeros_like(wanted).scatter_(1, front, True) & wanted
                self._worth = Worth(self._settings, self._tuned).of(specification, first)
        return bounds

    def for_members(self, knowledge: Knowledge, index: Tensor) -> BackwardBounder:
        members = Again(knowledge, self._settings, self._tuned, index // self.knowledge.balls.members)
        return members.look_closer(self._worth)
