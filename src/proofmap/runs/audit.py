"""The checks of each chunk before its numbers are used, by a report, by an export, or by a run that is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proofmap.errors import FileError
from proofmap.runs.chunk_invariants import violation
from proofmap.runs.manifest import Entry, chunk_file, contradiction
from proofmap.storage.hashing import hash_file
from proofmap.storage.resumable_folder import inside

if TYPE_CHECKING:
    from proofmap.runs.results import Part, Results

__all__ = ["Fault", "faults"]


@dataclass(frozen=True)
class Fault:
    """The reason why a chunk cannot be used, by itself and as a whole sentence."""

    number: int
    why: str
    sentence: str


def faults(results: Results) -> Iterator[Fault]:
    """The chunks of a run that are not as they were written, and those that say what cannot be."""
    folder, manifest = results.folder, results.manifest
    for number, entry in sorted(manifest.chunks.items()):
        damage = _damage(folder, entry)
        if damage is not None:
            yield Fault(number, damage, f"{folder} is damaged: {damage}; run again to make it anew")
            continue
        try:
            why = _contradiction(manifest.about, number, entry, results.part(entry))
        except FileError as error:
            yield Fault(number, str(error), str(error))
            continue
        if why is not None:
            yield Fault(number, why, f"{folder} contradicts itself: {why}; run it again, into a new folder")


def _damage(folder: Path, entry: Entry) -> str | None:
    try:
        actual = hash_file(inside(folder, entry.file))
    except FileError as error:
        return f"{entry.file} cannot be read ({error})"
    return None if actual == entry.sha256 else f"{entry.file} has SHA-256 {actual}, expected {entry.sha256}"


def _contradiction(about: Mapping[str, Any], number: int, entry: Entry, part: Part) -> str | None:
    """What a chunk says that the manifest, or the chunk itself, says otherwise."""
    job, words, first = about["job"], part.words, number * about["job"]["chunk"]
    expected = min(job["chunk"], about["data"]["samples"] - first)
    if (entry.file, entry.samples) != (chunk_file(number), expected):
        given = f"{entry.file} with {entry.samples} samples"
        return f"chunk {number} is {given} in the manifest, expected {chunk_file(number)} with {expected}"
    why = contradiction(about, words.about, entry.file)
    if why is not None:
        return why
    eps = None if job["ball"] is None else job["ball"]["eps"]
    for name, where, value in (("eps", "job.ball.eps", eps), ("target", "job.target", job["target"])):
        if name in part.names and isinstance(value, float | int):
            values = part[name]
            for row in np.flatnonzero(part.explained & (values != value)).tolist():
                otherwise = f"{values[row]:g} in row {first + row}, {words.names[row]}"
                return f"{where} is {value:g} in the manifest and {otherwise}"
    broken = violation(about, words, part.held, first)
    return None if broken is None else f"in {entry.file} {broken}"
