"""Relaxations with numbers of each row's own in the place of what a rule leaves free.

Most entries of a value leave nothing free: a ReLU that is on or off has one line. So a row's numbers are those of its
open entries alone, pairs (row, entry) laid flat; all other entries keep the relaxation of their case.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds.knowledge import Knowledge
from proofmap.graph.ir import Node
from proofmap.rules import RULES, Form, Forms, Interval, Nonlinear, Relaxation
from proofmap.rules.larger import Mixture
from proofmap.rules.lines import Lines, at_rows
from proofmap.rules.rule import Free, Kind
from proofmap.windows import Windows


@dataclass(frozen=True, eq=False)
class Open:
    """What a node leaves free on some cases: the numbers (C, F, *shape), and what they are made from.

    found: numbers to begin with as well as with those where it starts.
    """

    node: Node
    inputs: tuple[Interval, ...]
    free: Free
    relaxation: Lines | Mixture
    found: Tensor | None

    @staticmethod
    def of(knowledge: Knowledge, name: str, found: Tensor | None = None) -> Open | None:
        """Of a node that is relaxed; None where nothing is free."""
        node, rule = knowledge.graph[name], RULES[knowledge.graph[name].op]
        assert isinstance(rule, Nonlinear)
        inputs = tuple(map(knowledge.interval, node.inputs))
        free = rule.free(node, *inputs)
        if free is None or not bool((free.least < free.most).any()):
            return None
        relaxation = knowledge.relaxations[name]
        assert isinstance(relaxation, Lines | Mixture)
        start = free.within(knowledge.cases.slopes.get(name))
        return Open(node, inputs, replace(free, start=start), relaxation, found)

    @property
    def entries(self) -> Tensor:
        """(C, *shape): where there is something to choose."""
        return (self.free.least < self.free.most).any(1)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The open entries of some rows: n pairs, each a case of its own, (n, 1); the other entries as they are."""

    row: Tensor  # (n,)
    place: Tensor  # (n,) in all rows laid flat
    entry: Tensor  # (n,) of the row's form
    node: Node
    inputs: tuple[Interval, ...]
    free: Free
    found: Tensor | None
    others: Lines | Mixture  # of every row, or one for all
    closed: Tensor  # 1 at the other entries, else 0, likewise

    @staticmethod
    def of(one: Open, form: Form, owner: Tensor) -> _Pairs:
        def read(values: Tensor) -> Tensor:
            return at_rows(values, form, owner)

        mask = read(one.entries.to(one.free.start.dtype)).flatten(1)
        row, entry = mask.expand(len(form), -1).nonzero(as_tuple=True)
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
        found = None if one.found is None else numbers(one.found)
        lines: list[Any] = [getattr(one.relaxation, f.name) for f in fields(one.relaxation)]
        rows: list[Any] = [line if line is None else read(line) for line in lines]
        values = form.values if isinstance(form, Windows) else form
        closed = 1 - mask.view(-1, *values.shape[1:])
        others = type(one.relaxation)(*rows)
        return _Pairs(row, row * mask.shape[1] + entry, entry, node, inputs, free, found, others, closed)


@dataclass(eq=False)
class Chosen(Relaxation):
    """What is open with numbers (n, F, 1) of the rows' own, once the rows have been seen; until then as it starts.

    A form that comes again, whatever the numbers are, is remembered with what becomes of its other entries.
    """

    open: Open
    pairs: _Pairs | None = None
    numbers: Tensor | None = None
    again: tuple[Form, Tensor, tuple[Tensor | None, ...], Tensor] | None = None

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        if self.pairs is None:
            self.pairs = _Pairs.of(self.open, form, owner)
        pairs, rule = self.pairs, RULES[self.open.node.op]
        assert isinstance(rule, Nonlinear)
        own, rest, bias = self._apart(form, pairs)
        numbers = pairs.free.start if self.numbers is None else self.numbers
        relaxation = rule.relax(pairs.node, *pairs.inputs, slopes=numbers)
        assert isinstance(relaxation, Lines | Mixture)
        mine, lift = relaxation.pull(own, None)
        parts = []
        for part, at in zip(rest, mine, strict=True):  # what is closed is zero in `mine`, what is open in `rest`
            if part is not None and at is not None:
                part = part.flatten().index_add(0, pairs.place, at.squeeze(1)).view(part.shape)
            parts.append(replace(form, values=part) if isinstance(form, Windows) and part is not None else part)
        return tuple(parts), bias.index_add(0, pairs.row, lift)

    def _apart(self, form: Form, pairs: _Pairs) -> tuple[Tensor, tuple[Tensor | None, ...], Tensor]:
        """The open entries (n, 1), and what becomes of the others."""
        if self.again is not None and self.again[0] is form:
            return self.again[1:]
        values = form.values if isinstance(form, Windows) else form
        own = values.flatten().index_select(0, pairs.place).unsqueeze(1)
        rest, bias = pairs.others.pull(values * pairs.closed, None)
        if not values.requires_grad:
            self.again = (form, own, rest, bias)
        return own, rest, bias

    def push(self, *inputs: Forms) -> Forms:
        return self.open.relaxation.push(*inputs)
