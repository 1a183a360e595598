"""Back-substitution of α-CROWN: every row has free relaxation parameters of its own, optimised along the gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor

from proofmap.bounds.alpha.optimiser import LowestBounds, optimise
from proofmap.bounds.alpha.relaxation import FreeEntries, FreeRelaxation, RowRelaxation
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.backward import Substitution
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules import RULES, Relaxation
from proofmap.rules.one_bend import Smooth
from proofmap.rules.rule import AnyForm, FreeParameters
from proofmap.runtime.memory import bytes_needed

_WARM_START_SHARE = 8  # one part in so many of the memory budget stores the parameters that rows end with
_LEAST_WARM_START_BYTES = 2**20  # room for them even in a small budget
_STEP_RATIO = 4  # rows that continue from a ball's parameters take this many times fewer steps than the ball
_TRIAL_STEPS = 2  # rows that have not gained after these stop: most rows of members with few frozen variables


@dataclass(eq=False)
class AlphaObjective(Generic[AnyForm]):
    """The bounds of K rows of a node as functions of the rows' free relaxation parameters."""

    state: BoundState
    start: str
    form: AnyForm
    lift: Tensor  # (K,) added to the biases
    owner: Tensor  # (K,) the case of each row
    fixed: dict[str, Relaxation]
    free: dict[str, RowRelaxation]
    ids: Tensor  # (K,) distinguish the rows of a node
    _largest: Callable[[Any], Tensor] | None = None

    def free_entries(self) -> dict[str, FreeEntries]:
        """The free entries that the rows have passed, by node."""
        return {key: one.entries for key, one in self.free.items() if one.entries is not None and len(one.entries.row)}

    def parameters(self) -> dict[str, FreeParameters]:
        """The free parameters of these entries, with their ranges and current values."""
        return {key: replace(one.free, start=self.free[key].current) for key, one in self.free_entries().items()}

    def row(self) -> dict[str, Tensor]:
        """The row that each free parameter belongs to, by node."""
        return {key: entries.row for key, entries in self.free_entries().items()}

    def descend(self, steps: int, *, near: bool = False) -> LowestBounds:
        """Optimise the parameters for `steps` steps from their current values."""
        with torch.set_grad_enabled(steps > 0):
            first = self.bound({})
        return optimise(self.bound, self.parameters(), steps, self.row(), first, near=near)

    def pick(self, rows: Tensor, parameters: Mapping[str, Tensor]) -> AlphaObjective[AnyForm]:
        """Return the objective of some rows, marked in rows (K,). `parameters` of all rows are the starting point."""
        own = {key: parameters[key][rows[entries.row]] for key, entries in self.free_entries().items()}
        return replace(
            self,
            form=self.form.pick(rows) if isinstance(self.form, WindowForms) else self.form[rows],
            lift=self.lift[rows],
            owner=self.owner[rows],
            free={key: one.restarted(own.get(key)) for key, one in self.free.items()},
            ids=self.ids[rows],
            _largest=None,
        )

    def forms(self, parameters: Mapping[str, Tensor]) -> tuple[dict[str, AnyForm], Tensor]:
        """Return forms and biases with these parameters, or with the current ones where none are given."""
        for key, given in parameters.items():
            self.free[key].parameters = given
        relaxations: dict[str, Relaxation] = {**self.fixed, **self.free}
        rounding = self.state.rounding
        forms, bias = backsubstitute(
            self.state.graph, self.start, self.form, self.owner, relaxations, rounding=rounding
        )
        return forms, bias + self.lift

    def bounds(self, parameters: Mapping[str, Tensor]) -> tuple[dict[str, AnyForm], Tensor]:
        """Return the forms, and their bounds (K,) on the full balls."""
        forms, bias = self.forms(parameters)
        end: Any = forms.get(self.state.graph.input.name)
        if end is None:
            return forms, bias
        if self._largest is None:
            self._largest = self.state.balls.largest(end, self.owner)
        return forms, bias + self._largest(end)

    def bound(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the bounds (K,) on the full balls."""
        return self.bounds(parameters)[1]


@dataclass(eq=False)
class WarmStarts:
    """The parameters that rows ended with, stored for rows of the same entries on members of their balls.

    Parameters (n, F, 1) are stored by the rows' node and the relaxed node, with keys (n,) that tell which is which. If
    the memory is used up, the rest is not stored, and readers start from their own parameters.
    """

    room: int  # bytes that are left
    _parts: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)

    def put(self, where: tuple[str, str], keys: Tensor, parameters: Tensor) -> None:
        """Store parameters. No key occurs twice."""
        self.room -= keys.element_size() * keys.numel() + parameters.element_size() * parameters.numel()
        if self.room >= 0:
            self._parts.setdefault(where, []).append((keys, parameters))

    def at(self, where: tuple[str, str], keys: Tensor, default: Tensor) -> Tensor:
        """Return the parameters of these keys, and `default` where none are stored."""
        if where not in self._parts:
            return default
        known, parameters = self._sorted(where)
        place = torch.searchsorted(known, keys).clamp_(max=len(known) - 1)
        return torch.where((known[place] == keys)[:, None, None], parameters[place], default)

    def _sorted(self, where: tuple[str, str]) -> tuple[Tensor, Tensor]:
        """Return keys and parameters sorted by key."""
        parts = self._parts[where]
        if len(parts) > 1 or not bool((parts[0][0].diff() >= 0).all()):
            keys, order = torch.cat([part[0] for part in parts]).sort()
            self._parts[where] = [(keys, torch.cat([part[1] for part in parts])[order])]
        return self._parts[where][0]


@dataclass(frozen=True, eq=False)
class _Origin:
    """The rows of balls that other rows continue from: case c continues from case[c]."""

    ball: OptimisedRows
    case: Tensor


@dataclass(eq=False)
class OptimisedRows(Substitution):
    """Back-substitution that optimises the free relaxation parameters of every row for `steps` steps.

    The rows start from the rules' own parameters, or from those that the rows of an `origin` ended with. One walk fills
    the object: with the relaxations that have free parameters, and with the parameters that rows ended with.
    """

    state: BoundState
    steps: int
    origin: _Origin | None = None
    warm_starts: WarmStarts = field(default_factory=lambda: WarmStarts(0))
    _collected: dict[str, FreeRelaxation | None] = field(default_factory=dict)

    @staticmethod
    def of(state: BoundState, steps: int) -> OptimisedRows:
        """Return rows that start from the rules' own parameters."""
        return OptimisedRows(
            state, steps, None, WarmStarts(max(_LEAST_WARM_START_BYTES, state.budget // _WARM_START_SHARE))
        )

    def continued(self, state: BoundState, case: Tensor) -> OptimisedRows:
        """Return rows that continue from these with fewer steps. Case c is this object's case[c], or a member of it."""
        return OptimisedRows(state, -(-self.steps // _STEP_RATIO), _Origin(self, case))

    def free_relaxations(self) -> dict[str, FreeRelaxation]:
        """Return the relaxations so far that have free parameters, by node."""
        for name in self.state.relaxations:
            if name not in self._collected:
                self._collected[name] = FreeRelaxation.of(self.state, name)
        return {name: one for name, one in self._collected.items() if one is not None}

    def forget(self, name: str) -> None:
        """Collect the relaxation of this node again, since it has changed."""
        self._collected.pop(name)

    def substitute(
        self, name: str, form: AnyForm, owner: Tensor, relaxations: Mapping[str, Relaxation], rows: BoundRows
    ) -> tuple[dict[str, AnyForm], Tensor]:
        objective = self.objective(name, form, owner, relaxations, rows)
        lowest = self.optimise(objective)
        if self.state.for_members:
            for key, entries in objective.free_entries().items():
                self.warm_starts.put((name, key), entries.keys(objective.ids), lowest.parameters[key])
        only_bounds = self.state.balls.members == 1 and self.state.cases.cut is None
        return ({}, lowest.bounds) if only_bounds else objective.forms(lowest.parameters)

    def optimise(self, objective: AlphaObjective[AnyForm]) -> LowestBounds:
        """Return the lowest bounds that the steps find.

        Rows with an origin take a few trial steps first. Only those that gain take the remaining ones.
        """
        if self.origin is None:
            return objective.descend(self.steps)
        lowest = objective.descend(min(_TRIAL_STEPS, self.steps), near=True)
        if not bool(lowest.gained.any()):
            return lowest
        more = objective.pick(lowest.gained, lowest.parameters).descend(self.steps, near=True)
        return lowest.put(lowest.gained, more, objective.row())

    def objective(
        self,
        name: str,
        form: AnyForm,
        owner: Tensor,
        relaxations: Mapping[str, Relaxation],
        rows: BoundRows,
        *,
        by_intervals: bool = False,
    ) -> AlphaObjective[AnyForm]:
        """Return the bounds of rows of a node as functions of their parameters.

        by_intervals: the bounds can also be differentiated with respect to the interval endpoints.
        """
        ids, opened = self._ids(rows, len(form)), self.free_relaxations()
        fixed = {key: one for key, one in relaxations.items() if key not in opened}
        start = name
        forms, lift = backsubstitute(self.state.graph, name, form, owner, fixed, rounding=self.state.rounding)
        if len(forms) == 1:  # the part before the first free relaxation does not depend on the parameters
            ((start, form),) = forms.items()
        else:
            lift = torch.zeros_like(lift)

        def row_relaxation(key: str, one: FreeRelaxation) -> RowRelaxation:
            return RowRelaxation(one, lambda some: self._first((name, key), some, ids), key == start, by_intervals)

        free = {key: row_relaxation(key, one) for key, one in opened.items()}
        return AlphaObjective(self.state, start, form, lift, owner, fixed, free, ids)

    def _first(self, where: tuple[str, str], entries: FreeEntries, ids: Tensor) -> Tensor:
        """Return the parameters to start from."""
        if self.origin is None:
            return entries.free.start
        return entries.free.within(self.origin.ball.warm_starts.at(where, entries.keys(ids), entries.free.start))

    def _ids(self, rows: BoundRows, count: int) -> Tensor:
        """Return (count,) numbers that are unique among all rows of a node: for each entry, one number per sign."""
        case, cases = rows.case, len(self.state.cases)
        if self.origin is not None:  # the numbers that the origin's rows have
            case, cases = self.origin.case[rows.case], len(self.origin.ball.state.cases)
        one = 2 * (rows.entry * cases + case)  # entries have no upper limit: a specification has any number of rows
        return one + 1 if rows.side < 0 else torch.cat([one, one + 1])[:count]

    def extra_bytes(self, widths: Sequence[int]) -> int:
        curved = any(isinstance(RULES[one.node.op], Smooth) for one in self.free_relaxations().values())
        return bytes_needed("curves" if curved else "slopes", sum(widths), self.state.balls.x.element_size())
