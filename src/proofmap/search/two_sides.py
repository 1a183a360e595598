"""Both sides of a search at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from proofmap.search.goal import Goal, Offer
from proofmap.search.open_leaves import Leaves


class Sides:
    """What was reached, and what is proven whatever breaks off a step: parts that were taken count until others are
    kept in their place.
    """

    def __init__(self, known: Tensor, reached: Tensor, whole: Tensor, goal: Goal, offer: Offer) -> None:
        self.known = known  # upper sides (1 + G,), before anything is split
        self._whole = whole  # (1 + G,) the members that are B itself
        self.reached: Tensor = reached
        self._goal, self._offer = goal, offer
        self.parts: int = 0
        self._done = torch.full_like(reached, -inf)  # the highest of the parts that are closed
        self._taken: Tensor | None = known  # the highest of those that are being split
        self.leaves: Leaves = Leaves({"value": reached.new_empty(0, len(reached))}, reached[:0])

    @property
    def upper(self) -> Tensor:
        """The upper sides (1 + G,), as they are now."""
        sides = [self._done, *(part.amax(0) for part in self.leaves.column("value").split(2**16) if len(part))]
        if self._taken is not None:
            sides.append(self._taken)
        top = torch.stack(sides).amax(0)
        top = torch.where(self._whole, top[0], top.minimum(top[0]))  # every B_u is a part of B
        return top.minimum(self.known)

    def spent(self) -> str:
        """Why to stop, if there is a reason."""
        return self._goal.spent(self.reached, self.leaves.bytes, self._goal.until)

    @property
    def floor(self) -> Tensor:
        """What members need not be proven to stay below, (1 + G,)."""
        return self._goal.floor(self.reached)

    def _urgency(self, value: Tensor) -> Tensor:
        """How far parts (B, 1 + G) are above what they have to be, on the member where that is most: (B,)."""
        return (value - self.floor).amax(1)

    def take(self, count: int) -> dict[str, Tensor]:
        """The most urgent parts, which are leaves no more; of so many, those that some member needs."""
        urgent = self.leaves.urgent(count)
        value = urgent["value"]
        self._taken = value.amax(0)
        self.leaves.drop(count)
        left = self._urgency(value) > 0
        self._close(value[~left])
        return {name: column[left] for name, column in urgent.items()}

    def keep(self, parts: Mapping[str, Tensor], stuck: Tensor) -> None:
        """Parts in the place of those that were taken, by their "value" (B, 1 + G): done where no member needs them,
        or where they are `stuck` (B,), too small to be split; else leaves.
        """
        value = parts["value"]
        self.parts += len(value)
        urgency = self._urgency(value)
        left = (urgency > 0) & ~stuck
        self.leaves.add({name: column[left] for name, column in parts.items()}, urgency[left])
        self._close(value[~left])
        self._taken = None

    def _close(self, value: Tensor) -> None:
        """Parts (B, 1 + G) that are done."""
        self._done = torch.cat([self._done[None], value]).amax(0)

    def offer(self, delta: Tensor, member: Tensor) -> None:
        """Try δ (K, d) in members (K,) as adversaries."""
        reached = self._offer(delta, member)
        if bool((reached > self.reached).any()):
            self.reached = reached
            self.leaves.rank(self._urgency(self.leaves.column("value")))
