"""Sufficient sets of N samples: free, necessary and undecided groups, and the points that show groups necessary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from proofmap.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Reason:
    """Sufficient sets of kept groups.

    The free groups may all move together within the ball: `bound` proves that the overlap stays below `limit`. Every
    necessary group has a point: an input that differs from x in free groups and in this group only, and whose overlap
    `values` is not below the limit. If proofs cover rounding errors, the overlap there may also be below the limit by
    less than these errors; `adversarial` tells which. The other kept groups are undecided.

    >>> found = pm.Sufficient(model, ball, groups=cells).explain(x).reason
    >>> bool((found.bound < found.limit).all())
    True
    """

    free: Tensor  # (N, G) bool
    necessary: Tensor  # (N, G) bool
    points: Tensor  # (W, *shape), in the order of `point_of`
    point_of: Tensor  # (W, 2) int64: the sample and the necessary group of each point
    values: Tensor  # (W,) float64: the overlap at each point, in float64
    bound: Tensor  # (N,) float64: proven upper bound of the overlap on the ball of the free groups
    limit: Tensor  # (N,) float64
    least: Tensor  # (N,) int64: no sufficient set keeps fewer groups
    seconds: Tensor  # (N,) float64

    def __post_init__(self) -> None:
        """Raise InputError if parts do not fit together."""
        count, groups = self.free.shape
        expected = {
            "necessary": (count, groups),
            "point_of": (len(self.points), 2),
            "values": (len(self.points),),
            **dict.fromkeys(("bound", "limit", "least", "seconds"), (count,)),
        }
        for name, shape in expected.items():
            got = tuple(getattr(self, name).shape)
            if got != shape:
                raise InputError(f"got {name} of shape {got}, expected {shape} for free of shape {(count, groups)}")
        if bool((self.free & self.necessary).any()):
            raise InputError("got groups that are free and necessary, expected one of both")
        shown = torch.zeros_like(self.necessary)
        if len(self.points):
            inside = (self.point_of >= 0) & (self.point_of < self.point_of.new_tensor([count, groups]))
            if not bool(inside.all()):
                raise InputError(f"got point_of beyond {count} samples and {groups} groups")
            shown[self.point_of[:, 0], self.point_of[:, 1]] = True
        if not torch.equal(shown, self.necessary):
            raise InputError("got necessary groups without a point, or points of other groups")
        if not bool((self.bound < self.limit).all()):
            raise InputError("got a bound that is not below its limit, expected a proof for the free groups")
        if bool((self.least > (~self.free).sum(1)).any()):
            raise InputError("got a sufficient set with fewer groups than the least size of all sets")

    @property
    def kept(self) -> Tensor:
        """(N, G) bool: the groups that keep their values, a sufficient set."""
        return ~self.free

    @property
    def undecided(self) -> Tensor:
        """(N, G) bool: kept groups that are not shown to be necessary."""
        return self.kept & ~self.necessary

    @property
    def size(self) -> Tensor:
        """(N,) int64: the number of kept groups."""
        return self.kept.sum(1)

    @property
    def minimal(self) -> Tensor:
        """(N,) bool: every kept group is necessary, so that no kept group can be freed as well."""
        return ~self.undecided.any(1)

    @property
    def smallest(self) -> Tensor:
        """(N,) bool: no sufficient set keeps fewer groups."""
        return self.least >= self.size

    @property
    def adversarial(self) -> Tensor:
        """(N, G) bool: necessary groups whose point exceeds the limit in exact arithmetic."""
        found = torch.zeros_like(self.necessary)
        above = self.point_of[self.values > self.limit[self.point_of[:, 0]]]
        found[above[:, 0], above[:, 1]] = True
        return found

    def point(self, sample: int, group: int) -> Tensor:
        """Return the point (*shape) that shows a group of a sample necessary.

        Raises:
            InputError: The group is not necessary.
        """
        where = ((self.point_of[:, 0] == sample) & (self.point_of[:, 1] == group)).nonzero().flatten()
        if not len(where):
            raise InputError(f"got group {group} of sample {sample}, expected a group that is necessary")
        return self.points[where[0]]

    def of_groups(self, groups: slice, where: slice, shape: Sequence[int]) -> Reason:
        """Return the sets among some groups, those of one of several inputs: entries `where` of the points, in `shape`.

        `bound` is still about the free groups of all inputs. Nothing is known about the smallest number of groups of
        one input, so that `least` is 0.
        """
        of = self.point_of
        own = (of[:, 1] >= groups.start) & (of[:, 1] < groups.stop)
        return replace(
            self,
            free=self.free[:, groups],
            necessary=self.necessary[:, groups],
            points=self.points[own].flatten(1)[:, where].unflatten(1, tuple(shape)),
            point_of=of[own] - of.new_tensor([0, groups.start]),
            values=self.values[own],
            least=torch.zeros_like(self.least),
        )

    def pick(self, samples: Tensor) -> Reason:
        """Return the sets of some samples (n,)."""
        rows = [(self.point_of[:, 0] == int(n)).nonzero().flatten() for n in samples]
        each = torch.cat(rows) if rows else self.point_of[:0, 0]
        number = torch.arange(len(rows), device=self.free.device)
        owner = number.repeat_interleave(torch.tensor([len(row) for row in rows], device=number.device))
        of = torch.stack([owner, self.point_of[each, 1]], 1)
        return Reason(
            self.free[samples],
            self.necessary[samples],
            self.points[each],
            of,
            self.values[each],
            *(getattr(self, name)[samples] for name in ("bound", "limit", "least", "seconds")),
        )

    @staticmethod
    def join(parts: Sequence[Reason], groups: int) -> Reason:
        """Return the sets of all parts, with `groups` groups: groups that a part does not have are free in it."""
        moved, before = [], 0
        for part in parts:
            moved.append(part.point_of + part.point_of.new_tensor([before, 0]))
            before += len(part.free)

        def widened(name: str, value: bool) -> Tensor:
            rows = []
            for part in parts:
                given = getattr(part, name)
                more = given.new_full((len(given), groups - given.shape[1]), value)
                rows.append(torch.cat([given, more], 1))
            return torch.cat(rows)

        rest = {
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("points", "values", "bound", "limit", "least", "seconds")
        }
        return Reason(
            free=widened("free", value=True),
            necessary=widened("necessary", value=False),
            point_of=torch.cat(moved),
            **rest,
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, for a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        size, count = self.size, len(self.free)
        sizes = f"{int(size.min())} to {int(size.max())}" if count else "no"
        state = f"minimal for {int(self.minimal.sum())} of {count}, smallest for {int(self.smallest.sum())}"
        return f"Reason({count} samples, {sizes} of {self.free.shape[1]} groups kept, {state})"
