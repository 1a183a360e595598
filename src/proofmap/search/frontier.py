"""Frontier of a branch and bound search: open leaves, lower and upper bounds so far, and the stopping rule."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from threading import Event

import torch
from torch import Tensor

MEMBER_GAP_DIVISOR = 16  # members are closed to gap / 16, because differences of their overlaps order the scores

Offer = Callable[[Tensor, Tensor], Tensor]  # try δ (K, d) in members (K,); returns the lower bounds (1 + G,) afterwards
Report = Callable[[float, float, int], object]  # receives the lower and upper bound of B and the number of parts


@dataclass(frozen=True)
class StoppingRule:
    """The conditions that end a search.

    The search has succeeded if every upper bound exceeds its lower bound by at most `gap` plus `rounding_gap`, or if
    every upper bound is at most `enough`. It is stopped early at `deadline` (a value of `time.monotonic`), if leaves
    need more than `memory` bytes, or if another thread sets `halted`.
    """

    gap: float
    deadline: float
    memory: int
    enough: float = -inf
    halted: Event = field(default_factory=Event)
    rounding_gap: Tensor | float = 0.0  # (1 + G,)

    def thresholds(self, reached: Tensor) -> Tensor:
        """Return the values (1 + G,) below which upper bounds need no improvement, given the lower bounds `reached`."""
        gap = self.gap if len(reached) == 1 else self.gap / MEMBER_GAP_DIVISOR
        return (reached + gap + self.rounding_gap).clamp(min=self.enough)

    def refuted(self, reached: Tensor) -> bool:
        """Return whether the lower bound of B exceeds `enough`, so that nothing is left to prove."""
        return -inf < self.enough < float(reached[0])

    def stop_reason(self, reached: Tensor, used: int, deadline: float) -> str:
        """Return the reason to stop now, or "" to go on; used: bytes of the leaves."""
        if self.halted.is_set():
            return "interrupted"
        if time.monotonic() > deadline:
            return "time"
        if self.refuted(reached):
            return "refuted"
        return "memory" if used > self.memory else ""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Upper bounds (1 + G,) in float64, the number of bounded parts, and why the search ended with open parts."""

    upper: Tensor
    parts: int
    stopped: str = ""  # "time", "memory", "interrupted", "refuted", or "units": nothing is left to split
    lower: Tensor | None = None  # (1 + G,) lower bounds that cover all rounding errors


class OpenLeaves:
    """A priority queue of open leaves, stored as columns of tensors; rows of removed leaves are used again."""

    def __init__(self, none: Mapping[str, Tensor], urgency: Tensor) -> None:
        self._columns = dict(none)  # without leaves; other columns are created by the first leaves that have them
        self._urgency = urgency
        self._end = 0
        self._free: Tensor = torch.empty(0, dtype=torch.int64, device=urgency.device)

    def __len__(self) -> int:
        return self._end - len(self._free)

    @property
    def bytes(self) -> int:
        """The memory of all columns."""
        return sum(column.numel() * column.element_size() for column in self._columns.values())

    def most_urgent(self, count: int) -> dict[str, Tensor]:
        """Return the columns of the `count` most urgent leaves."""
        index = self._rows_of_most_urgent(count)
        return {name: column[index] for name, column in self._columns.items()}

    def drop(self, count: int) -> None:
        """Remove the `count` most urgent leaves."""
        index = self._rows_of_most_urgent(count)
        self._urgency[index] = -inf
        self._free = torch.cat([self._free, index])

    def _rows_of_most_urgent(self, count: int) -> Tensor:
        return self._urgency[: self._end].topk(min(count, len(self))).indices

    def add(self, leaves: Mapping[str, Tensor], urgency: Tensor) -> None:
        """Add leaves. Only the last statement makes them visible: an error before it changes no other leaf."""
        count = len(urgency)
        again = self._free[:count]
        end = self._end + count - len(again)
        if end > len(self._urgency):
            self._grow(2 * end)
        index = torch.cat([again, torch.arange(self._end, end, device=again.device)])
        for name, part in leaves.items():
            if name not in self._columns:
                self._columns[name] = part.new_empty(len(self._urgency), *part.shape[1:])
            self._columns[name][index] = part
        self._free, self._end = self._free[count:], end
        self._urgency[index] = urgency

    def _grow(self, rows: int) -> None:

        def longer(column: Tensor) -> Tensor:
            grown = column.new_empty(rows, *column.shape[1:])
            grown[: len(column)] = column
            return grown

        urgency = longer(self._urgency)
        urgency[len(self._urgency) :] = -inf
        self._columns = {name: longer(column) for name, column in self._columns.items()}
        self._urgency = urgency

    def column(self, name: str) -> Tensor:
        """Return one column of all present leaves."""
        return self._columns[name][: self._end][self._urgency[: self._end] > -inf]

    def set_urgency(self, urgency: Tensor) -> None:
        """Set the urgency of all present leaves, in the order of `column`."""
        self._urgency[: self._end][self._urgency[: self._end] > -inf] = urgency


class Frontier:
    """Open leaves with lower and upper bounds that hold at any moment, even if an error ends a step.

    Parts that were popped count towards the upper bounds until other parts are pushed in their place.
    """

    def __init__(self, known: Tensor, reached: Tensor, same_as_ball: Tensor, rule: StoppingRule, offer: Offer) -> None:
        self.known = known  # upper bounds (1 + G,) before the first split
        self._same_as_ball = same_as_ball  # (1 + G,): members that are equal to B
        self.reached: Tensor = reached  # lower bounds (1 + G,)
        self._rule, self._offer = rule, offer
        self.parts: int = 0
        self._closed_upper = torch.full_like(reached, -inf)  # the largest bounds of closed parts
        self._popped_upper: Tensor | None = known  # the largest bounds of the parts that are being split
        self.leaves: OpenLeaves = OpenLeaves({"value": reached.new_empty(0, len(reached))}, reached[:0])

    @property
    def upper(self) -> Tensor:
        """The upper bounds (1 + G,) at this moment."""
        bounds = [self._closed_upper, *(part.amax(0) for part in self.leaves.column("value").split(2**16) if len(part))]
        if self._popped_upper is not None:
            bounds.append(self._popped_upper)
        top = torch.stack(bounds).amax(0)
        top = torch.where(self._same_as_ball, top[0], top.minimum(top[0]))  # every B_u is a subset of B
        return top.minimum(self.known)

    def stop_reason(self) -> str:
        """Return the reason to stop now, or "" to go on."""
        return self._rule.stop_reason(self.reached, self.leaves.bytes, self._rule.deadline)

    @property
    def thresholds(self) -> Tensor:
        """The values (1 + G,) below which upper bounds need no improvement."""
        return self._rule.thresholds(self.reached)

    def _urgency(self, value: Tensor) -> Tensor:
        """Return the largest excess over a threshold, for bounds of parts (B, 1 + G): (B,)."""
        return (value - self.thresholds).amax(1)

    def pop(self, count: int) -> dict[str, Tensor]:
        """Remove the `count` most urgent leaves and return those that still exceed a threshold."""
        urgent = self.leaves.most_urgent(count)
        value = urgent["value"]
        self._popped_upper = value.amax(0)
        self.leaves.drop(count)
        left = self._urgency(value) > 0
        self._close(value[~left])
        return {name: column[left] for name, column in urgent.items()}

    def push(self, parts: Mapping[str, Tensor], stuck: Tensor) -> None:
        """Replace the popped parts by these, with bounds "value" (B, 1 + G).

        A part is closed if it exceeds no threshold, or if it is `stuck` (B,): too small to be split. Otherwise it
        becomes a leaf.
        """
        value = parts["value"]
        self.parts += len(value)
        urgency = self._urgency(value)
        left = (urgency > 0) & ~stuck
        self.leaves.add({name: column[left] for name, column in parts.items()}, urgency[left])
        self._close(value[~left])
        self._popped_upper = None

    def _close(self, value: Tensor) -> None:
        """Record the bounds (B, 1 + G) of closed parts."""
        self._closed_upper = torch.cat([self._closed_upper[None], value]).amax(0)

    def offer(self, delta: Tensor, member: Tensor) -> None:
        """Try δ (K, d) in members (K,) as adversaries; better lower bounds change the urgency of all leaves."""
        reached = self._offer(delta, member)
        if bool((reached > self.reached).any()):
            self.reached = reached
            self.leaves.set_urgency(self._urgency(self.leaves.column("value")))
