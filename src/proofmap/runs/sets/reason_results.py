"""Sufficient sets of a run: the arrays of its chunks, their conditions, and the totals.

The points of all samples of a chunk are one array, with the row and the group of each. The times are in the log: they
are no part of the results, which are the same bytes in every execution.
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
from proofmap.reasons.reason import Reason
from proofmap.runs.chunk import ARRAYS, REASON_ARRAYS, Array
from proofmap.text.reason_wording import counted_reasons
from proofmap.text.wording import share

if TYPE_CHECKING:
    from proofmap.runs.results import Results

# x: (n, *shape) float32; points: (W, *shape) float32; row and group: (W, 2) int64; overlaps there: (W,) float64
REASON_POINTS = ("reason_x", "reason_points", "reason_point_of", "reason_values")
REASON_COUNTS = ("reason_size", "reason_undecided", "reason_seconds")  # derived, not stored
_NOUNS = {
    "Grid": "cell",
    "Pixels": "pixel",
    "Superpixels": "superpixel",
    "Columns": "column",
    "Windows": "window",
    "Tokens": "token",
}


def noun_of_groups(results: Results) -> str:
    """Return the word for a group of a run: "pixel", "cell", "column", ..."""
    return _NOUNS.get(str(results.about["job"]["groups"]).partition("(")[0], "group")


def reason_tensors(reason: Reason, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the arrays of the sets of some samples x (k, *shape) by name, in the types of a chunk."""
    return {
        "kept": reason.kept,
        "necessary": reason.necessary,
        "reason_bound": reason.bound,
        "reason_limit": reason.limit,
        "reason_least": reason.least,
        "reason_x": x,
        "reason_points": reason.points,
        "reason_point_of": reason.point_of,
        "reason_values": reason.values,
    }


def join_points(
    count: int, shape: Sequence[int], parts: Sequence[tuple[Sequence[int], Mapping[str, Array]]]
) -> dict[str, Array]:
    """Return `REASON_POINTS` of a chunk with `count` rows from parts with rows of their own; failed rows have NaN."""
    x = np.full((count, *shape), np.nan, dtype=np.float32)
    points, of, values = [np.zeros((0, *shape), np.float32)], [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for rows, held in parts:
        x[list(rows)] = held["reason_x"]
        points.append(held["reason_points"])
        own = held["reason_point_of"].copy()
        own[:, 0] = np.asarray(rows, dtype=np.int64)[own[:, 0]]
        of.append(own)
        values.append(held["reason_values"])
    found = (x, np.concatenate(points), np.concatenate(of), np.concatenate(values))
    return dict(zip(REASON_POINTS, found, strict=True))


def without_reasons(name: str, samples: int, groups: int) -> Array:
    """Return an array of `REASON_ARRAYS` for samples that were not explained."""
    dtype, fill, rank = ARRAYS[name]
    return np.full((samples, groups) if rank == 2 else (samples,), fill, dtype=dtype)


def reason_count(name: str, held: Mapping[str, Array], explained: Array, seconds: Array) -> Array:
    """Return an array of `REASON_COUNTS` (n,); -1 or NaN for samples that were not explained."""
    if name == "reason_seconds":
        return np.where(explained, seconds, np.nan)
    marked = held["kept"] if name == "reason_size" else held["kept"] & ~held["necessary"]
    return np.where(explained, marked.sum(axis=1), -1).astype(np.int64)


def read_reason(path: Path, row: int, held: Mapping[str, Array], seconds: float) -> tuple[Reason, Array]:
    """Read the set of one row of a chunk's file, and the input x (*shape)."""
    try:
        with safe_open(path, framework="numpy") as file:
            x, points, of, values = (file.get_tensor(name) for name in REASON_POINTS)
        mine = of[:, 0] == row
        reason = Reason(
            free=to_tensor(~held["kept"][row])[None],
            necessary=to_tensor(held["necessary"][row])[None],
            points=to_tensor(points[mine]),
            point_of=to_tensor(np.stack([np.zeros(int(mine.sum()), np.int64), of[mine, 1]], axis=1)),
            values=to_tensor(values[mine]),
            **{name: to_tensor(held[f"reason_{name}"][row : row + 1]) for name in ("bound", "limit", "least")},
            seconds=torch.tensor([seconds], dtype=torch.float64),
        )
    except (OSError, SafetensorError, ValueError, IndexError, InputError) as error:
        raise FileError(f"cannot read the sufficient set in {path}: {error}; run again to make it anew") from error
    return reason, x[row]


def reason_faults(arrays: Mapping[str, Array], held: Array, mask: Array | None, shape: Sequence[int]) -> Iterator[str]:
    """Yield conditions that the sufficient sets of a chunk violate.

    Args:
        arrays: All arrays of the chunk.
        held: (n,) bool, the rows that were explained.
        mask: The groups of each row (1 or n, *shape); None if they are not known here.
        shape: The shape of a sample.
    """
    names = {*REASON_ARRAYS, *REASON_POINTS} & arrays.keys()
    if not names:
        return
    if missing := {*REASON_ARRAYS, *REASON_POINTS} - names:
        yield f"it has only a part of its sufficient sets, without {', '.join(sorted(missing))}"
        return
    kept, necessary = arrays["kept"], arrays["necessary"]
    x, points, of, values = (arrays[name] for name in REASON_POINTS)
    count, groups = kept.shape
    fits = x.shape == (count, *shape) and points.shape == (len(values), *shape) and of.shape == (len(values), 2)
    if not fits or (of < 0).any() or (of >= (count, groups)).any():
        yield "the points of its sufficient sets do not fit together"
        return
    if (necessary & ~kept).any():
        yield "a group is necessary and free"
    shown = np.zeros_like(necessary)
    shown[of[:, 0], of[:, 1]] = True
    if (shown != necessary).any():
        yield "necessary groups and stored points differ"
    if not (arrays["reason_bound"][held] < arrays["reason_limit"][held]).all():
        yield "a bound of the free groups is not below its limit"
    least, size = arrays["reason_least"][held], kept.sum(axis=1)[held]
    if ((least < 0) | (least > size)).any():
        yield "a sufficient set has fewer groups than any set can have"
    if mask is None or (shown != necessary).any():
        return
    for point, (row, group) in zip(points, of, strict=True):
        own = mask[row if len(mask) > 1 else 0]
        if (point != x[row])[kept[row][own] & (own != group)].any():
            yield f"the point of group {group} in row {row} moves another kept group"
            return


@dataclass(frozen=True, eq=False)
class ReasonTotals:
    """The sizes of the sufficient sets of all explained samples."""

    noun: str
    sizes: Array  # (N,) int64: kept groups
    undecided: Array  # (N,) int64
    least: Array  # (N,) int64: no sufficient set has fewer groups
    seconds: Array  # (N,) float64; NaN without a log

    @classmethod
    def of(cls, results: Results) -> ReasonTotals | None:
        """Return the totals of a run; None without sufficient sets."""
        if not any(part.reasoned for part in results.parts):
            return None
        explained = np.concatenate([part.explained for part in results.parts])
        names = ("reason_size", "reason_undecided", "reason_least", "reason_seconds")
        return cls(noun_of_groups(results), *(results[name][explained] for name in names))

    @property
    def count(self) -> int:
        """The number of sets."""
        return len(self.sizes)

    @property
    def minimal(self) -> int:
        """The number of sets without undecided groups."""
        return int((self.undecided == 0).sum())

    @property
    def smallest(self) -> int:
        """The number of sets for which no sufficient set is smaller."""
        return int((self.least >= self.sizes).sum())

    @property
    def undecided_share(self) -> float:
        """The share of undecided groups among all kept groups; 0 if no group is kept."""
        return float(self.undecided.sum() / max(1, int(self.sizes.sum())))

    @property
    def mean_seconds(self) -> float | None:
        """The mean seconds of a sample; None if the log does not have all."""
        mean = float(self.seconds.mean())
        return None if np.isnan(mean) else mean

    def json(self) -> dict[str, Any]:
        """Return the totals as JSON. Seconds are not among them: they differ in every execution."""
        return {
            "group": self.noun,
            "mean_size": float(self.sizes.mean()),
            "median_size": float(np.median(self.sizes)),
            "smallest_size": int(self.sizes.min()),
            "largest_size": int(self.sizes.max()),
            "subset_minimal": self.minimal,
            "proven_smallest": self.smallest,
            "undecided_share": self.undecided_share,
            "mean_lower_bound_of_size": float(self.least.mean()),
        }

    def lines(self) -> list[str]:
        """Return the totals as lines of text."""
        took = "" if self.mean_seconds is None else f"; {self.mean_seconds:.3g} s for each on average"
        least = f"; no sufficient set has fewer than {self.least.mean():.1f} on average" if self.least.any() else ""
        percent = 100 * self.undecided_share
        return [
            f"sufficient sets: {counted_reasons(self.sizes.tolist(), self.noun)}{least}{took}",
            f"subset-minimal: {share(self.minimal, self.count, 'sample')}; "
            f"proven smallest: {share(self.smallest, self.count, 'sample')}; "
            f"undecided: {percent:.1f} % of kept {self.noun}s",
        ]
