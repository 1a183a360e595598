"""Backward bounds (CROWN, Zhang et al. 2018): back-substitution of linear forms from every node to the input."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from proofmap.inputs.window_forms import WindowForms, places_of_entries
from proofmap.rules import Form, Interval, Relaxation
from proofmap.rules.rule import AnyForm
from proofmap.runtime.memory import bytes_needed, run_rows

_BYTES_TO_NUMBER_GROUPS = 48  # per input variable in a window, while its groups are numbered: six int64 values

# Receives some rows, their forms of the input (or of nodes without a relaxation), and the biases of the forms.
FormsReceiver = Callable[[BoundRows, dict[str, Form], Tensor], None]


@dataclass(frozen=True)
class BackwardPass(Pass):
    """The settings of backward bounds. Every bound is a linear form that is substituted back to the input.

    prefilter: neurons that cheaper bounds prove stable are skipped. windows: the form of an entry of a feature map is
    stored on its receptive window only.
    """

    prefilter: bool = True
    windows: bool = True

    refines = True

    def begin(self, state: BoundState) -> BackwardBounder:
        return BackwardBounder(state, self)


class Substitution(ABC):
    """The back-substitution of the forms of backward bounds: through fixed or through optimised relaxations."""

    @abstractmethod
    def substitute(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        """Substitute forms of a node's value back, as `backsubstitute` does.

        The first forms belong to `rows`. If there are twice as many, the second half has the opposite sign.
        """

    def extra_bytes(self, widths: Sequence[int]) -> int:
        """Return the memory of one row beyond its form, which has `widths` coefficients at the nodes that it passes."""
        return 0


@dataclass(frozen=True, eq=False)
class FixedRelaxations(Substitution):
    """CROWN: every row of a case uses the same relaxations."""

    state: BoundState

    def substitute(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        return backsubstitute(self.state.graph, name, form, owner, relaxations, rounding=self.state.rounding)


class BackwardBounder(Bounder):
    """Backward bounds during one walk over a graph."""

    def __init__(self, state: BoundState, settings: BackwardPass, substitution: Substitution | None = None) -> None:
        super().__init__(state)
        self._settings = settings
        self.substitution: Substitution = FixedRelaxations(state) if substitution is None else substitution
        self._prefilter = Prefilter(state) if settings.prefilter else None

    def tighten_inputs(self, node: Node) -> None:
        if self._prefilter is not None:
            self._prefilter.narrow(node, self)
        super().tighten_inputs(node)

    def for_members(self, state: BoundState, index: Tensor) -> BackwardBounder:
        return BackwardBounder(state, self._settings)

    def tighten(self, name: str, rows: BoundRows) -> RowBounds:
        """Bound entry k from above by the form +1 at k, and from below by -1 at k.

        If `rows.side` selects one bound, the other one is infinite.
        """
        balls, full_only = self.state.balls, not self.state.for_members
        parts: list[RowBounds] = []

        def concretise(part: BoundRows, forms: dict[str, Form], bias: Tensor) -> None:
            form = forms.get(self.state.graph.input.name)
            groups = None
            if isinstance(form, WindowForms):
                swing, groups = balls.maximise_windows(form, full_only=full_only)
                groups = groups[: len(part)]
            elif form is not None:
                swing = self._maximise(form, part.case.repeat(len(form) // len(part)), full_only)
            else:  # the value does not depend on the input
                swing = bias.new_zeros(1, 1 if full_only else balls.members)
            largest = bias[:, None] + swing
            upper = largest[: len(part)] if part.side >= 0 else torch.full_like(largest, inf)
            lower = -largest[-len(part) :] if part.side <= 0 else torch.full_like(largest, -inf)
            parts.append(RowBounds(part, lower, upper, groups))

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
        """Bound some entries on the full ball: substitute back through these relaxations, then use intervals."""
        parts: list[BoundRows] = []
        bounds: list[Tensor] = []

        def concretise(part: BoundRows, forms: dict[str, Form], bias: Tensor) -> None:
            parts.append(part)
            bounds.append(interval.maximise_forms(self.state, forms, bias, part.case.repeat(2)))

        self.backsubstitute_rows(name, rows, relaxations, concretise)
        upper, lower = (torch.cat(side) for side in zip(*(both.chunk(2) for both in bounds), strict=True))
        return BoundRows.together(parts), Interval(-lower, upper)

    def backsubstitute_rows(
        self, name: str, rows: BoundRows, relaxations: Mapping[str, Relaxation], receive: FormsReceiver
    ) -> None:
        """Substitute the forms +1 and then -1 of each entry back, in pieces that fit the memory budget.

        If `rows.side` selects one bound, only the forms of that sign are used.
        """
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
            receive(part, *self.substitution.substitute(name, *start(part), relaxations, part))

        members = state.balls.members if state.for_members else 1
        if is_map:
            widths: list[int] = []
            none = start(rows[:0])  # zero rows are enough to measure the widths
            final_forms, _ = backsubstitute(
                state.graph, name, *none, relaxations, lambda _, form: widths.append(_width(form))
            )
            widths += map(_width, final_forms.values())
            row_bytes = self._bytes_of_row(widths, members)
            if state.for_members and isinstance(end := final_forms.get(state.graph.input.name), WindowForms):
                row_bytes = max(row_bytes, (like.element_size() + _BYTES_TO_NUMBER_GROUPS) * _width(end))
        else:
            row_bytes = self._bytes_of_row(self._sizes(name), members)
        run_rows(len(rows), signs * row_bytes, state.budget, like.device, piece)

    def _bytes_of_row(self, widths: Sequence[int], members: int) -> int:
        """Return the memory of one row, whose form has `widths` coefficients at the nodes that it passes."""
        form = bytes_needed("back", max(widths) + members, self.state.balls.x.element_size())
        return self.substitution.extra_bytes(widths) + form

    def _sizes(self, name: str) -> list[int]:
        """Return the sizes of all nodes that a dense form of this node can pass."""
        graph = self.state.graph
        return [graph[one].size for one in ancestors(graph.nodes, name)]

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        graph, balls = self.state.graph, self.state.balls
        case, row = wanted.nonzero(as_tuple=True)
        value: Tensor = specification.new_full((*wanted.shape, balls.members), inf)  # (C, R, members)

        def piece(first: int, last: int) -> None:
            at = (case[first:last], row[first:last])
            start = specification[at].unflatten(1, graph[graph.output].shape)
            forms, bias = self.substitution.substitute(
                graph.output, start, at[0], self.state.relaxations, BoundRows(*at)
            )
            form = forms.get(graph.input.name)  # None if the output does not depend on the input
            value[at] = bias[:, None] + (0 if form is None else balls.maximise(form, at[0]))

        each = self._bytes_of_row(self._sizes(graph.output), balls.members)
        run_rows(len(row), each, self.state.budget, value.device, piece)
        return value.transpose(1, 2)


def _units(node: Node, rows: BoundRows, like: Tensor) -> Form:
    """Return dense forms with the coefficient 1 at each row's entry."""
    return F.one_hot(rows.entry, node.size).to(like.dtype).view(len(rows), *node.shape)


def _unit_windows(node: Node, rows: BoundRows, like: Tensor) -> Form:
    """Return the same forms as windows of the feature map."""
    places, channel = places_of_entries(rows.case, rows.entry, node.shape)
    return WindowForms.unit(places, channel, node.shape, like)


def _signed(form: Form, side: int) -> Form:
    """Return the form with the sign `side`, or for side 0 the forms with sign 1, then those with sign -1."""
    signs = (side,) if side else (1, -1)
    if isinstance(form, WindowForms):
        values = torch.cat([sign * form.values for sign in signs])
        return replace(form, values=values, places=form.places if side else form.places.twice())
    return torch.cat([sign * form for sign in signs])


def _width(form: Form) -> int:
    """Return the number of coefficients of one row."""
    return prod((form.values if isinstance(form, WindowForms) else form).shape[1:])
