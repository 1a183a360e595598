"""What closer hidden intervals are worth to a bound: its derivatives by their ends.

A bound meets relaxations, these are made from intervals, and the ends of an interval are bounds themselves, which meet
others: the chain rule, from the output to the input.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.alpha.member_rows import MemberRows
from proofmap.bounds.alpha.optimised_rows import AlphaObjective, OptimisedRows
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.rows import BoundRows
from proofmap.rules import Form, Interval, Relaxation
from proofmap.rules.rule import AnyForm


class IntervalGradients(MemberRows):
    """BoundRows over the numbers that they ended with, each of which passes on what it is worth."""

    def __init__(self, settings: BackwardPass, ball: OptimisedRows) -> None:
        balls = ball.state.balls
        super().__init__(ball.state, settings, ball, torch.arange(balls.count, device=balls.x.device))
        self._worth: dict[str, Interval] = {}

    def of(self, specification: Tensor, front: Tensor) -> dict[str, Interval]:
        """Derivatives (C, entries) of the bounds of rows, one a case at most, as parts of what these range over."""
        state = self.state
        self.final(specification, front)
        relaxed = filter(node_facts.is_nonlinear, state.graph.nodes)
        open_ = {name: rows for node in relaxed for name, rows in state.unstable(node)}
        for node in reversed(state.graph.nodes):
            if node.name in open_ and node.name in self._worth:
                worth = self._worth[node.name].pick(open_[node.name].at)
                rows = open_[node.name][(worth.lower != 0) | (worth.upper != 0)]
                if len(rows):
                    self.backsubstitute_rows(node.name, rows, state.relaxations, lambda part, forms, bias: None)
        return self._worth

    def backsubstitute_forms(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        way = self.way(name, form, owner, relaxations, rows, by_ends=True)
        with torch.enable_grad():
            forms, bound = way.bounds({})
        met = way.met()
        if len(form) == len(rows):  # of the output: what each ranges over
            worth = self._inverse_range(forms, bound, owner)
        else:  # an upper end, and the negative of a lower one
            both = self._worth[name].pick(rows.at)
            worth = torch.cat([both.upper, -both.lower])
        ends = [end for pairs in met.values() for x in pairs.inputs for end in (x.lower, x.upper)]
        if ends:
            self._pass_on(way, torch.autograd.grad(bound, ends, worth, materialize_grads=True))
        return {}, bound.detach()

    def _inverse_range(self, forms: Mapping[str, Form], bound: Tensor, owner: Tensor) -> Tensor:
        form, balls = forms.get(self.state.graph.input.name), self.state.balls
        if not isinstance(form, Tensor):
            return torch.zeros_like(bound)
        swing = balls.concretise(form.detach(), owner, full_only=True)[:, 0]
        return torch.where(swing > 0, 1 / swing, 0)

    def _pass_on(self, way: AlphaObjective[AnyForm], slopes: tuple[Tensor, ...]) -> None:
        """Add what the bounds of these rows are worth to the ends that they meet."""
        left = iter(slopes)
        for pairs in way.met().values():
            for name in pairs.node.inputs:
                size = self.state.graph[name].size
                if name not in self._worth:
                    self._worth[name] = Interval(*slopes[0].new_zeros(2, len(self.state.cases), size))
                at = way.owner[pairs.row] * size + pairs.source
                for end in (self._worth[name].lower, self._worth[name].upper):
                    end.view(-1).index_add_(0, at, next(left).squeeze(1).nan_to_num(0.0, 0.0, 0.0))
