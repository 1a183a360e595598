"""The manifest of a run: model, job, data and versions, and the finished chunks with their hashes.

DIR/manifest.json               the manifest
DIR/chunks/000000.safetensors   the results of some samples
DIR/mask.npy                    the group of each variable, if all samples share the groups
DIR/certificates/               the certificates, if requested, and index.json, which lists them
DIR/totals.json, .png           the totals of all samples
DIR/means.safetensors           the mean scores of each class
DIR/log.jsonl                   times, places and durations: not part of the results
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmap.errors import FileError
from proofmap.explainers.origin import Source
from proofmap.runs.chunk import read_chunk_texts
from proofmap.sources.own_files import FORMAT, MANIFEST, MASK
from proofmap.storage.hashing import digest
from proofmap.storage.resumable_folder import differences, path_inside, record_differences, shortened, write_piece

__all__ = [
    "INDEX", "MANIFEST", "MASK", "ChunkEntry", "Manifest", "chunk_file", "contradiction", "differences",
    "manifest_digest",
]  # fmt: skip

INDEX = "certificates/index.json"

_VERSION = 2  # the version of the format
_OLD_VERSION = 1  # an older version without hashes, which is refused with advice
_REPEATED_IN_CHUNKS = ("model", "job", "mask", "versions")  # the parts of the manifest that every chunk repeats


@dataclass(frozen=True)
class ChunkEntry:
    """A finished chunk in the manifest."""

    file: str  # inside the folder
    sha256: str
    samples: int


@dataclass(frozen=True)
class Manifest:
    """The description of a run and its finished chunks."""

    about: Mapping[str, Any]
    chunks: Mapping[int, ChunkEntry] = field(default_factory=dict)
    model: Source = field(default_factory=lambda: Source(""))  # the user's name; results do not depend on it
    certificates: str | None = None  # the SHA-256 of the certificates' index, if there are any

    @property
    def total(self) -> int:
        """The number of chunks of the complete run."""
        return -(-int(self.about["data"]["samples"]) // int(self.about["job"]["chunk"]))

    def save(self, folder: Path) -> None:
        """Write the file. Its content does not depend on the order in which chunks were finished."""
        listed = {str(number): vars(self.chunks[number]) for number in sorted(self.chunks)}
        whole = {"format": FORMAT, "version": _VERSION, "run": self.about, "model": self.model.json(), "chunks": listed}
        if self.certificates is not None:
            whole["certificates"] = {"file": INDEX, "sha256": self.certificates}
        whole["digest"] = manifest_digest(whole)
        write_piece(folder, MANIFEST, whole)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the file; raise FileError if it was changed, or if it names files outside the folder."""
        path = folder / MANIFEST
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            if (whole["format"], whole["version"]) != (FORMAT, _VERSION):
                old = (whole["format"], whole["version"]) == (FORMAT, _OLD_VERSION)
                raise FileError(
                    f"{path} is version {whole['version']!r} of {whole['format']!r}, expected {_VERSION} of {FORMAT!r}"
                    + (", as nothing vouches for what it says: run it again, into a new folder" if old else "")
                )
            chunks = {int(number): ChunkEntry(**entry) for number, entry in whole["chunks"].items()}
            index = whole["certificates"]["sha256"] if "certificates" in whole else None
            manifest = cls(whole["run"], chunks, Source.read(whole["model"]), index)
            sound = _readable(manifest.about) and all(_possible(n, e, manifest.total) for n, e in chunks.items())
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror or error}; give the folder of a run") from error
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FileError(
                f"{path} is no manifest of a run ({type(error).__name__}: {error}): choose another folder"
            ) from error
        if not sound:
            raise FileError(f"{path} is no manifest of a run: its entries contradict each other; choose another folder")
        for entry in chunks.values():
            path_inside(folder, entry.file)
        if whole.get("digest") != manifest_digest(whole):
            raise FileError(manifest._changed(folder, f"{whole.get('digest')}", manifest_digest(whole)))
        return manifest

    def _changed(self, folder: Path, stated: str, actual: str) -> str:
        """Describe a manual change: the first value that contradicts a chunk, or else the digest."""
        for entry in self.chunks.values():
            texts, _ = read_chunk_texts(path_inside(folder, entry.file), entry.samples)
            why = contradiction(self.about, texts.about, entry.file)
            if why is not None:
                return f"{folder} contradicts itself: {why}; take the folder as the run left it, or run it again"
        return (
            f"{folder / MANIFEST} has the digest {stated[:12]}…, and what it says has {actual[:12]}…: take the file as "
            "the run left it, or run it again, into a new folder"
        )


def _readable(about: Mapping[str, Any]) -> bool:
    """Return whether all values that readers rely on exist and have the right types."""
    model, job, data = about["model"], about["job"], about["data"]
    titles = model["classes"]
    return (
        type(model["outputs"]) is type(data["samples"]) is type(job["chunk"]) is int
        and min(data["samples"], job["chunk"]) > 0
        and (titles is None or (len(titles) == model["outputs"] and all(isinstance(title, str) for title in titles)))
        and isinstance(job["settings"], dict)
        and (job["ball"] is None or "eps" in job["ball"])
        and isinstance(about["mask"], str | None)
        and (data["columns"] is None or all(isinstance(name, str) for name in data["columns"]))
    )


def _possible(number: int, entry: ChunkEntry, total: int) -> bool:
    kinds = isinstance(entry.file, str) and isinstance(entry.sha256, str) and type(entry.samples) is int
    return kinds and 0 <= number < total and entry.samples > 0


def manifest_digest(whole: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's content."""
    return digest([json.dumps({key: value for key, value in whole.items() if key != "digest"}, sort_keys=True)])


def contradiction(about: Mapping[str, Any], chunk: Mapping[str, Any], where: str) -> str | None:
    """Return the first value that differs between a manifest and a chunk, with both values; None if there is none.

    Class names are in the manifest alone, because no result depends on them.
    """
    repeated = {key: about[key] for key in _REPEATED_IN_CHUNKS}
    repeated["model"] = {key: value for key, value in about["model"].items() if key != "classes"}
    for name, (ours, theirs) in record_differences(repeated, chunk).items():
        return f"{name} is {shortened(ours)} in the manifest and {shortened(theirs)} in {where}"
    return None


def chunk_file(number: int) -> str:
    """Return the path of a chunk inside the folder."""
    return f"chunks/{number:06d}.safetensors"
