"""Audit of a run's chunks before a report, an export or a resumed run uses them: hashes, manifest and invariants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proofmap.errors import FileError
from proofmap.runs.chunk_invariants import find_violation
from proofmap.runs.manifest import ChunkEntry, chunk_file, contradiction
from proofmap.runs.sets.contrast_results import contrast_faults
from proofmap.runs.sets.reason_results import reason_faults
from proofmap.storage.hashing import hash_file
from proofmap.storage.resumable_folder import path_inside

if TYPE_CHECKING:
    from proofmap.runs.results import ChunkResults, Results


@dataclass(frozen=True)
class ChunkFault:
    """The reason why a chunk cannot be used, as a clause and as a whole sentence."""

    number: int
    why: str
    sentence: str


def find_faults(results: Results) -> Iterator[ChunkFault]:
    """Yield the chunks whose files have changed, or whose content contradicts the manifest or itself."""
    folder, manifest = results.folder, results.manifest
    for number, entry in sorted(manifest.chunks.items()):
        damage = _damage(folder, entry)
        if damage is not None:
            yield ChunkFault(number, damage, f"{folder} is damaged: {damage}; run again to make it anew")
            continue
        try:
            why = _contradiction(manifest.about, number, entry, results.part(entry))
        except FileError as error:
            yield ChunkFault(number, str(error), str(error))
            continue
        if why is not None:
            yield ChunkFault(number, why, f"{folder} contradicts itself: {why}; run it again, into a new folder")


def _damage(folder: Path, entry: ChunkEntry) -> str | None:
    try:
        actual = hash_file(path_inside(folder, entry.file))
    except FileError as error:
        return f"{entry.file} cannot be read ({error})"
    return None if actual == entry.sha256 else f"{entry.file} has SHA-256 {actual}, expected {entry.sha256}"


def _contradiction(about: Mapping[str, Any], number: int, entry: ChunkEntry, part: ChunkResults) -> str | None:
    """Return the first contradiction between a chunk and the manifest, or within the chunk; None if there is none."""
    job, texts, first = about["job"], part.texts, number * about["job"]["chunk"]
    expected = min(job["chunk"], about["data"]["samples"] - first)
    if (entry.file, entry.samples) != (chunk_file(number), expected):
        given = f"{entry.file} with {entry.samples} samples"
        return f"chunk {number} is {given} in the manifest, expected {chunk_file(number)} with {expected}"
    why = contradiction(about, texts.about, entry.file)
    if why is not None:
        return why
    eps = None if job["ball"] is None else job["ball"]["eps"]
    for name, where, value in (("eps", "job.ball.eps", eps), ("target", "job.target", job["target"])):
        if name in part.names and isinstance(value, float | int):
            values = part[name]
            for row in np.flatnonzero(part.explained & (values != value)).tolist():
                otherwise = f"{values[row]:g} in row {first + row}, {texts.names[row]}"
                return f"{where} is {value:g} in the manifest and {otherwise}"
    broken = find_violation(about, texts, part.held, first)
    if broken is None and (part.reasoned or part.contrasted):
        shape, faults = tuple(about["model"]["shape"]), reason_faults if part.reasoned else contrast_faults
        broken = next(faults(part.held, part.explained, part["mask"], shape), None)
    return None if broken is None else f"in {entry.file} {broken}"
