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

from proofmap.bounds.alpha.interval_gradients import IntervalGradients
from proofmap.bounds.alpha.member_rows import MemberRows
from proofmap.bounds.alpha.optimised_rows import OptimisedRows
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.rules import Interval


@dataclass(frozen=True)
class AlphaPass(BackwardPass):
    """Backward, then so many steps for each row that it leaves open."""

    steps: int = 20

    chooses = True

    def begin(self, state: BoundState) -> AlphaBounder:
        return AlphaBounder(state, self)


class AlphaBounder(BackwardBounder):
    """The pass in one walk."""

    _settings: AlphaPass

    def __init__(self, state: BoundState, settings: AlphaPass) -> None:
        super().__init__(state, settings)
        self._tuned = OptimisedRows(state, settings, settings.steps)
        self._worth: dict[str, Interval] = {}

    def tighten_inputs(self, node: Node) -> None:
        super().tighten_inputs(node)
        if self._tuned.open():
            for name, rows in self.state.unstable(node):
                self.state.tighten(name, self._tuned.tighten(name, rows))

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        bounds = super().final(specification, wanted)
        if self._tuned.open():
            bounds = torch.minimum(bounds, self._tuned.final(specification, wanted))
            if self.state.for_members:
                front = bounds[:, 0].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
                first = torch.zeros_like(wanted).scatter_(1, front, True) & wanted
                self._worth = IntervalGradients(self._settings, self._tuned).of(specification, first)
        return bounds

    def for_members(self, state: BoundState, index: Tensor) -> BackwardBounder:
        members = MemberRows(state, self._settings, self._tuned, index // self.state.balls.members)
        return members.look_closer(self._worth)
