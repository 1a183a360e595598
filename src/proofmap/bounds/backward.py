"""Backward: linear forms of a value, carried back to the input through relaxations (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.bounds import interval
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.passes import Bounder, Pass
from proofmap.bounds.prefilter import Prefilter
from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.graph.walk import ancestors
from proofmap.inputs.window_forms import Windows, where_from
from proofmap.rules import Form, Interval, Relaxation
from proofmap.rules.rule import AnyForm
from proofmap.runtime.memory import bytes_of, in_pieces, rows_of

_NUMBERING = 48  # bytes for each variable that a window sees while its groups are numbered: six times an int64

# BoundRows, where their forms ended, and the biases of the forms.
Arrived = Callable[[BoundRows, dict[str, Form], Tensor], None]


@dataclass(frozen=True)
class BackwardPass(Pass):
    """Nothing is carried along: every bound is a form that goes all the way back.

    sieve: what shorter ways prove harmless is not sent. windows: forms of an entry of a map are windows of it.
    """

    prefilter: bool = True
    windows: bool = True

    refines = True

    def begin(self, state: BoundState) -> BackwardBounder:
        return BackwardBounder(state, self)


class BackwardBounder(Bounder):
    """The pass in one walk."""

    def __init__(self, state: BoundState, settings: BackwardPass) -> None:
        super().__init__(state)
        self._settings = settings
        self._prefilter = Prefilter(state) if settings.prefilter else None

    def tighten_inputs(self, node: Node) -> None:
        if self._prefilter is not None:
            self._prefilter.narrow(node, self)
        super().tighten_inputs(node)

    def for_members(self, state: BoundState, index: Tensor) -> BackwardBounder:
        return BackwardBounder(state, self._settings)

    def tighten(self, name: str, rows: BoundRows) -> RowBounds:
        """Entry k from above by the form +1 at k, from below by -1 at k; nothing of an end that is not asked for."""
        balls, full_only = self.state.balls, not self.state.for_members
        parts: list[RowBounds] = []

        def concretise(part: BoundRows, forms: dict[str, Form], bias: Tensor) -> None:
            form = forms.get(self.state.graph.input.name)
            seen = None
            if isinstance(form, Windows):
                swing, seen = balls.maximise_windows(form, full_only=full_only)
                seen = seen[: len(part)]
            elif form is not None:
                swing = self._maximise(form, part.case.repeat(len(form) // len(part)), full_only)
            else:  # the value does not depend on the input
                swing = bias.new_zeros(1, 1 if full_only else balls.members)
            ends = bias[:, None] + swing
            upper = ends[: len(part)] if part.side >= 0 else torch.full_like(ends, inf)
            lower = -ends[-len(part) :] if part.side <= 0 else torch.full_like(ends, -inf)
            parts.append(RowBounds(part, lower, upper, seen))

        self.backsubstitute_rows(name, rows, self.state.relaxations, concretise)
        return RowBounds.together(parts)

    def _maximise(self, form: Tensor, owner: Tensor, full_only: bool) -> Tensor:
        balls, cut = self.state.balls, self.state.cases.cut
        if cut is None or not full_only:
            return balls.maximise(form, owner, full_only=full_only)
        return cut.maximise(balls, form, owner)

    def bound_over_last_layers(
        self, name: str, rows: BoundRows, relaxations: Mapping[str, Relaxation]
    ) -> tuple[BoundRows, Interval]:
        """Bounds of some entries on the full ball by forms that go back over these relaxations alone, to intervals."""
        parts: list[BoundRows] = []
        bounds: list[Tensor] = []

        def concretise(part: BoundRows, forms: dict[str, Form], bias: Tensor) -> None:
            parts.append(part)
            bounds.append(interval.maximise_forms(self.state, forms, bias, part.case.repeat(2)))

        self.backsubstitute_rows(name, rows, relaxations, concretise)
        upper, lower = (torch.cat(side) for side in zip(*(both.chunk(2) for both in bounds), strict=True))
        return BoundRows.together(parts), Interval(-lower, upper)

    def backsubstitute_rows(
        self,
        name: str,
        rows: BoundRows,
        relaxations: Mapping[str, Relaxation],
        arrived: Arrived,
    ) -> None:
        """Send the forms +1 at each entry back and, after them, -1 at each, in pieces that fit; or those of a side."""
        state, like = self.state, self.state.balls.x
        node = state.graph[name]
        is_map = self._settings.windows and len(node.shape) > 1 and prod(node.shape[1:]) > 1
        if is_map:
            rows = rows.by_place(node.shape)
        signs = 1 if rows.side else 2

        def start(part: BoundRows) -> tuple[Form, Tensor]:
            unit = (_unit_windows if is_map else _units)(node, part, like)
            return _signed(unit, part.side), part.case.repeat(signs)

        def piece(first: int, last: int) -> None:
            part = rows[first:last]
            arrived(part, *self.backsubstitute_forms(name, *start(part), relaxations, part))

        members = state.balls.members if state.for_members else 1
        if is_map:
            widths: list[int] = []
            none = start(rows[:0])  # no row, to see how wide they get
            ends, _ = backsubstitute(state.graph, name, *none, relaxations, lambda _, form: widths.append(_width(form)))
            widths += map(_width, ends.values())
            row = self.bytes_of_row(widths, members)
            if state.for_members and isinstance(end := ends.get(state.graph.input.name), Windows):
                row = max(row, (like.element_size() + _NUMBERING) * _width(end))
        else:
            row = self.bytes_of_row(self._sizes(name), members)
        in_pieces(len(rows), rows_of(state.budget, like.device) // (signs * row), piece)

    def backsubstitute_forms(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        """Carry forms of a node's value back, by `backsubstitute`.

        The first forms belong to `rows`. If there are twice as many, the second half has the opposite sign.
        """
        return backsubstitute(self.state.graph, name, form, owner, relaxations, rounding=self.state.rounding)

    def bytes_of_row(self, widths: Sequence[int], members: int) -> int:
        """The bytes that one row takes whose form has so many coefficients at the nodes that it meets."""
        return bytes_of("back", max(widths) + members, self.state.balls.x.element_size())

    def _sizes(self, name: str) -> list[int]:
        """The entries of every node that a dense form of this one can meet."""
        graph = self.state.graph
        return [graph[one].size for one in ancestors(graph.nodes, name)]

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        graph, balls = self.state.graph, self.state.balls
        case, row = wanted.nonzero(as_tuple=True)
        value: Tensor = specification.new_full((*wanted.shape, balls.members), inf)

        def piece(first: int, last: int) -> None:
            at = (case[first:last], row[first:last])
            start = specification[at].unflatten(1, graph[graph.output].shape)
            forms, bias = self.backsubstitute_forms(graph.output, start, at[0], self.state.relaxations, BoundRows(*at))
            form = forms.get(graph.input.name)  # None: the output does not depend on the input
            value[at] = bias[:, None] + (0 if form is None else balls.maximise(form, at[0]))

        each = self.bytes_of_row(self._sizes(graph.output), balls.members)
        in_pieces(len(row), rows_of(self.state.budget, value.device) // each, piece)
        return value.transpose(1, 2)


def _units(node: Node, rows: BoundRows, like: Tensor) -> Form:
    """The forms +1 at each entry."""
    return F.one_hot(rows.entry, node.size).to(like.dtype).view(len(rows), *node.shape)


def _unit_windows(node: Node, rows: BoundRows, like: Tensor) -> Form:
    """The same as windows of the map."""
    places, channel = where_from(rows.case, rows.entry, node.shape)
    return Windows.unit(places, channel, node.shape, like)


def _signed(form: Form, side: int) -> Form:
    """The forms that bound a side from above; or those of the upper and, after them, of the lower."""
    signs = (side,) if side else (1, -1)
    if isinstance(form, Windows):
        values = torch.cat([sign * form.values for sign in signs])
        return replace(form, values=values, places=form.places if side else form.places.twice())
    return torch.cat([sign * form for sign in signs])


def _width(form: Form) -> int:
    """The coefficients of one row."""
    return prod((form.values if isinstance(form, Windows) else form).shape[1:])
