"""Backward: linear forms of a value, carried back to the input through relaxations (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.bounds import interval
from proofmap.bounds.linear import rewrite
from proofmap.bounds.passes import Pass
from proofmap.bounds.state import Rows, Tightened
from proofmap.family import Family
from proofmap.graph.ir import Graph, Node
from proofmap.memory import bytes_of, in_pieces, piece_of
from proofmap.rules import Form, Relaxation
from proofmap.windows import Windows, where_from

_NUMBERING = 48  # bytes for each variable that a window sees while its groups are numbered: six times an int64


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
    return bytes_of("back", widest + members, itemsize)


def _is_map(node: Node) -> bool:
    """Whether a form of one entry of the value can be a window."""
    return len(node.shape) > 1 and prod(node.shape[1:]) > 1


def _units(node: Node, rows: Rows, like: Tensor, both: bool) -> Form:
    """The forms +1 at each entry and, for both signs, -1 at each: windows, where the value is a map."""
    if not _is_map(node):
        unit = F.one_hot(rows.entry, node.size).to(like.dtype).view(len(rows), *node.shape)
        return torch.cat([unit, -unit]) if both else unit
    places, channel = where_from(rows.sample, rows.entry, node.shape)
    one = Windows.unit(places, channel, node.shape, like)
    return replace(one, values=torch.cat([one.values, -one.values]), places=places.twice()) if both else one


def _values(form: Form) -> Tensor:
    return form.values if isinstance(form, Windows) else form


class BackwardPass(Pass):
    """Nothing is carried along: every bound is a form that goes all the way back."""

    def visit(self, node: Node) -> None:
        pass

    def tighten(self, name: str, rows: Rows) -> Tightened:
        """Entry k from above by the form +1 at k, from below by -1 at k."""
        state = self.state
        only = not state.members
        found: list[Tightened] = []

        def take(part: Rows, forms: dict[str, Form], bias: Tensor) -> None:
            form = forms.get(state.graph.input.name)
            seen = None
            if isinstance(form, Windows):
                swing, seen = state.family.maximise_windows(form, full_only=only)
                seen = seen[: len(part)]
            elif form is not None:
                swing = state.family.maximise(form, part.sample.repeat(2), full_only=only)
            else:  # the value does not depend on the input
                swing = bias.new_zeros(1, 1 if only else state.family.members)
            both = bias[:, None] + swing
            found.append(Tightened(part, -both[len(part) :], both[: len(part)], seen))

        self.send(name, rows, state.relaxations, take)
        return Tightened.together(found)

    def near(self, name: str, rows: Rows, relaxations: Mapping[str, Relaxation]) -> tuple[Rows, Tensor, Tensor]:
        """Bounds of some entries on the full ball by forms that go back over these relaxations alone, to intervals."""
        found: list[tuple[Rows, Tensor]] = []

        def take(part: Rows, forms: dict[str, Form], bias: Tensor) -> None:
            found.append((part, interval.at_the_ends(forms, bias, part.sample.repeat(2), self.state.intervals)))

        self.send(name, rows, relaxations, take)
        parts, both = zip(*found, strict=True)
        upper, lower = (torch.cat(side) for side in zip(*(b.chunk(2) for b in both), strict=True))
        sample, entry = (torch.cat([getattr(p, which) for p in parts]) for which in ("sample", "entry"))
        return Rows(sample, entry), -lower, upper

    def send(
        self,
        name: str,
        rows: Rows,
        relaxations: Mapping[str, Relaxation],
        take: Callable[[Rows, dict[str, Form], Tensor], None],
        *,
        both: bool = True,
    ) -> None:
        """Send the forms +1 at each entry back and, after them, -1 at each, in pieces that fit; or +1 alone.

        `take` is given each piece's rows, where the forms ended, and their biases.
        """
        state, like = self.state, self.state.family.x
        node = state.graph[name]
        if _is_map(node):
            rows = rows.by_place(node.shape)
        signs = 2 if both else 1

        def way(part: Rows, watch: Callable[[Form], object] = lambda form: None) -> tuple[dict[str, Form], Tensor]:
            return rewrite(
                state.graph, name, _units(node, part, like, both), part.sample.repeat(signs), relaxations, watch
            )

        def piece(start: int, stop: int) -> None:
            take(rows[start:stop], *way(rows[start:stop]))

        width = state.family.members if state.members else 1
        row = bytes_per_row(state.graph, name, width, like.element_size())
        if _is_map(node):
            forms: list[Form] = []
            ends, _ = way(rows[:0], forms.append)  # no row, to see how wide they get
            widest = max(prod(_values(form).shape[1:]) for form in (*forms, *ends.values()))
            row = bytes_of("back", widest + width, like.element_size())
            if state.members and isinstance(end := ends.get(state.graph.input.name), Windows):
                row = max(row, (like.element_size() + _NUMBERING) * prod(end.values.shape[1:]))
        in_pieces(len(rows), piece_of(state.budget, like.device) // (signs * row), piece)

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        graph, family = self.state.graph, self.state.family
        sample, row = wanted.nonzero(as_tuple=True)
        value: Tensor = specification.new_full((*wanted.shape, family.members), inf)

        def piece(first: int, last: int) -> None:
            at = (sample[first:last], row[first:last])
            form = specification[at].unflatten(1, graph[graph.output].shape)
            value[at] = bound_forms(graph, graph.output, form, at[0], self.state.relaxations, family)

        each = bytes_per_row(graph, graph.output, family.members, value.element_size())
        in_pieces(len(row), piece_of(self.state.budget, value.device) // each, piece)
        return value.transpose(1, 2)
