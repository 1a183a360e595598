"""Forward bounds: affine lower and upper forms of the input, propagated from the input to the output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.passes import Bounder, Pass
from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.bounds.state import BoundState
from proofmap.errors import RoomError, in_bytes
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, AffineBounds, Linear
from proofmap.runtime.memory import bytes_needed


@dataclass(frozen=True)
class ForwardPass(Pass):
    """Bound every value by two affine forms of δ on the full ball. Each form is concretised for every member."""

    def begin(self, state: BoundState) -> ForwardBounder:
        x = state.balls.x
        needed = self.bytes_per_case(state.graph, x.element_size())
        if needed > state.budget:
            raise RoomError(
                f"forward bounds of this network need about {in_bytes(needed)} a sample, the budget is "
                f"{in_bytes(state.budget)}: give more memory, or take Backward or CrownIBP"
            )
        return ForwardBounder(state)

    def bytes_per_case(self, graph: Graph, itemsize: int) -> int:
        return bytes_needed("forward", graph.input.size * max(node.size for node in graph.nodes), itemsize)


class ForwardBounder(Bounder):
    """Forward bounds during one walk over a graph."""

    def __init__(self, state: BoundState) -> None:
        super().__init__(state)
        self._needed_at_output = node_facts.frontier(state.graph)
        self._forms: dict[str, AffineBounds] = {}

    def visit(self, node: Node) -> None:
        if node.op == "input":
            self._forms[node.name] = self._start()
        else:
            inputs = [self._forms[name] for name in node.inputs]
            rule = RULES[node.op]
            if isinstance(rule, Linear):
                self._forms[node.name] = rule.push(node, *inputs)
            else:
                self._forms[node.name] = self.state.relaxations[node.name].push(*inputs)
            self._add_rounding(node, inputs)
        for name in self.state.graph.drops[node.name]:
            if name not in self._needed_at_output:
                self._forms.pop(name, None)

    def _add_rounding(self, node: Node, inputs: list[AffineBounds]) -> None:
        """Widen the forms of a node by their rounding errors."""
        forms = self._forms[node.name]
        radius = self.state.rounding.forward_error(node, [self._size(one) for one in inputs])
        lower, upper = forms.lower_bias - radius, forms.upper_bias + radius
        self._forms[node.name] = replace(forms, lower_bias=lower, upper_bias=upper)

    def _size(self, forms: AffineBounds) -> Tensor:
        """Return the largest magnitude of both forms on the ball, for the rounding errors."""
        rounding = self.state.rounding
        below = rounding.form_magnitudes(forms.lower_weight, forms.lower_bias)
        return torch.maximum(below, rounding.form_magnitudes(forms.upper_weight, forms.upper_bias))

    def _start(self) -> AffineBounds:
        """Return the forms of the input itself: x + I δ."""
        x = self.state.balls.x
        size = prod(x.shape[1:])
        unit = torch.eye(size, dtype=x.dtype, device=x.device).reshape(1, size, *x.shape[1:])
        weight = unit.expand(len(x), *unit.shape[1:])
        return AffineBounds(weight, x, weight, x)

    def tighten(self, name: str, rows: BoundRows) -> RowBounds:
        forms = self._forms[name]
        upper = self._concretise(forms.upper_weight, forms.upper_bias, rows, 1.0)
        lower = -self._concretise(forms.lower_weight, forms.lower_bias, rows, -1.0)
        return RowBounds(rows, lower, upper)

    def _concretise(self, weight: Tensor, bias: Tensor, rows: BoundRows, sign: float) -> Tensor:
        balls, rounding = self.state.balls, self.state.rounding
        form = sign * weight.flatten(2)[rows.case, :, rows.entry]  # (K, d)
        value = sign * bias.flatten(1)[rows.at]
        value = value + rounding.form_error(rounding.form_magnitudes(weight, bias), 1).flatten(1)[rows.at]
        form = form.unflatten(1, balls.shape)
        return value[:, None] + balls.concretise(form, rows.case, full_only=not self.state.for_members)

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        """Bound each row by A⁺ U + A⁻ L, with A the row's form of the last nonlinear values (or of the input)."""
        graph, balls = self.state.graph, self.state.balls
        count, rows, _ = specification.shape
        owner = BoundRows.every(count, rows, specification.device).case
        start = specification.flatten(0, 1).unflatten(1, graph[graph.output].shape)
        forms, bias = backsubstitute(graph, graph.output, start, owner, {}, rounding=self.state.rounding)
        total = bias.new_zeros(count, rows, balls.x[0].numel())
        value = bias.reshape(count, rows)
        for name, form in forms.items():
            reached = self._forms[name]
            above, below = (f.flatten(1).reshape(count, rows, -1) for f in (form.clamp(min=0), form.clamp(max=0)))
            total = total + above @ reached.upper_weight.flatten(2).mT + below @ reached.lower_weight.flatten(2).mT
            value = value + (above @ reached.upper_bias.flatten(1).unsqueeze(2)).squeeze(2)
            value = value + (below @ reached.lower_bias.flatten(1).unsqueeze(2)).squeeze(2)
            cost = self.state.rounding.form_error(self._size(reached), 2 * graph[name].size).flatten(1)
            value = value + ((above - below) @ cost.unsqueeze(2)).squeeze(2)
        swing = balls.concretise(total.flatten(0, 1).unflatten(1, balls.shape), owner)
        bounds: Tensor = value.flatten()[:, None] + swing
        return bounds.reshape(count, rows, -1).transpose(1, 2)
