"""Backward with slopes of each bound's own: what rules leave free, moved along the gradient of the bound.

Every row that is sent back, an entry of a hidden layer or a row of the output, gets numbers of its own for all open
entries on its way (α-CROWN, Xu et al. 2021). They are chosen on the full ball; the form that they give serves all
members, and on each the closest of it and Backward's counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.chosen import Chosen, Open
from proofmap.bounds.descent import descend
from proofmap.bounds.knowledge import Knowledge
from proofmap.bounds.linear import rewrite
from proofmap.graph.ir import Node
from proofmap.memory import bytes_of
from proofmap.rules import RULES, Relaxation
from proofmap.rules.rule import AnyForm
from proofmap.rules.smooth import Smooth
from proofmap.windows import Windows

_AGAIN = 4  # times fewer steps for a member, which starts from what its ball ended with


@dataclass(frozen=True)
class SlopesPass(BackwardPass):
    """Backward, then so many steps for each row that it leaves open."""

    steps: int = 20

    def begin(self, knowledge: Knowledge) -> SlopesBounder:
        return SlopesBounder(knowledge, self)


class SlopesBounder(BackwardBounder):
    """The pass in one walk."""

    _settings: SlopesPass

    def __init__(self, knowledge: Knowledge, settings: SlopesPass) -> None:
        super().__init__(knowledge, settings)
        self._descent = _Descent(knowledge, settings, {})

    def settle(self, node: Node) -> None:
        super().settle(node)
        if self._descent.open():
            for name, rows in self.knowledge.unstable(node):
                self.knowledge.tighten(name, self._descent.tighten(name, rows))

    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        """The row in front of every case first: what it ends with is where the members start."""
        bounds = super().final(specification, wanted)
        if not self._descent.open():
            return bounds
        leader = bounds[:, 0].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
        front = torch.zeros_like(wanted).scatter_(1, leader, True) & wanted
        self._descent.keeps = self.knowledge.for_members
        first = self._descent.final(specification, front)
        self._descent.keeps = False
        rest = self._descent.final(specification, wanted & ~front)
        return torch.minimum(bounds, torch.minimum(first, rest))

    def for_members(self, knowledge: Knowledge, index: Tensor) -> BackwardBounder:
        case = index // self.knowledge.balls.members
        fewer = replace(self._settings, steps=-(-self._settings.steps // _AGAIN))
        return _Descent(knowledge, fewer, {name: one[case] for name, one in self._descent.ended.items()})


class _Descent(BackwardBounder):
    """Rows that go back over numbers of their own, the best that were met.

    Numbers (C, F, *shape) in `found` are where a row begins, if they give it a lower bound than where the rules start.
    """

    def __init__(self, knowledge: Knowledge, settings: SlopesPass, found: Mapping[str, Tensor]) -> None:
        super().__init__(knowledge, settings)
        self._steps = settings.steps
        self._found = found
        self._opened: dict[str, Open | None] = {}
        self.keeps = False  # whether the numbers of rows are kept, one row a case
        self.ended: dict[str, Tensor] = {}  # those, (C, F, *shape)

    def open(self) -> dict[str, Open]:
        """The nodes relaxed so far that leave something free."""
        for name in self.knowledge.relaxations:
            if name not in self._opened:
                self._opened[name] = Open.of(self.knowledge, name, self._found.get(name))
        return {name: one for name, one in self._opened.items() if one is not None}

    def carry(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation]
    ) -> tuple[dict[str, AnyForm], Tensor]:
        graph, balls = self.knowledge.graph, self.knowledge.balls
        opened = self.open()
        chosen = {key: Chosen(one) for key, one in opened.items()}

        start, first, lift = self._to_the_first(name, form, owner, relaxations, chosen)

        def back(numbers: Mapping[str, Tensor]) -> tuple[dict[str, AnyForm], Tensor]:
            for key, given in numbers.items():
                chosen[key].numbers = given
            forms, bias = rewrite(graph, start, first, owner, {**relaxations, **chosen})
            return forms, bias + lift

        def bound(numbers: Mapping[str, Tensor]) -> Tensor:
            forms, bias = back(numbers)
            end: Any = forms.get(graph.input.name)
            if isinstance(end, Windows):
                return bias + balls.maximise_windows(end, full_only=True)[0][:, 0]
            return bias if end is None else bias + balls.maximise(end, owner, full_only=True)[:, 0]

        back({})  # which shows the rows to what is chosen
        met = {key: one.pairs for key, one in chosen.items() if one.pairs is not None and len(one.pairs.row)}
        free = {key: pairs.free for key, pairs in met.items()}
        row = {key: pairs.row for key, pairs in met.items()}
        found = {key: pairs.found for key, pairs in met.items() if pairs.found is not None}
        lowest = descend(bound, free, self._steps, row, found)
        if self.keeps:
            for key, pairs in met.items():
                every = self.ended.setdefault(key, opened[key].free.start.clone(memory_format=torch.contiguous_format))
                every.flatten(2)[owner[pairs.row], :, pairs.entry] = lowest.numbers[key].squeeze(2)
        return back(lowest.numbers)

    def _to_the_first(
        self,
        name: str,
        form: AnyForm,
        owner: Tensor,
        relaxations: Mapping[str, Relaxation],
        chosen: Mapping[str, Relaxation],
    ) -> tuple[str, AnyForm, Tensor]:
        """(node, form, bias): how far rows go whatever is chosen, where that ends at one node; else where they are."""
        closed = {key: one for key, one in relaxations.items() if key not in chosen}
        forms, bias = rewrite(self.knowledge.graph, name, form, owner, closed)
        if len(forms) != 1:
            return name, form, torch.zeros_like(bias)
        ((first, arrived),) = forms.items()
        return first, arrived, bias

    def room(self, widths: Sequence[int], members: int) -> int:
        curved = any(isinstance(RULES[one.node.op], Smooth) for one in self.open().values())
        kept = bytes_of("curves" if curved else "slopes", sum(widths), self.knowledge.balls.x.element_size())
        return kept + super().room(widths, members)
