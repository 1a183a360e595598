"""The results of a run as numpy arrays: read chunk by chunk, and of each chunk only what is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from proofmap.errors import FileError, InputError
from proofmap.explainers.explanation import Guarantee, spread
from proofmap.explainers.proven_scores import Known
from proofmap.inputs.array_types import tensor_of
from proofmap.runs.attained_points import NAMES, unpacked
from proofmap.runs.audit import faults
from proofmap.runs.chunk import (
    ARRAYS,
    DROPS,
    ERRORS,
    LOWER,
    SCORES,
    WHOLE,
    Array,
    Words,
    read_array,
    read_words,
    widened,
)
from proofmap.runs.manifest import MASK, Entry, Manifest
from proofmap.runs.results_export import export, rows
from proofmap.storage.csv_cells import readable
from proofmap.storage.hashing import digest
from proofmap.storage.pandas_frames import frame
from proofmap.storage.resumable_folder import inside
from proofmap.text.proven_ranks import MOST
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Part", "Results", "maps"]


@dataclass(frozen=True, eq=False)
class Part:
    """One chunk: nothing is read before it is asked for."""

    file: Path
    samples: int
    shared: Array | None  # the group of each variable, (*shape), where all samples have the same

    def __len__(self) -> int:
        return self.samples

    @cached_property
    def _words(self) -> tuple[Words, list[str]]:
        return read_words(self.file, self.samples)

    @property
    def words(self) -> Words:
        return self._words[0]

    @property
    def names(self) -> list[str]:
        """Of the arrays; those of `SCORES` where inputs were met that reach the overlaps."""
        known = (*self._words[1], *(LOWER if self.searched else ()))
        held = [name for name in ARRAYS if name in known]
        return [*held, *(SCORES if self.searched else ()), "mask", "attributions"]

    @property
    def held(self) -> dict[str, Array]:
        """All arrays of the file, each of its type, with a row a sample where it has one."""
        return {name: read_array(self.file, name, self.samples) for name in self._words[1]}

    @property
    def searched(self) -> bool:
        """Whether more is known of the scores than the upper sides of certified overlaps say."""
        return self.words.guarantee == "certified" and not {LOWER[0], DROPS[0]}.isdisjoint(self._words[1])

    @cached_property
    def known(self) -> Known:
        """What is proven of the scores; NaN where a sample failed."""
        held: dict[str, Any] = {name: tensor_of(self[name]) for name in ("full", "frozen", "nominal", "target", *LOWER)}
        drops = np.stack([self[name] for name in DROPS], axis=2)
        overlap = Overlap(**held, certified=self.words.guarantee == "certified", drops=tensor_of(drops))
        return Known.of([overlap], *_groups(self["mask"], self["frozen"]))

    def points(self, row: int, groups: int) -> Array | None:
        """The inputs (1 + G, *shape) float32 that attain the lower sides of a row, of so many groups."""
        if NAMES[0] not in self._words[1] or not self.explained[row]:
            return None
        mask = self["mask"]
        return unpacked(self.file, row, np.broadcast_to(mask, (len(self), *mask.shape[1:]))[row], groups)

    @property
    def explained(self) -> Array:
        """(n,) bool."""
        failed = self.words.reasons
        return np.array([row not in failed for row in range(self.samples)])

    @property
    def ranked(self) -> Array:
        """Whether it is proven which groups matter most, (n,) bool: the ten largest, or half of fewer than twenty."""
        if not self.explained.any():
            return self.explained
        mask = self["mask"]
        most = np.broadcast_to([min(MOST, len(np.unique(each)) // 2) for each in mask], len(self))
        counts = {k: self.known.top(k).sum(1).numpy() for k in sorted({*most.tolist()} - {0})}
        return np.array([k > 0 and counts[k][row] == k for row, k in enumerate(most.tolist())]) & self.explained

    def __getitem__(self, name: str) -> Array:
        """The array of that name; a mask that all share is (1, *shape)."""
        if name == "attributions":
            return maps(self["scores"], self["mask"], self.words.about["job"].get("smooth", False))
        if name == "mask" and self.shared is not None:
            return self.shared[None]
        if name in SCORES:
            some = self.explained.any()
            return self.known.intervals[:, :, SCORES.index(name)].numpy() if some else np.zeros((len(self), 0))
        if name in LOWER and name not in self._words[1]:
            nominal = self["nominal"]  # the sample itself is in every ball
            return nominal if name == "full_lower" else np.repeat(nominal[:, None], self["frozen"].shape[1], axis=1)
        if name == ERRORS and name not in self._words[1]:
            return np.full(self["scores"].shape, np.nan, dtype=np.float32)
        if name in DROPS and name not in self._words[1]:
            return np.full(self["frozen"].shape, 0.0 if name == DROPS[0] else np.inf)
        return read_array(self.file, name, self.samples)


def maps(scores: Array, mask: Array, smooth: bool = False) -> Array:
    """Each variable's score: (n, G) and a mask (1 or n, *shape) -> (n, *shape); NaN where nothing was explained."""
    if not scores.shape[1]:
        return np.full((len(scores), *mask.shape[1:]), np.nan, dtype=scores.dtype)
    groups, _ = _groups(mask, scores)
    attributions: Array = spread(tensor_of(scores), groups, smooth).numpy()
    return attributions


def _groups(mask: Array, columns: Array) -> tuple[Tensor, int]:
    """The mask as a tensor and the number of groups, which have to be those of the columns (n, G)."""
    groups = columns.shape[1]
    if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < groups:
        raise FileError(f"the groups go from {mask.min()} to {mask.max()}, expected 0 to {groups - 1}")
    return tensor_of(mask).long(), groups


@dataclass(frozen=True, eq=False)
class Results:
    """What is there of a run, in its order: a row for each sample of every finished chunk.

    results["scores"] is an array over all of them; `parts` are the chunks, one by one, where that is too much. A sample
    that could not be explained has a row too, of NaN and -1, and a reason.
    """

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Results:
        """The results in a folder, of a whole run or of what there is of one."""
        return cls(Path(folder), Manifest.load(Path(folder)))

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return len(self.parts) == self.manifest.total

    @property
    def about(self) -> Mapping[str, Any]:
        """What was run: model, method, settings, data, versions."""
        return self.manifest.about

    @property
    def guarantee(self) -> Guarantee:
        """What the overlaps are: "certified", "sampled" or "none"."""
        return self.parts[0].words.guarantee

    @property
    def samples(self) -> list[str]:
        """The name of each sample."""
        return [name for part in self.parts for name in part.words.names]

    @property
    def files(self) -> list[str | None]:
        """The SHA-256 of the file that holds each sample, as `sha256sum` prints it; None where it was in none."""
        return [file for part in self.parts for file in part.words.files]

    @property
    def inputs(self) -> list[str | None]:
        """The SHA-256 of the values of each sample, little-endian float32; None where it could not be read, or where
        the run did not record it.
        """
        return [one for part in self.parts for one in part.words.inputs or [None] * len(part)]

    @property
    def taken_off(self) -> str | None:
        """The end of the network that was left out of the bounds, such as "softmax"."""
        return next((part.words.taken_off for part in self.parts if part.words.taken_off is not None), None)

    @property
    def reasons(self) -> dict[int, str]:
        """Why samples could not be explained, by their row."""
        found, first = dict[int, str](), 0
        for part in self.parts:
            failed = part.words.reasons
            found |= {first + row: failed[row] for row in range(len(part)) if row in failed}
            first += len(part)
        return found

    @property
    def names(self) -> list[str]:
        """Of the arrays."""
        return max((part.names for part in self.parts), key=len)  # of a search some may have found nothing

    def __getitem__(self, name: str) -> Array:
        """An array over all samples, in the order of the run; a mask that all share is (1, *shape)."""
        if name not in self.names:
            raise InputError(f"got the array {name!r}, expected one of {', '.join(self.names)}")
        if name == "mask" and self._shared is not None:
            return self._shared[None]
        arrays = [part[name] for part in self.parts]
        if name in SCORES or ARRAYS.get(name, ("", 0, 0))[2] == 2:
            groups = max(values.shape[1] for values in arrays)
            arrays = [
                widened(values, groups, part[WHOLE[name]] if name in WHOLE else None, part.explained)
                for values, part in zip(arrays, self.parts, strict=True)
            ]
        return np.concatenate(arrays)

    def points(self, row: int) -> Array | None:
        """The inputs (1 + G, *shape) float32 that attain full_lower and frozen_lower of a row, in this order: numbers
        of x's ball, with the frozen group at x; None where no search was made, or its points were not kept.
        """
        if not 0 <= row < len(self):
            raise InputError(f"got row {row}, expected one from 0 to {len(self) - 1}")
        groups = self["scores"].shape[1] if self._shared is None else int(self._shared.max()) + 1
        ends = np.cumsum([len(part) for part in self.parts])
        part = self.parts[int(np.searchsorted(ends, row, side="right"))]
        return part.points(row - int(ends[ends <= row].max(initial=0)), groups)

    def check(self) -> None:
        """Raise FileError where a file is not as it was written, or where the manifest and the rows disagree."""
        for fault in faults(self):
            raise FileError(fault.sentence)
        _mask(self.folder, self.about["mask"])
        for why in self._contradictions():
            raise FileError(f"{self.folder} contradicts itself: {why}; run it again, into a new folder")

    def _contradictions(self) -> Iterator[str]:
        """What the manifest says otherwise than all rows together, with both values."""
        data, index = self.about["data"], self["index"]
        if len(np.unique(index)) < len(index):
            yield f"{len(index)} rows explain {len(np.unique(index))} samples"
        if self.complete:
            labels = [str(label) for label in self["label"].tolist()] if "label" in self.names else None
            for name, rows in (("names", self.samples), ("labels", labels)):
                seen = None if rows is None else digest(rows)
                if seen != data[name]:
                    yield f"data.{name} is {data[name]!r} in the manifest and {seen!r} in the rows"

    def export(self, out: str | os.PathLike[str]) -> None:
        """Write a table (.csv, .parquet) or arrays (.npz, .zarr), by what the name ends in."""
        export(self, Path(out))

    def to_frame(self) -> DataFrame:
        """A pandas frame with the columns of the .csv: a row a sample, NaN where nothing is known."""
        table = rows(self)
        head = next(table)
        return frame(head, ([readable(value) if isinstance(value, str) else value for value in row] for row in table))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The finished chunks, in order."""
        if not self.manifest.chunks:
            raise FileError(f"{self.folder} has no results yet, expected a finished chunk: start the run")
        return tuple(self.part(self.manifest.chunks[number]) for number in sorted(self.manifest.chunks))

    def part(self, entry: Entry) -> Part:
        """The chunk of an entry of the manifest."""
        return Part(inside(self.folder, entry.file), entry.samples, self._shared)

    @cached_property
    def _shared(self) -> Array | None:
        return _mask(self.folder, self.about["mask"])


def _mask(folder: Path, expected: str | None) -> Array | None:
    """The groups that all samples share, (*shape), where they do; `expected` is the SHA-256 of the file."""
    if expected is None:
        return None
    path = inside(folder, MASK)
    try:
        content = path.read_bytes()
        if sha256(content).hexdigest() != expected:
            raise FileError(f"{path} is damaged: run again to make it anew")
        mask: Array = np.load(BytesIO(content), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}; run again to make it anew") from error
    return mask
