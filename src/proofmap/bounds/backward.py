"""Backward: linear forms of a value, carried back to the input through relaxations (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from proofmap.ball import Family
from proofmap.bounds.linear import rewrite
from proofmap.bounds.memory import in_pieces, piece_of
from proofmap.bounds.passes import Pass
from proofmap.bounds.state import Rows, Tightened, everything
from proofmap.graph.ir import Graph, Node
from proofmap.rules import Relaxation

_COPIES = 10  # of the widest layer of coefficients that live at once for a row


def bound_forms(
    graph: Graph,
    start: str,
    coefficients: Tensor,
    owner: Tensor,
    relaxations: Mapping[str, Relaxation],
    family: Family,
    *,
    full_only: bool = False,
) -> Tensor:
    """Upper bounds (K, members) of the forms <A, value of start> over the balls of their owners."""
    forms, bias = rewrite(graph, start, coefficients, owner, relaxations)
    if graph.input.name not in forms:  # the value does not depend on the input
        return bias[:, None].expand(-1, 1 if full_only else family.members)
    return bias[:, None] + family.maximise(forms[graph.input.name], owner, full_only=full_only)


def bytes_per_row(graph: Graph, start: str, members: int, itemsize: int) -> int:
    """What a row takes on its way back, from the widest layer that it meets."""
    reached = {start}
    for node in reversed(graph.nodes):
        if node.name in reached:
            reached.update(node.inputs)
    widest = max(graph[name].size for name in reached)
    return _COPIES * itemsize * (widest + members)


class BackwardPass(Pass):
    """Nothing is carried along: every bound is a form that goes all the way back."""

    def visit(self, node: Node) -> None:
        pass

    def tighten(self, name: str, rows: Rows) -> Tightened:
        """Entry k from above by the form +1 at k, from below by -1 at k."""
        graph, family = self.state.graph, self.state.family
        width = family.members if self.state.members else 1
        like = family.x
        lower = like.new_empty(len(rows), width)
        upper = like.new_empty(len(rows), width)

        def piece(start: int, stop: int) -> None:
            part = rows[start:stop]
            unit = like.new_zeros(stop - start, graph[name].size)
            unit[torch.arange(stop - start, device=like.device), part.entry] = 1.0
            unit = unit.unflatten(1, graph[name].shape)
            both = bound_forms(
                graph,
                name,
                torch.cat([unit, -unit]),
                part.sample.repeat(2),
                self.state.relaxations,
                family,
                full_only=not self.state.members,
            )
            upper[start:stop], lower[start:stop] = both[: stop - start], -both[stop - start :]

        both_sides = 2 * bytes_per_row(graph, name, width, like.element_size())
        in_pieces(len(rows), piece_of(self.state.budget, like.device) // both_sides, piece)
        return Tightened(rows, lower, upper)

    def final(self, specification: Tensor) -> Tensor:
        graph, family = self.state.graph, self.state.family
        count, rows, _ = specification.shape
        owner, _ = everything(count, rows, specification.device)
        start = specification.flatten(0, 1).unflatten(1, graph[graph.output].shape)
        value: Tensor = start.new_empty(len(start), family.members)

        def piece(first: int, last: int) -> None:
            part, whose = start[first:last], owner[first:last]
            value[first:last] = bound_forms(graph, graph.output, part, whose, self.state.relaxations, family)

        row = bytes_per_row(graph, graph.output, family.members, start.element_size())
        in_pieces(len(start), piece_of(self.state.budget, start.device) // row, piece)
        return value.reshape(count, rows, -1).transpose(1, 2)
