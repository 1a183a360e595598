"""Per-row relaxation parameters of α-CROWN: every row has its own slopes for the entries that leave a choice.

Most entries leave none: a stable ReLU has a single line. So parameters exist only for pairs (row, free entry), stored
flat. All other entries keep the relaxation of their case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules import RULES, AffineBounds, Form, Interval, Nonlinear, Relaxation
from proofmap.rules.elementwise_product import McCormickPlanes
from proofmap.rules.maximum_of_two import MaximumPlanes
from proofmap.rules.rule import FreeParameters, Kind
from proofmap.rules.scalar_lines import Lines, at_rows
from proofmap.runtime.block_sums import dot

ParametricRelaxation = Lines | MaximumPlanes | McCormickPlanes  # the relaxations of rules with free parameters


@dataclass(frozen=True, eq=False)
class FreeRelaxation:
    """The free relaxation parameters (C, F, *shape) of a node on all cases, and the intervals that they depend on."""

    node: Node
    inputs: tuple[Interval, ...]
    free: FreeParameters
    relaxation: ParametricRelaxation

    @staticmethod
    def of(state: BoundState, name: str) -> FreeRelaxation | None:
        """Return those of a relaxed node, or None if nothing is free."""
        node, rule = state.graph[name], RULES[state.graph[name].op]
        assert isinstance(rule, Nonlinear)
        inputs = tuple(map(state.interval, node.inputs))
        free = rule.free(node, *inputs)
        if free is None or not bool((free.least < free.most).any()):
            return None
        relaxation = state.relaxations[name]
        assert isinstance(relaxation, ParametricRelaxation)
        start = free.within(state.cases.slopes.get(name))
        return FreeRelaxation(node, inputs, replace(free, start=start), relaxation)

    @property
    def entries(self) -> Tensor:
        """Return (C, *shape): the entries with a free parameter."""
        return (self.free.least < self.free.most).any(1)


@dataclass(frozen=True, eq=False)
class _TwoLines:
    """The relaxation of entries without free parameters, where `closed` is 1. It holds for each row or for all rows."""

    relaxation: ParametricRelaxation
    closed: Tensor

    def pull(self, values: Tensor) -> tuple[tuple[Tensor | None, ...], Tensor]:
        """Return forms of the inputs, and biases."""
        return self.relaxation.pull(values * self.closed, None)


@dataclass(frozen=True, eq=False)
class _OneLine:
    """The same for entries with equal lower and upper lines, which need one product each."""

    slopes: tuple[Tensor | None, ...]
    bias: Tensor | None

    def pull(self, values: Tensor) -> tuple[tuple[Tensor | None, ...], Tensor]:
        bias = values.new_zeros(len(values)) if self.bias is None else dot(values, self.bias)
        return tuple(slope if slope is None else values * slope for slope in self.slopes), bias


def _as_one_line(two_lines: _TwoLines) -> _OneLine | None:
    """Return these entries as single lines, or None if the two lines of an entry differ."""
    one, closed = two_lines.relaxation, two_lines.closed
    if isinstance(one, Lines):
        below = [one.lower_slope, torch.zeros_like(one.upper_bias) if one.lower_bias is None else one.lower_bias]
        above = [one.upper_slope, one.upper_bias]
    elif isinstance(one, McCormickPlanes):
        below = [one.lower_first, one.lower_second, one.lower_bias]
        above = [one.upper_first, one.upper_second, one.upper_bias]
    else:
        below = [1 - one.share, one.share, torch.zeros_like(one.bias)]
        above = [one.first, one.second, one.bias]
    if not all(torch.equal(closed * low, closed * high) for low, high in zip(below, above, strict=True)):
        return None
    *slopes, bias = (closed * line for line in above)
    return _OneLine(
        (None, *slopes) if isinstance(one, MaximumPlanes) else tuple(slopes), bias if bool(bias.any()) else None
    )


@dataclass(frozen=True, eq=False)
class FreeEntries:
    """The free entries of some rows: n pairs (row, entry), each treated as a case (n, 1), and all other entries."""

    row: Tensor  # (n,)
    place: Tensor  # (n,) index in the flattened forms of all rows
    entry: Tensor  # (n,) index in the row's form
    source: Tensor  # (n,) index in the node's value
    node: Node
    inputs: tuple[Interval, ...]
    free: FreeParameters
    others: _TwoLines | _OneLine  # the relaxation of the other entries
    width: int  # number of entries of one row's form

    def keys(self, ids: Tensor) -> Tensor:
        """Return (n,) keys that are unique among all entries of rows with different ids (K,)."""
        return ids[self.row] * self.width + self.entry

    @staticmethod
    def of(one: FreeRelaxation, form: Form, owner: Tensor, *, fixed: bool) -> FreeEntries:
        """Return the free entries of rows with this form.

        fixed: the form does not depend on parameters, so entries with coefficient 0 are left out.
        """

        def read(values: Tensor) -> Tensor:
            return at_rows(values, form, owner)

        mask = read(one.entries.to(one.free.start.dtype)).flatten(1)
        values = form.values if isinstance(form, WindowForms) else form
        row, entry = (mask * values.flatten(1) if fixed else mask.expand(len(form), -1)).nonzero(as_tuple=True)
        case = row if isinstance(form, WindowForms) else owner[row]

        def pick(values: Tensor) -> Tensor:
            """(C or 1, *shape) -> (n, 1)."""
            flat = (form.at_rows(values) if isinstance(form, WindowForms) else values).flatten(1)
            return flat[case if len(flat) > 1 else 0, entry].unsqueeze(1)

        node, weight = one.node, one.node.weight
        if weight is not None and weight.numel() > 1:
            node = replace(node, weight=pick(weight.expand(node.shape).unsqueeze(0)))
        inputs = tuple(Interval(pick(x.lower), pick(x.upper)) for x in one.inputs)

        def parameters(values: Tensor) -> Tensor:
            """(C, F, *shape) -> (n, F, 1)."""
            return torch.stack([pick(one) for one in values.unbind(1)], 1)

        free = FreeParameters(*(parameters(end) for end in (one.free.start, one.free.least, one.free.most)))
        lines: list[Any] = [getattr(one.relaxation, f.name) for f in fields(one.relaxation)]
        rows: list[Any] = [line if line is None else read(line) for line in lines]
        two_lines = _TwoLines(type(one.relaxation)(*rows), 1 - mask.view(-1, *values.shape[1:]))
        width = mask.shape[1]
        every = torch.arange(one.node.size, device=owner.device).view(1, *one.node.shape)
        source = pick(every).squeeze(1)
        return FreeEntries(
            row, row * width + entry, entry, source, node, inputs, free, _as_one_line(two_lines) or two_lines, width
        )


@dataclass(eq=False)
class RowRelaxation(Relaxation):
    """A relaxation with parameters (n, F, 1) of each row's own.

    `first` gives the parameters when the first form arrives. A form that does not depend on parameters is cached,
    together with the result of its other entries.
    """

    relaxation: FreeRelaxation
    first: Callable[[FreeEntries], Tensor] = lambda entries: entries.free.start
    fixed: bool = False  # whether the form is the same for all parameters
    by_intervals: bool = False  # whether bounds can be differentiated with respect to the interval endpoints
    entries: FreeEntries | None = None
    parameters: Tensor | None = None
    cached: tuple[Form, Tensor, tuple[Tensor | None, ...], Tensor] | None = None

    @property
    def current(self) -> Tensor:
        """The parameters, after a first form has arrived."""
        assert self.parameters is not None
        return self.parameters

    def restarted(self, parameters: Tensor | None) -> RowRelaxation:
        """Return a copy for other rows that start from these parameters, by default from those of `first`."""
        first = self.first if parameters is None else lambda entries: parameters
        return RowRelaxation(self.relaxation, first, self.fixed, self.by_intervals)

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        if self.entries is None or self.parameters is None:
            self.entries = FreeEntries.of(self.relaxation, form, owner, fixed=self.fixed)
            self.parameters = _leaf(self.first(self.entries))
            if self.by_intervals:
                inputs = (Interval(_leaf(x.lower), _leaf(x.upper)) for x in self.entries.inputs)
                self.entries = replace(self.entries, inputs=tuple(inputs))
        entries, rule = self.entries, RULES[self.relaxation.node.op]
        assert isinstance(rule, Nonlinear)
        own, rest, bias = self._separate(form, entries)
        relaxation = rule.relax(entries.node, *entries.inputs, slopes=self.parameters)
        assert isinstance(relaxation, ParametricRelaxation)
        mine, lift = relaxation.pull(own, None)
        parts = []
        for part, at in zip(rest, mine, strict=True):  # `rest` is 0 at free entries, and `mine` covers these alone
            if part is not None and at is not None:
                part = part.flatten().index_add(0, entries.place, at.squeeze(1)).view(part.shape)
            parts.append(replace(form, values=part) if isinstance(form, WindowForms) and part is not None else part)
        summed = bias.double().index_add(0, entries.row, lift.double())
        return tuple(parts), summed.to(bias)

    def _separate(self, form: Form, entries: FreeEntries) -> tuple[Tensor, tuple[Tensor | None, ...], Tensor]:
        """Return the coefficients (n, 1) of the free entries, and the relaxed forms and biases of the other entries."""
        if self.cached is not None and self.cached[0] is form:
            return self.cached[1:]
        values = form.values if isinstance(form, WindowForms) else form
        own = values.flatten().index_select(0, entries.place).unsqueeze(1)
        rest, bias = entries.others.pull(values)
        if not values.requires_grad:
            self.cached = (form, own, rest, bias)
        return own, rest, bias

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        return self.relaxation.relaxation.push(*inputs)


def _leaf(values: Tensor) -> Tensor:
    """Return a copy with respect to which bounds can be differentiated."""
    return values.detach().requires_grad_(torch.is_grad_enabled())
