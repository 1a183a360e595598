"""Results of a run as numpy arrays, which are read from the chunks on first use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
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
from proofmap.explainers.proven_scores import ProvenScores
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST
from proofmap.inputs.array_types import to_tensor
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.runs.attained_points import POINT_ARRAYS, unpack_points
from proofmap.runs.audit import find_faults
from proofmap.runs.chunk import (
    ARRAYS,
    CONTRAST_ARRAYS,
    DROP_BOUNDS,
    ERRORS,
    FULL_BALL_OF,
    LOWER_BOUNDS,
    REASON_ARRAYS,
    SCORE_BOUNDS,
    Array,
    ChunkTexts,
    read_array,
    read_chunk_texts,
    with_missing_groups,
)
from proofmap.runs.manifest import MASK, ChunkEntry, Manifest, chunk_file
from proofmap.runs.results_export import export, rows
from proofmap.runs.sets.contrast_results import CONTRAST_COUNTS, contrast_count, read_contrast
from proofmap.runs.sets.reason_results import REASON_COUNTS, read_reason, reason_count, without_reasons
from proofmap.storage.exported_tables import data_frame, escape_surrogates
from proofmap.storage.hashing import digest
from proofmap.storage.resumable_folder import path_inside, read_log
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class ChunkResults:
    """The results of one chunk. Arrays are read on first use."""

    file: Path
    samples: int
    shared: Array | None  # the group of each variable, (*shape), if all samples share the groups
    seconds: Sequence[float | None] = ()  # per sample with sets, from the log; () if not recorded

    def __len__(self) -> int:
        return self.samples

    @cached_property
    def _texts(self) -> tuple[ChunkTexts, list[str]]:
        return read_chunk_texts(self.file, self.samples)

    @property
    def texts(self) -> ChunkTexts:
        return self._texts[0]

    @property
    def names(self) -> list[str]:
        """The names of the arrays; includes `SCORE_BOUNDS` if the scores were bounded from both sides."""
        known = (*self._texts[1], *(LOWER_BOUNDS if self.searched else ()))
        held = [name for name in ARRAYS if name in known]
        counts = REASON_COUNTS if self.reasoned else CONTRAST_COUNTS if self.contrasted else ()
        return [*held, *counts, *(SCORE_BOUNDS if self.searched else ()), "mask", "attributions"]

    @property
    def held(self) -> dict[str, Array]:
        """All arrays of the file, with their types checked, and one row per sample where they have rows."""
        return {name: read_array(self.file, name, self.samples) for name in self._texts[1]}

    @property
    def searched(self) -> bool:
        """True if lower bounds of overlaps or bounds of differences were stored, so that scores have intervals."""
        return self.texts.guarantee == "certified" and not {LOWER_BOUNDS[0], DROP_BOUNDS[0]}.isdisjoint(self._texts[1])

    @property
    def reasoned(self) -> bool:
        """True if sufficient sets were stored."""
        return REASON_ARRAYS[0] in self._texts[1]

    @property
    def contrasted(self) -> bool:
        """True if contrastive sets were stored."""
        return CONTRAST_ARRAYS[0] in self._texts[1]

    @cached_property
    def known(self) -> ProvenScores:
        """The proven bounds of the scores; NaN where a sample failed."""
        held: dict[str, Any] = {
            name: to_tensor(self[name]) for name in ("full", "frozen", "nominal", "target", *LOWER_BOUNDS)
        }
        drops = np.stack([self[name] for name in DROP_BOUNDS], axis=2)
        overlap = Overlap(**held, certified=self.texts.guarantee == "certified", drops=to_tensor(drops))
        return ProvenScores.of([overlap], *_mask_and_count(self["mask"], self["frozen"]))

    def points(self, row: int, groups: int) -> Array | None:
        """Return the inputs (1 + G, *shape) float32 that attain the lower bounds of a row, for G groups."""
        if POINT_ARRAYS[0] not in self._texts[1] or not self.explained[row]:
            return None
        mask = self["mask"]
        return unpack_points(self.file, row, np.broadcast_to(mask, (len(self), *mask.shape[1:]))[row], groups)

    def reason(self, row: int) -> tuple[Reason, Array] | None:
        """Return the sufficient set of a row, and its input x (*shape); None if it was not explained."""
        if not self.reasoned or not self.explained[row]:
            return None
        return read_reason(
            self.file, row, {name: self[name] for name in REASON_ARRAYS}, float(self["reason_seconds"][row])
        )

    def contrast(self, row: int) -> tuple[Contrast, Array] | None:
        """Return the contrastive sets of a row, and its input x (*shape); None if it was not explained."""
        if not self.contrasted or not self.explained[row]:
            return None
        held = {name: self[name] for name in CONTRAST_ARRAYS}
        return read_contrast(self.file, row, held, float(self["contrast_seconds"][row]))

    @property
    def explained(self) -> Array:
        """(n,) bool."""
        failed = self.texts.reasons
        return np.array([row not in failed for row in range(self.samples)])

    @property
    def ranked(self) -> Array:
        """(n,) bool: the set of the most important groups is proven (the ten largest, or half if fewer than twenty)."""
        if not self.explained.any():
            return self.explained
        mask = self["mask"]
        most = np.broadcast_to([min(MAX_LARGEST, len(np.unique(each)) // 2) for each in mask], len(self))
        counts = {k: self.known.top(k).sum(1).numpy() for k in sorted({*most.tolist()} - {0})}
        return np.array([k > 0 and counts[k][row] == k for row, k in enumerate(most.tolist())]) & self.explained

    def __getitem__(self, name: str) -> Array:
        """Return the array with this name; a shared mask is (1, *shape)."""
        if name == "attributions":
            return maps(self["scores"], self["mask"], self.texts.about["job"].get("smooth", False))
        if name == "mask" and self.shared is not None:
            return self.shared[None]
        if name in REASON_COUNTS or name in CONTRAST_COUNTS:
            took = [np.nan if one is None else one for one in self.seconds]
            seconds = np.array(took if len(took) == len(self) else [np.nan] * len(self))
            if name in CONTRAST_COUNTS:
                return contrast_count(name, {"changed": self["changed"]}, self.explained, seconds)
            return reason_count(name, {one: self[one] for one in REASON_ARRAYS[:2]}, self.explained, seconds)
        if name in (CONTRAST_ARRAYS if not self.contrasted else ()):
            return without_reasons(name, len(self), self["scores"].shape[1])
        if name in REASON_ARRAYS and not self.reasoned:
            return without_reasons(name, len(self), self["scores"].shape[1])
        if name in SCORE_BOUNDS:
            some = self.explained.any()
            return self.known.intervals[:, :, SCORE_BOUNDS.index(name)].numpy() if some else np.zeros((len(self), 0))
        if name in LOWER_BOUNDS and name not in self._texts[1]:
            nominal = self["nominal"]  # every ball contains the sample itself
            return nominal if name == "full_lower" else np.repeat(nominal[:, None], self["frozen"].shape[1], axis=1)
        if name == ERRORS and name not in self._texts[1]:
            return np.full(self["scores"].shape, np.nan, dtype=np.float32)
        if name in DROP_BOUNDS and name not in self._texts[1]:
            return np.full(self["frozen"].shape, 0.0 if name == DROP_BOUNDS[0] else np.inf)
        return read_array(self.file, name, self.samples)


def is_wide(name: str) -> bool:
    """Return whether an array has one column for each group."""
    return name in SCORE_BOUNDS or (name in ARRAYS and ARRAYS[name][2] == 2)


def maps(scores: Array, mask: Array, smooth: bool = False) -> Array:
    """Spread scores (n, G) over a mask (1 or n, *shape): (n, *shape); NaN for samples that were not explained."""
    if not scores.shape[1]:
        return np.full((len(scores), *mask.shape[1:]), np.nan, dtype=scores.dtype)
    groups, _ = _mask_and_count(mask, scores)
    attributions: Array = spread(to_tensor(scores), groups, smooth).numpy()
    return attributions


def _mask_and_count(mask: Array, columns: Array) -> tuple[Tensor, int]:
    """Return the mask as a tensor, and the number of groups of `columns` (n, G), which the mask must fit."""
    groups = columns.shape[1]
    if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < groups:
        raise FileError(f"the groups go from {mask.min()} to {mask.max()}, expected 0 to {groups - 1}")
    return to_tensor(mask).long(), groups


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a run, complete or not: one row per sample of every finished chunk, in the order of the run.

    results["scores"] is an array over all samples; `parts` gives one chunk at a time if that is too large. A sample
    that could not be explained has a row of NaN and -1, and a reason.
    """

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Results:
        """Open the results in a folder, of a complete or an unfinished run."""
        return cls(Path(folder), Manifest.load(Path(folder)))

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def complete(self) -> bool:
        """True if all chunks are finished."""
        return len(self.parts) == self.manifest.total

    @property
    def about(self) -> Mapping[str, Any]:
        """The description of the run: model, method, settings, data, versions."""
        return self.manifest.about

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the overlaps: "certified", "probable", "sampled" or "none"."""
        return self.parts[0].texts.guarantee

    @property
    def samples(self) -> list[str]:
        """The name of each sample."""
        return [name for part in self.parts for name in part.texts.names]

    @property
    def files(self) -> list[str | None]:
        """The SHA-256 of each sample's file, as `sha256sum` prints it; None for samples without a file."""
        return [file for part in self.parts for file in part.texts.files]

    @property
    def inputs(self) -> list[str | None]:
        """The SHA-256 of each sample's values, as little-endian float32.

        None if the sample could not be read, or if the run did not record it.
        """
        return [one for part in self.parts for one in part.texts.inputs or [None] * len(part)]

    @property
    def taken_off(self) -> str | None:
        """The final operation that the bounds leave out, such as "softmax"."""
        return next((part.texts.taken_off for part in self.parts if part.texts.taken_off is not None), None)

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons why samples could not be explained, by row."""
        found, first = dict[int, str](), 0
        for part in self.parts:
            failed = part.texts.reasons
            found |= {first + row: failed[row] for row in range(len(part)) if row in failed}
            first += len(part)
        return found

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return max((part.names for part in self.parts), key=len)  # some chunks may lack bounds of a search

    def __getitem__(self, name: str) -> Array:
        """Return an array over all samples, in the order of the run; a shared mask is (1, *shape)."""
        if name not in self.names:
            raise InputError(f"got the array {name!r}, expected one of {', '.join(self.names)}")
        if name == "mask" and self._shared is not None:
            return self._shared[None]
        arrays = [part[name] for part in self.parts]
        if is_wide(name):
            groups = max(values.shape[1] for values in arrays)
            arrays = [
                with_missing_groups(
                    values, groups, part[FULL_BALL_OF[name]] if name in FULL_BALL_OF else None, part.explained
                )
                for values, part in zip(arrays, self.parts, strict=True)
            ]
        return np.concatenate(arrays)

    def points(self, row: int) -> Array | None:
        """Return the inputs (1 + G, *shape) float32 that attain full_lower and frozen_lower of a row, in this order.

        All points lie in x's ball; those of B_u equal x on the frozen group. None if there was no search, or if its
        points were not stored.
        """
        groups = self["scores"].shape[1] if self._shared is None else int(self._shared.max()) + 1
        part, place = self._place(row)
        return part.points(place, groups)

    def reason(self, row: int) -> Reason | None:
        """Return the sufficient set of a row, as `pm.Sufficient` found it; None without one.

        Its time is that of the log, and NaN without the log.
        """
        part, place = self._place(row)
        found = part.reason(place)
        return None if found is None else found[0]

    def contrast(self, row: int) -> Contrast | None:
        """Return the contrastive sets of a row, as `pm.Contrastive` found them; None without any.

        Their time is that of the log, and NaN without the log.
        """
        part, place = self._place(row)
        found = part.contrast(place)
        return None if found is None else found[0]

    def _place(self, row: int) -> tuple[ChunkResults, int]:
        """Return the chunk of a row, and the row in it."""
        if not 0 <= row < len(self):
            raise InputError(f"got row {row}, expected one from 0 to {len(self) - 1}")
        ends = np.cumsum([len(part) for part in self.parts])
        return self.parts[int(np.searchsorted(ends, row, side="right"))], row - int(ends[ends <= row].max(initial=0))

    def check(self) -> None:
        """Raise FileError if a file has changed, or if the manifest and the rows disagree."""
        for fault in find_faults(self):
            raise FileError(fault.sentence)
        _mask(self.folder, self.about["mask"])
        for why in self._contradictions():
            raise FileError(f"{self.folder} contradicts itself: {why}; run it again, into a new folder")

    def _contradictions(self) -> Iterator[str]:
        """Yield contradictions between the manifest and the rows of all chunks together, with both values."""
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
        """Write a table (.csv, .parquet) or arrays (.npz, .zarr), according to the suffix of `out`."""
        export(self, Path(out))

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with the columns of the .csv: one row per sample, NaN for unknown numbers."""
        table = rows(self)
        head = next(table)
        return data_frame(
            head, ([escape_surrogates(value) if isinstance(value, str) else value for value in row] for row in table)
        )

    @cached_property
    def parts(self) -> tuple[ChunkResults, ...]:
        """The finished chunks, in order."""
        if not self.manifest.chunks:
            raise FileError(f"{self.folder} has no results yet, expected a finished chunk: start the run")
        return tuple(self.part(self.manifest.chunks[number]) for number in sorted(self.manifest.chunks))

    def part(self, entry: ChunkEntry) -> ChunkResults:
        """Return the chunk of an entry of the manifest."""
        seconds = self._sample_seconds.get(entry.file, ())
        return ChunkResults(path_inside(self.folder, entry.file), entry.samples, self._shared, seconds)

    @cached_property
    def _sample_seconds(self) -> dict[str, list[float | None]]:
        """The seconds of sufficient sets in the log, by chunk file. Entries that a run would not write are ignored."""
        found: dict[str, list[float | None]] = {}
        for entry in read_log(self.folder):
            listed, number = entry.get("samples"), entry.get("number")
            if entry["event"] != "chunk" or type(number) is not int or not isinstance(listed, list):
                continue
            if all(isinstance(one, int | float | None) for one in listed):
                found[chunk_file(number)] = listed
        return found

    @cached_property
    def _shared(self) -> Array | None:
        return _mask(self.folder, self.about["mask"])


def _mask(folder: Path, expected: str | None) -> Array | None:
    """Read the groups (*shape) that all samples share; `expected` is the SHA-256 of the file, or None without it."""
    if expected is None:
        return None
    path = path_inside(folder, MASK)
    try:
        content = path.read_bytes()
        if sha256(content).hexdigest() != expected:
            raise FileError(f"{path} is damaged: run again to make it anew")
        mask: Array = np.load(BytesIO(content), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}; run again to make it anew") from error
    return mask
