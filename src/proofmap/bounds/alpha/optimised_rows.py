"""BoundRows that go back over numbers of their own, chosen along the gradient of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from torch import Tensor

from proofmap.bounds.alpha.optimiser import LowestBounds, descend
from proofmap.bounds.alpha.relaxation import FreeEntries, FreeRelaxation, RowRelaxation
from proofmap.bounds.alpha.warm_start import WarmStarts
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.inputs.window_forms import Windows
from proofmap.rules import RULES, Relaxation
from proofmap.rules.one_bend import Smooth
from proofmap.rules.rule import AnyForm, Free
from proofmap.runtime.memory import bytes_of

_SHARE, _LEAST = 8, 2**20  # of the budget, one part, and bytes: what may be kept of the rows' numbers, at least


@dataclass(eq=False)
class AlphaObjective(Generic[AnyForm]):
    """BoundRows on their way back from a node, over relaxations of which some are chosen."""

    state: BoundState
    start: str
    form: AnyForm
    lift: Tensor  # (K,) what is added to every bias
    owner: Tensor  # (K,)
    closed: dict[str, Relaxation]
    chosen: dict[str, RowRelaxation]
    ids: Tensor  # (K,)
    _largest: Callable[[Any], Tensor] | None = None

    def met(self) -> dict[str, FreeEntries]:
        """The open entries that the rows have met."""
        return {key: one.pairs for key, one in self.chosen.items() if one.pairs is not None and len(one.pairs.row)}

    def free(self) -> dict[str, Free]:
        """What is free there, from the numbers on that it has."""
        return {key: replace(pairs.free, start=self.chosen[key].begun) for key, pairs in self.met().items()}

    def row(self) -> dict[str, Tensor]:
        """The rows that free numbers belong to."""
        return {key: pairs.row for key, pairs in self.met().items()}

    def descend(self, steps: int, *, near: bool = False) -> LowestBounds:
        """The best numbers that so many steps meet, from those on that it has."""
        with torch.set_grad_enabled(steps > 0):
            first = self.bound({})
        return descend(self.bound, self.free(), steps, self.row(), first, near=near)

    def pick(self, rows: Tensor, numbers: Mapping[str, Tensor]) -> AlphaObjective[AnyForm]:
        """Some of the rows (K,), to go on from these numbers of all."""
        own = {key: numbers[key][rows[pairs.row]] for key, pairs in self.met().items()}
        return replace(
            self,
            form=self.form.pick(rows) if isinstance(self.form, Windows) else self.form[rows],
            lift=self.lift[rows],
            owner=self.owner[rows],
            chosen={key: one.anew(own.get(key)) for key, one in self.chosen.items()},
            ids=self.ids[rows],
            _largest=None,
        )

    def back(self, numbers: Mapping[str, Tensor]) -> tuple[dict[str, AnyForm], Tensor]:
        """Forms and biases with these numbers, or those that were there."""
        for key, given in numbers.items():
            self.chosen[key].numbers = given
        relaxations: dict[str, Relaxation] = {**self.closed, **self.chosen}
        rounding = self.state.rounding
        forms, bias = backsubstitute(
            self.state.graph, self.start, self.form, self.owner, relaxations, rounding=rounding
        )
        return forms, bias + self.lift

    def bounds(self, numbers: Mapping[str, Tensor]) -> tuple[dict[str, AnyForm], Tensor]:
        """The forms, and the bounds (K,) on full balls that they give."""
        forms, bias = self.back(numbers)
        end: Any = forms.get(self.state.graph.input.name)
        if end is None:
            return forms, bias
        if self._largest is None:
            self._largest = self.state.balls.largest(end, self.owner)
        return forms, bias + self._largest(end)

    def bound(self, numbers: Mapping[str, Tensor]) -> Tensor:
        """The bounds alone."""
        return self.bounds(numbers)[1]


class OptimisedRows(BackwardBounder):
    """A backward pass whose rows take the best numbers that so many steps meet."""

    def __init__(self, state: BoundState, settings: BackwardPass, steps: int) -> None:
        super().__init__(state, settings)
        self.steps = steps
        self.cases: int = len(state.cases)
        self._opened: dict[str, FreeRelaxation | None] = {}
        # what rows ended with, where members go on from it
        self.kept: WarmStarts = WarmStarts(max(_LEAST, state.budget // _SHARE))

    def open(self) -> dict[str, FreeRelaxation]:
        """The nodes relaxed so far that leave something free."""
        for name in self.state.relaxations:
            if name not in self._opened:
                self._opened[name] = FreeRelaxation.of(self.state, name)
        return {name: one for name, one in self._opened.items() if one is not None}

    def backsubstitute_forms(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        way = self.way(name, form, owner, relaxations, rows)
        lowest = self.choose(way)
        if self.state.for_members:
            for key, pairs in way.met().items():
                self.kept.put((name, key), pairs.keys(way.ids), lowest.numbers[key])
        alone = self.state.balls.members == 1 and self.state.cases.cut is None
        return ({}, lowest.bounds) if alone else way.back(lowest.numbers)

    def choose(self, way: AlphaObjective[AnyForm]) -> LowestBounds:
        """The best numbers that are met."""
        return way.descend(self.steps)

    def way(
        self,
        name: str,
        form: AnyForm,
        owner: Tensor,
        relaxations: Mapping[str, Relaxation],
        rows: BoundRows,
        *,
        by_ends: bool = False,
    ) -> AlphaObjective[AnyForm]:
        """The way back of rows from a node, to be differentiated by the numbers; or by the ends of intervals, too."""
        ids, opened = self._ids(rows, len(form)), self.open()
        closed = {key: one for key, one in relaxations.items() if key not in opened}
        start = name
        forms, lift = backsubstitute(self.state.graph, name, form, owner, closed, rounding=self.state.rounding)
        if len(forms) == 1:  # how far rows go whatever is chosen, where that ends at one node
            ((start, form),) = forms.items()
        else:
            lift = torch.zeros_like(lift)

        def choice(key: str, one: FreeRelaxation) -> RowRelaxation:
            return RowRelaxation(one, lambda pairs: self._begin((name, key), pairs, ids), key == start, by_ends)

        chosen = {key: choice(key, one) for key, one in opened.items()}
        return AlphaObjective(self.state, start, form, lift, owner, closed, chosen, ids)

    def _begin(self, where: tuple[str, str], pairs: FreeEntries, ids: Tensor) -> Tensor:
        """The numbers to start from."""
        return pairs.free.start

    def _ids(self, rows: BoundRows, count: int) -> Tensor:
        """(count,): a number that of all rows from a node this one alone has, an entry with one sign or the other."""
        one = 2 * (rows.entry * self.cases + rows.case)  # entries have no end: a specification has any number of rows
        return one + 1 if rows.side < 0 else torch.cat([one, one + 1])[:count]

    def bytes_of_row(self, widths: Sequence[int], members: int) -> int:
        curved = any(isinstance(RULES[one.node.op], Smooth) for one in self.open().values())
        kept = bytes_of("curves" if curved else "slopes", sum(widths), self.state.balls.x.element_size())
        return kept + super().bytes_of_row(widths, members)
