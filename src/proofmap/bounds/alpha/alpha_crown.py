"""α-CROWN (Xu et al. 2021): backward bounds whose relaxation parameters are optimised for every single bound.

Every row that is substituted back (a bound of a hidden entry, or a row of the output) has its own free parameters for
all entries on its way that leave a choice. They are optimised on the full ball. The resulting form serves all members,
and on each member the smaller of this bound and the backward bound counts. Then the members continue from these
parameters (`member_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds.alpha.interval_gradients import interval_gradients
from proofmap.bounds.alpha.member_rows import member_bounder
from proofmap.bounds.alpha.optimised_rows import OptimisedRows
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.rules import Interval


@dataclass(frozen=True)
class AlphaPass(BackwardPass):
    """Backward bounds, then `steps` optimisation steps for each row that is still open."""

    steps: int = 20

    optimises = True

    def begin(self, state: BoundState) -> AlphaBounder:
        return AlphaBounder(state, self)


class AlphaBounder(BackwardBounder):
    """α-CROWN during one walk over a graph: backward bounds, and those of optimised rows."""

    _settings: AlphaPass

    def __init__(self, state: BoundState, settings: AlphaPass) -> None:
        super().__init__(state, settings)
        self.rows: OptimisedRows = OptimisedRows.of(state, settings.steps)
        self._optimised = BackwardBounder(state, settings, self.rows)
        self._gradients: dict[str, Interval] = {}

    def tighten_inputs(self, node: Node) -> None:
        super().tighten_inputs(node)
        if self.rows.free_relaxations():
            for name, rows in self.state.unstable(node):
                self.state.tighten(name, self._optimised.tighten(name, rows))

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        bounds = super().final(specification, wanted)
        if self.rows.free_relaxations():
            bounds = torch.minimum(bounds, self._optimised.final(specification, wanted))
            if self.state.for_members:
                highest = bounds[:, 0].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
                first = torch.zeros_like(wanted).scatter_(1, highest, True) & wanted
                self._gradients = interval_gradients(self._settings, self.rows, specification, first)
        return bounds

    def for_members(self, state: BoundState, index: Tensor) -> BackwardBounder:
        case = index // self.state.balls.members
        return member_bounder(state, self._settings, self.rows, case, self._gradients)
