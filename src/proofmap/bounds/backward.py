"""Backward: linear forms of a value, carried back to the input through relaxations (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.ball import Family
from proofmap.bounds.linear import rewrite
from proofmap.bounds.memory import in_pieces, piece_of
from proofmap.bounds.passes import Pass
from proofmap.bounds.state import Rows, Tightened, everything
from proofmap.graph.ir import Graph, Node
from proofmap.rules import Form, Relaxation
from proofmap.windows import Windows, where_from

_COPIES = 10  # of the widest layer of coefficients that live at once for a row


def bound_forms(
    graph: Graph,
    start: str,
    form: Tensor,
    owner: Tensor,
    relaxations: Mapping[str, Relaxation],
    family: Family,
    *,
    full_only: bool = False,
) -> Tensor:
    """Upper bounds (K, members) of the forms <A, value of start> over the balls of their owners."""
    forms, bias = rewrite(graph, start, form, owner, relaxations)
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


def _is_map(node: Node) -> bool:
    """Whether a form of one entry of the value can be a window."""
    return len(node.shape) > 1 and prod(node.shape[1:]) > 1


class BackwardPass(Pass):
    """Nothing is carried along: every bound is a form that goes all the way back."""

    def visit(self, node: Node) -> None:
        pass

    def tighten(self, name: str, rows: Rows) -> Tightened:
        """Entry k from above by the form +1 at k, from below by -1 at k."""
        node = self.state.graph[name]
        mapped = _is_map(node)
        if mapped:
            rows = rows.by_place(node.shape)
        found: list[Tightened] = []

        def piece(start: int, stop: int) -> None:
            part = rows[start:stop]
            found.append(self._windows(node, part) if mapped else self._dense(node, part))

        row = (
            self._bytes_per_row(node, rows[:0])
            if mapped
            else bytes_per_row(self.state.graph, name, self._width, self.state.family.x.element_size())
        )
        in_pieces(len(rows), piece_of(self.state.budget, self.state.family.x.device) // (2 * row), piece)
        return Tightened.together(found)

    def _dense(self, node: Node, rows: Rows) -> Tightened:
        unit = F.one_hot(rows.entry, node.size).to(self.state.family.x.dtype).unflatten(1, node.shape)
        state, owner = self.state, rows.sample.repeat(2)
        both = bound_forms(
            state.graph,
            node.name,
            torch.cat([unit, -unit]),
            owner,
            state.relaxations,
            state.family,
            full_only=not state.members,
        )
        return Tightened(rows, -both[len(rows) :], both[: len(rows)])

    def _windows(self, node: Node, rows: Rows) -> Tightened:
        """The same, while a form is still zero outside a window."""
        state = self.state
        forms, bias = rewrite(state.graph, node.name, self._start(node, rows), rows.sample.repeat(2), state.relaxations)
        form = forms.get(state.graph.input.name)
        only = not state.members
        seen = None
        if isinstance(form, Windows):
            swing, seen = state.family.maximise_windows(form, full_only=only)
            seen = seen[: len(rows)]
        elif form is not None:
            swing = state.family.maximise(form, rows.sample.repeat(2), full_only=only)
        else:
            swing = bias.new_zeros(1, 1 if only else state.family.members)
        both = bias[:, None] + swing
        return Tightened(rows, -both[len(rows) :], both[: len(rows)], seen)

    def _start(self, node: Node, rows: Rows) -> Windows:
        places, channel = where_from(rows.sample, rows.entry, node.shape)
        unit = Windows.unit(places, channel, node.shape, self.state.family.x)
        return replace(unit, values=torch.cat([unit.values, -unit.values]), places=places.twice())

    def _bytes_per_row(self, node: Node, none: Rows) -> int:
        """What a row of windows takes on its way back, found by sending no row."""
        widest = 0

        def watch(form: Form) -> None:
            nonlocal widest
            widest = max(widest, prod((form.values if isinstance(form, Windows) else form).shape[1:]))

        rewrite(self.state.graph, node.name, self._start(node, none), none.sample, self.state.relaxations, watch)
        return _COPIES * self.state.family.x.element_size() * (widest + self._width)

    @property
    def _width(self) -> int:
        """The members that a row is concretised for."""
        return self.state.family.members if self.state.members else 1

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
