"""Contrastive sets of a run: the arrays of its chunks, their conditions, and the totals.

The sets of all samples of a chunk are one array, with the row of each. The times are in the log: they are no part of
the results, which are the same bytes in every execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from proofmap.errors import FileError, InputError
from proofmap.inputs.array_types import to_tensor
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.runs.chunk import CONTRAST_ARRAYS, Array, with_missing_groups
from proofmap.runs.sets.reason_results import noun_of_groups
from proofmap.text.contrast_wording import counted_contrasts
from proofmap.text.wording import share

if TYPE_CHECKING:
    from proofmap.runs.results import Results

# x: (n, *shape) float32; sets: (M, G) bool; owner: (M,) int64, the row; points: (M, *shape) float32; classes: (M,)
# int64; overlaps there: (M,) float64
CONTRAST_POINTS = (
    "contrast_x",
    "contrast_sets",
    "contrast_owner",
    "contrast_points",
    "contrast_classes",
    "contrast_values",
)
CONTRAST_COUNTS = ("contrast_size", "contrast_seconds")  # derived, not stored


def contrast_tensors(contrast: Contrast, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the arrays of the sets of some samples x (k, *shape) by name, in the types of a chunk."""
    return {
        "changed": contrast.moved,
        "contrast_least": torch.where(contrast.impossible, -1, contrast.least),
        "contrast_counted": contrast.counted,
        "contrast_limit": contrast.limit,
        "contrast_x": x,
        "contrast_sets": contrast.sets,
        "contrast_owner": contrast.owner,
        "contrast_points": contrast.points,
        "contrast_classes": contrast.classes,
        "contrast_values": contrast.values,
    }


def join_sets(
    count: int, shape: Sequence[int], parts: Sequence[tuple[Sequence[int], Mapping[str, Array]]]
) -> dict[str, Array]:
    """Return `CONTRAST_POINTS` of a chunk with `count` rows from parts with rows of their own; failed rows have NaN."""
    x = np.full((count, *shape), np.nan, dtype=np.float32)
    groups = max((held["contrast_sets"].shape[1] for _, held in parts), default=0)
    found: dict[str, list[Array]] = {
        "contrast_sets": [np.zeros((0, groups), bool)],
        "contrast_owner": [np.zeros(0, np.int64)],
        "contrast_points": [np.zeros((0, *shape), np.float32)],
        "contrast_classes": [np.zeros(0, np.int64)],
        "contrast_values": [np.zeros(0)],
    }
    for rows, held in parts:
        x[list(rows)] = held["contrast_x"]
        own = {**held, "contrast_owner": np.asarray(rows, dtype=np.int64)[held["contrast_owner"]]}
        every = np.ones(len(own["contrast_sets"]), dtype=bool)
        own["contrast_sets"] = with_missing_groups(held["contrast_sets"], groups, None, every)
        for name, arrays in found.items():
            arrays.append(own[name])
    whole = {name: np.concatenate(arrays) for name, arrays in found.items()}
    order = np.argsort(whole["contrast_owner"], kind="stable")
    return {"contrast_x": x, **{name: array[order] for name, array in whole.items()}}


def contrast_count(name: str, held: Mapping[str, Array], explained: Array, seconds: Array) -> Array:
    """Return an array of `CONTRAST_COUNTS` (n,); -1 or NaN for samples that were not explained. 0: no set was found."""
    if name == "contrast_seconds":
        return np.where(explained, seconds, np.nan)
    return np.where(explained, held["changed"].sum(axis=1), -1).astype(np.int64)


def read_contrast(path: Path, row: int, held: Mapping[str, Array], seconds: float) -> tuple[Contrast, Array]:
    """Read the sets of one row of a chunk's file, and the input x (*shape)."""
    try:
        with safe_open(path, framework="numpy") as file:
            x, sets, owner, *rest = (file.get_tensor(name) for name in CONTRAST_POINTS)
        mine = owner == row
        points, classes, values = (to_tensor(array[mine]) for array in rest)
        least = held["contrast_least"][row : row + 1]
        contrast = Contrast(
            sets=to_tensor(sets[mine]),
            owner=torch.zeros(int(mine.sum()), dtype=torch.int64),
            points=points,
            classes=classes,
            values=values,
            least=to_tensor(np.where(least < 0, sets.shape[1] + 1, least)),
            counted=to_tensor(held["contrast_counted"][row : row + 1]),
            limit=to_tensor(held["contrast_limit"][row : row + 1]),
            seconds=torch.tensor([seconds], dtype=torch.float64),
        )
    except (OSError, SafetensorError, ValueError, IndexError, InputError) as error:
        raise FileError(f"cannot read the contrastive sets in {path}: {error}; run again to make it anew") from error
    return contrast, x[row]


def contrast_faults(
    arrays: Mapping[str, Array], held: Array, mask: Array | None, shape: Sequence[int]
) -> Iterator[str]:
    """Yield conditions that the contrastive sets of a chunk violate.

    Args:
        arrays: All arrays of the chunk.
        held: (n,) bool, the rows that were explained.
        mask: The groups of each row (1 or n, *shape); None if they are not known here.
        shape: The shape of a sample.
    """
    names = {*CONTRAST_ARRAYS, *CONTRAST_POINTS} & arrays.keys()
    if not names:
        return
    if missing := {*CONTRAST_ARRAYS, *CONTRAST_POINTS} - names:
        yield f"it has only a part of its contrastive sets, without {', '.join(sorted(missing))}"
        return
    x, sets, owner, points, classes, values = (arrays[name] for name in CONTRAST_POINTS)
    changed, least = arrays["changed"], arrays["contrast_least"]
    count, groups = changed.shape
    fits = x.shape == (count, *shape) and points.shape == (len(sets), *shape) and sets.shape[1:] == (groups,)
    fits = fits and owner.shape == classes.shape == values.shape == (len(sets),)
    if not fits or (owner < 0).any() or (owner >= count).any() or (np.diff(owner) < 0).any():
        yield "the points of its contrastive sets do not fit together"
        return
    first = np.zeros_like(changed)
    first[owner[::-1]] = sets[::-1]  # the first set of a row is written last
    if (first != changed).any() or not sets.any(axis=1).all():
        yield "changed groups and stored sets differ"
    if not (values > arrays["contrast_limit"][owner]).all():
        yield "an input does not exceed its limit"
    if (sets.sum(axis=1) < least[owner]).any() or (least[owner] < 0).any():
        yield "a contrastive set has fewer groups than any set can have"
    if ((least[held] == 0) | (least[held] < -1)).any():
        yield "a least number of groups is no number"
    if mask is None:
        return
    for point, row, groups_of_set in zip(points, owner, sets, strict=True):
        own = mask[row if len(mask) > 1 else 0]
        if (point != x[row])[~groups_of_set[own]].any():
            yield f"an input of row {row} changes a group outside of its set"
            return


@dataclass(frozen=True, eq=False)
class ContrastTotals:
    """The sizes of the smallest sets found for all explained samples."""

    noun: str
    sizes: Array  # (N,) int64: changed groups; 0: no set was found
    least: Array  # (N,) int64: no set of fewer groups changes the decision; -1: no set does
    seconds: Array  # (N,) float64; NaN without a log

    @classmethod
    def of(cls, results: Results) -> ContrastTotals | None:
        """Return the totals of a run; None without contrastive sets."""
        if not any(part.contrasted for part in results.parts):
            return None
        explained = np.concatenate([part.explained for part in results.parts])
        names = ("contrast_size", "contrast_least", "contrast_seconds")
        return cls(noun_of_groups(results), *(results[name][explained] for name in names))

    @property
    def count(self) -> int:
        """The number of explained samples."""
        return len(self.sizes)

    @property
    def found(self) -> Array:
        """The sizes of the sets that were found."""
        return self.sizes[self.sizes > 0]

    @property
    def smallest(self) -> int:
        """The number of sets that are proven to be smallest."""
        return int(((self.sizes > 0) & (self.least >= self.sizes)).sum())

    @property
    def impossible(self) -> int:
        """The number of samples whose decision no input of the ball can change."""
        return int((self.least < 0).sum())

    @property
    def mean_seconds(self) -> float | None:
        """The mean seconds of a sample; None if the log does not have all."""
        mean = float(self.seconds.mean())
        return None if np.isnan(mean) else mean

    def json(self) -> dict[str, Any]:
        """Return the totals as JSON. Seconds are not among them: they differ in every execution."""
        found = self.found
        return {
            "group": self.noun,
            "found": len(found),
            "mean_size": float(found.mean()) if len(found) else None,
            "median_size": float(np.median(found)) if len(found) else None,
            "smallest_size": int(found.min()) if len(found) else None,
            "largest_size": int(found.max()) if len(found) else None,
            "proven_smallest": self.smallest,
            "no_set_possible": self.impossible,
        }

    def lines(self) -> list[str]:
        """Return the totals as lines of text."""
        took = "" if self.mean_seconds is None else f"; {self.mean_seconds:.3g} s for each on average"
        found = self.found.tolist()
        sizes = f": {counted_contrasts(found, self.noun)}" if found else ""
        return [
            f"contrastive sets: found for {share(len(found), self.count, 'sample')}{sizes}{took}",
            f"proven smallest: {share(self.smallest, self.count, 'sample')}; "
            f"proven that no set exists: {share(self.impossible, self.count, 'sample')}",
        ]
