"""Relaxations with numbers of each row's own in the place of what a rule leaves free.

Most entries of a value leave nothing free: a ReLU that is on or off has one line. So a row's numbers are those of its
open entries alone, pairs (row, entry) laid flat; all other entries keep the relaxation of their case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import Windows
from proofmap.rules import RULES, Form, Forms, Interval, Nonlinear, Relaxation
from proofmap.rules.elementwise_product import Planes
from proofmap.rules.maximum_of_two import Mixture
from proofmap.rules.rule import Free, Kind
from proofmap.rules.scalar_lines import Lines, at_rows
from proofmap.runtime.block_sums import dot

ParametricRelaxation = Lines | Mixture | Planes  # what rules that leave something free relax to


@dataclass(frozen=True, eq=False)
class FreeRelaxation:
    """What a node leaves free on some cases: the numbers (C, F, *shape), and what they are made from."""

    node: Node
    inputs: tuple[Interval, ...]
    free: Free
    relaxation: ParametricRelaxation

    @staticmethod
    def of(state: BoundState, name: str) -> FreeRelaxation | None:
        """Of a node that is relaxed; None where nothing is free."""
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
        """(C, *shape): where there is something to choose."""
        return (self.free.least < self.free.most).any(1)


@dataclass(frozen=True, eq=False)
class _TwoLines:
    """Entries that are relaxed, where `closed` is 1; where it is 0 nothing is pulled. Of every row, or one for all."""

    relaxation: ParametricRelaxation
    closed: Tensor

    def pull(self, values: Tensor) -> tuple[tuple[Tensor | None, ...], Tensor]:
        """Forms of the inputs, and biases."""
        return self.relaxation.pull(values * self.closed, None)


@dataclass(frozen=True, eq=False)
class _OneLine:
    """The same where an entry is one line of its inputs, whatever the sign of its coefficient: one product each."""

    slopes: tuple[Tensor | None, ...]
    bias: Tensor | None

    def pull(self, values: Tensor) -> tuple[tuple[Tensor | None, ...], Tensor]:
        bias = values.new_zeros(len(values)) if self.bias is None else dot(values, self.bias)
        return tuple(slope if slope is None else values * slope for slope in self.slopes), bias


def _one_line(bent: _TwoLines) -> _OneLine | None:
    """These entries as single lines; None where the two lines of one differ."""
    one, closed = bent.relaxation, bent.closed
    if isinstance(one, Lines):
        below = [one.lower_slope, torch.zeros_like(one.upper_bias) if one.lower_bias is None else one.lower_bias]
        above = [one.upper_slope, one.upper_bias]
    elif isinstance(one, Planes):
        below = [one.lower_first, one.lower_second, one.lower_bias]
        above = [one.upper_first, one.upper_second, one.upper_bias]
    else:
        below = [1 - one.share, one.share, torch.zeros_like(one.bias)]
        above = [one.first, one.second, one.bias]
    if not all(torch.equal(closed * low, closed * high) for low, high in zip(below, above, strict=True)):
        return None
    *slopes, bias = (closed * line for line in above)
    return _OneLine((None, *slopes) if isinstance(one, Mixture) else tuple(slopes), bias if bool(bias.any()) else None)


@dataclass(frozen=True, eq=False)
class FreeEntries:
    """The open entries of some rows: n pairs, each a case of its own, (n, 1); the other entries as they are."""

    row: Tensor  # (n,)
    place: Tensor  # (n,) in all rows laid flat
    entry: Tensor  # (n,) of the row's form
    source: Tensor  # (n,) of the node's value
    node: Node
    inputs: tuple[Interval, ...]
    free: Free
    others: _TwoLines | _OneLine  # what the other entries are pulled by
    width: int  # the entries of one row's form

    def keys(self, ids: Tensor) -> Tensor:
        """(n,): a number for each, which no other entry of a row with one of these ids (K,) has."""
        return ids[self.row] * self.width + self.entry

    @staticmethod
    def of(one: FreeRelaxation, form: Form, owner: Tensor, *, fixed: bool) -> FreeEntries:
        """Of rows with such a form; where it is fixed, what has no coefficient in it is left out."""

        def read(values: Tensor) -> Tensor:
            return at_rows(values, form, owner)

        mask = read(one.entries.to(one.free.start.dtype)).flatten(1)
        values = form.values if isinstance(form, Windows) else form
        row, entry = (mask * values.flatten(1) if fixed else mask.expand(len(form), -1)).nonzero(as_tuple=True)
        case = row if isinstance(form, Windows) else owner[row]

        def pick(values: Tensor) -> Tensor:
            """(C or 1, *shape) -> (n, 1)."""
            flat = (form.at_rows(values) if isinstance(form, Windows) else values).flatten(1)
            return flat[case if len(flat) > 1 else 0, entry].unsqueeze(1)

        node, weight = one.node, one.node.weight
        if weight is not None and weight.numel() > 1:
            node = replace(node, weight=pick(weight.expand(node.shape).unsqueeze(0)))
        inputs = tuple(Interval(pick(x.lower), pick(x.upper)) for x in one.inputs)

        def numbers(values: Tensor) -> Tensor:
            """(C, F, *shape) -> (n, F, 1)."""
            return torch.stack([pick(number) for number in values.unbind(1)], 1)

        free = Free(*(numbers(end) for end in (one.free.start, one.free.least, one.free.most)))
        lines: list[Any] = [getattr(one.relaxation, f.name) for f in fields(one.relaxation)]
        rows: list[Any] = [line if line is None else read(line) for line in lines]
        bent = _TwoLines(type(one.relaxation)(*rows), 1 - mask.view(-1, *values.shape[1:]))
        width = mask.shape[1]
        every = torch.arange(one.node.size, device=owner.device).view(1, *one.node.shape)
        source = pick(every).squeeze(1)
        return FreeEntries(row, row * width + entry, entry, source, node, inputs, free, _one_line(bent) or bent, width)


@dataclass(eq=False)
class RowRelaxation(Relaxation):
    """What is open with numbers (n, F, 1) of the rows' own: those that `begin` gives when it sees the first rows, until
    there are others.

    A form that comes again, whatever the numbers are, is remembered with what becomes of its other entries.
    """

    open: FreeRelaxation
    begin: Callable[[FreeEntries], Tensor] = lambda pairs: pairs.free.start
    fixed: bool = False  # whether the form is the same whatever the numbers are
    by_ends: bool = False  # whether the ends of its intervals are to be differentiated by, too
    pairs: FreeEntries | None = None
    numbers: Tensor | None = None
    again: tuple[Form, Tensor, tuple[Tensor | None, ...], Tensor] | None = None

    @property
    def begun(self) -> Tensor:
        """The numbers, once rows have been seen."""
        assert self.numbers is not None
        return self.numbers

    def anew(self, numbers: Tensor | None) -> RowRelaxation:
        """The same for other rows, of which these are the numbers; None: those that `begin` gives."""
        begin = self.begin if numbers is None else lambda pairs: numbers
        return RowRelaxation(self.open, begin, self.fixed, self.by_ends)

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        if self.pairs is None or self.numbers is None:
            self.pairs = FreeEntries.of(self.open, form, owner, fixed=self.fixed)
            self.numbers = _leaf(self.begin(self.pairs))
            if self.by_ends:
                ends = (Interval(_leaf(x.lower), _leaf(x.upper)) for x in self.pairs.inputs)
                self.pairs = replace(self.pairs, inputs=tuple(ends))
        pairs, rule = self.pairs, RULES[self.open.node.op]
        assert isinstance(rule, Nonlinear)
        own, rest, bias = self._apart(form, pairs)
        relaxation = rule.relax(pairs.node, *pairs.inputs, slopes=self.numbers)
        assert isinstance(relaxation, ParametricRelaxation)
        mine, lift = relaxation.pull(own, None)
        parts = []
        for part, at in zip(rest, mine, strict=True):  # what is closed is zero in `mine`, what is open in `rest`
            if part is not None and at is not None:
                part = part.flatten().index_add(0, pairs.place, at.squeeze(1)).view(part.shape)
            parts.append(replace(form, values=part) if isinstance(form, Windows) and part is not None else part)
        summed = bias.double().index_add(0, pairs.row, lift.double())
        return tuple(parts), summed.to(bias)

    def _apart(self, form: Form, pairs: FreeEntries) -> tuple[Tensor, tuple[Tensor | None, ...], Tensor]:
        """The open entries (n, 1), and what becomes of the others."""
        if self.again is not None and self.again[0] is form:
            return self.again[1:]
        values = form.values if isinstance(form, Windows) else form
        own = values.flatten().index_select(0, pairs.place).unsqueeze(1)
        rest, bias = pairs.others.pull(values)
        if not values.requires_grad:
            self.again = (form, own, rest, bias)
        return own, rest, bias

    def push(self, *inputs: Forms) -> Forms:
        return self.open.relaxation.push(*inputs)


def _leaf(numbers: Tensor) -> Tensor:
    """The same, to be differentiated by."""
    return numbers.detach().requires_grad_(torch.is_grad_enabled())
