"""Gradients of output bounds with respect to the hidden intervals: how much tighter hidden bounds would help.

An output bound depends on relaxations, and these on intervals. The endpoints of an interval are bounds themselves,
which depend on earlier intervals. The chain rule goes from the output to the input.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.alpha.optimised_rows import AlphaObjective, OptimisedRows
from proofmap.bounds.backward import BackwardBounder, BackwardPass, Substitution
from proofmap.bounds.rows import BoundRows
from proofmap.rules import Form, Interval, Relaxation
from proofmap.rules.rule import AnyForm


def interval_gradients(
    settings: BackwardPass, rows: OptimisedRows, specification: Tensor, wanted: Tensor
) -> dict[str, Interval]:
    """Return the gradients (C, entries) of output bounds with respect to the endpoints of every hidden interval.

    At most one row of each case is wanted. Its bound is measured as a share of the row's range over the ball. All rows
    use the free parameters that `rows` ended with.
    """
    state = rows.state
    every = torch.arange(state.balls.count, device=state.balls.x.device)
    substitution = _GradientSubstitution(rows.continued(state, every))
    bounder = BackwardBounder(state, settings, substitution)
    bounder.final(specification, wanted)
    gradients = substitution.gradients
    relaxed = filter(node_facts.is_nonlinear, state.graph.nodes)
    unstable = {name: entries for node in relaxed for name, entries in state.unstable(node)}
    for node in reversed(state.graph.nodes):
        if node.name in unstable and node.name in gradients:
            gradient = gradients[node.name].pick(unstable[node.name].at)
            entries = unstable[node.name][(gradient.lower != 0) | (gradient.upper != 0)]
            if len(entries):
                bounder.backsubstitute_rows(node.name, entries, state.relaxations, lambda part, forms, bias: None)
    return gradients


class _GradientSubstitution(Substitution):
    """Back-substitution that passes the gradient of each row on to the intervals that the row depends on."""

    def __init__(self, rows: OptimisedRows) -> None:
        self.rows: OptimisedRows = rows
        self.gradients: dict[str, Interval] = {}  # (C, entries) by node, for lower and upper endpoints

    def substitute(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        objective = self.rows.objective(name, form, owner, relaxations, rows, by_intervals=True)
        with torch.enable_grad():
            forms, bound = objective.bounds({})
        if len(form) == len(rows):  # rows of the output
            weight = self._inverse_range(forms, bound, owner)
        else:  # upper bounds, and the negatives of lower bounds
            both = self.gradients[name].pick(rows.at)
            weight = torch.cat([both.upper, -both.lower])
        endpoints = [
            end for entries in objective.free_entries().values() for x in entries.inputs for end in (x.lower, x.upper)
        ]
        if endpoints:
            self._pass_on(objective, torch.autograd.grad(bound, endpoints, weight, materialize_grads=True))
        return {}, bound.detach()

    def extra_bytes(self, widths: Sequence[int]) -> int:
        return self.rows.extra_bytes(widths)

    def _inverse_range(self, forms: Mapping[str, Form], bound: Tensor, owner: Tensor) -> Tensor:
        """Return 1 / (range of each row's form over the ball), or 0 for a constant form."""
        state = self.rows.state
        form = forms.get(state.graph.input.name)
        if not isinstance(form, Tensor):
            return torch.zeros_like(bound)
        swing = state.balls.concretise(form.detach(), owner, full_only=True)[:, 0]
        return torch.where(swing > 0, 1 / swing, 0)

    def _pass_on(self, objective: AlphaObjective[AnyForm], slopes: tuple[Tensor, ...]) -> None:
        """Add the gradients of these rows to those of the interval endpoints that they depend on."""
        state, remaining = self.rows.state, iter(slopes)
        for entries in objective.free_entries().values():
            for name in entries.node.inputs:
                size = state.graph[name].size
                if name not in self.gradients:
                    self.gradients[name] = Interval(*slopes[0].new_zeros(2, len(state.cases), size))
                at = objective.owner[entries.row] * size + entries.source
                for end in (self.gradients[name].lower, self.gradients[name].upper):
                    end.view(-1).index_add_(0, at, next(remaining).squeeze(1).nan_to_num(0.0, 0.0, 0.0))
