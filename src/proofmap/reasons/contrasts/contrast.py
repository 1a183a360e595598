"""Contrastive sets of N samples: groups that can change the decision, the changed inputs, and bounds of their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofmap.errors import InputError

_EACH = ("least", "counted", "limit", "seconds")  # tensors with one entry for each sample
_EVERY = ("points", "classes", "values")  # tensors with one entry for each set, besides `sets` and `owner`


@dataclass(frozen=True, eq=False, repr=False)
class Contrast:
    """Contrastive sets of moved groups.

    Every set has a point: an input of the ball that differs from x in the set's groups only, and whose overlap is
    above the limit. The number `least` is proven: no set of fewer groups can change the decision. It is 1 more than the
    number of groups if no input of the ball can change it.

    >>> found = pm.Contrastive(model, pm.Ball(0.3, domain=(0.0, 1.0)), groups=cells).explain(x).contrast
    >>> bool((found.least <= found.size)[found.found].all())
    True
    """

    sets: Tensor  # (M, G) bool: the smallest set of each sample first, then further sets that share no group with it
    owner: Tensor  # (M,) int64: the sample of each set, in ascending order
    points: Tensor  # (M, *shape)
    classes: Tensor  # (M,) int64: the class at each point; -1 for an output or a label, and for two equal classes
    values: Tensor  # (M,) float64: the overlap at each point, in float64
    least: Tensor  # (N,) int64: no set of fewer groups changes the decision
    counted: Tensor  # (N,) bool: HiGHS, a solver in floating point, counted the groups of this bound
    limit: Tensor  # (N,) float64
    seconds: Tensor  # (N,) float64

    def __post_init__(self) -> None:
        """Raise InputError if parts do not fit together."""
        sets = len(self.sets)
        counts = {"owner": sets, **dict.fromkeys(_EVERY, sets), **dict.fromkeys(_EACH, len(self.least))}
        for name, count in counts.items():
            if len(getattr(self, name)) != count:
                raise InputError(f"got {name} of {len(getattr(self, name))} entries, expected {count}")
        if (sets and not bool((self.owner.diff() >= 0).all())) or bool((self.owner >= len(self.least)).any()):
            raise InputError(f"got owner={self.owner.tolist()!r:.100}, expected samples in ascending order")
        if not bool((self.values > self.limit[self.owner]).all()):
            raise InputError("got a point that does not exceed its limit, expected one that changes the decision")
        if bool((self.sets.sum(1) < self.least[self.owner]).any()):
            raise InputError("got a set with fewer groups than the proven least number")

    @property
    def _first(self) -> Tensor:
        """(N,) the index of each sample's first set; -1 without one."""
        number = torch.arange(len(self.owner), device=self.owner.device)
        first = torch.full_like(self.least, len(number)).scatter_reduce(0, self.owner, number, "amin")
        return torch.where(first < len(number), first, -1)

    @property
    def found(self) -> Tensor:
        """(N,) bool: an input was found that changes the decision."""
        return self._first >= 0

    @property
    def moved(self) -> Tensor:
        """(N, G) bool: the groups of the smallest set found; none if no set was found."""
        none = self.sets.new_zeros(1, self.groups)
        return torch.cat([self.sets, none])[self._first]

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return self.sets.shape[1]

    @property
    def size(self) -> Tensor:
        """(N,) int64: the number of groups of the smallest set found; 0 if no set was found."""
        return self.moved.sum(1)

    @property
    def smallest(self) -> Tensor:
        """(N,) bool: no set of fewer groups can change the decision."""
        return self.found & (self.least >= self.size)

    @property
    def reached(self) -> Tensor:
        """(N,) int64: the class at the input of the smallest set; -1 without a set or a class."""
        none = torch.full_like(self.classes, -1)[:1] if len(self.classes) else self.least.new_full((1,), -1)
        return torch.cat([self.classes, none])[self._first]

    @property
    def impossible(self) -> Tensor:
        """(N,) bool: no input of the ball can change the decision."""
        return self.least > self.groups

    def point(self, sample: int) -> Tensor:
        """Return the input (*shape) that the smallest set of a sample changes the decision with.

        Raises:
            InputError: No set was found.
        """
        if not bool(self.found[sample]):
            raise InputError(f"sample {sample} has no input that changes the decision, expected a sample with one")
        return self.points[self._first[sample]]

    def pick(self, samples: Tensor) -> Contrast:
        """Return the sets of some samples (n,)."""
        rows = [(self.owner == int(n)).nonzero().flatten() for n in samples]
        each = torch.cat([self.owner[:0], *rows])
        sizes = torch.tensor([len(row) for row in rows], device=each.device)
        owner = torch.arange(len(rows), device=each.device).repeat_interleave(sizes)
        parts = {name: getattr(self, name)[each] for name in _EVERY}
        return Contrast(self.sets[each], owner, **parts, **{name: getattr(self, name)[samples] for name in _EACH})

    def of_groups(self, groups: slice, where: slice, shape: Sequence[int]) -> Contrast:
        """Return the sets among some groups, those of one of several inputs: entries `where` of the points, in `shape`.

        The other inputs may change as well at the points. Nothing is known about the smallest number of groups of one
        input, so that `least` is 0, unless no input of the ball can change the decision.
        """
        sets = self.sets[:, groups]
        return replace(
            self,
            sets=sets,
            points=self.points.flatten(1)[:, where].unflatten(1, tuple(shape)),
            least=torch.where(self.impossible, sets.shape[1] + 1, 0),
        )

    @staticmethod
    def join(parts: Sequence[Contrast], groups: int) -> Contrast:
        """Return the sets of all parts, with `groups` groups: groups that a part does not have do not move in it."""
        owners, before = [], 0
        for part in parts:
            owners.append(part.owner + before)
            before += len(part.least)
        least = [torch.where(part.impossible, groups + 1, part.least) for part in parts]
        every = {name: torch.cat([getattr(part, name) for part in parts]) for name in (*_EVERY, *_EACH)}
        sets = torch.cat([pad(part.sets, (0, groups - part.groups)) for part in parts])
        return Contrast(sets, torch.cat(owners), **{**every, "least": torch.cat(least)})

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, for a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        found = self.found
        moved = f"{int(self.size[found].min())} to {int(self.size[found].max())}" if bool(found.any()) else "no"
        state = f"proven smallest for {int(self.smallest.sum())}, impossible for {int(self.impossible.sum())}"
        return f"Contrast({len(self.least)} samples, {moved} of {self.groups} groups changed, {state})"
