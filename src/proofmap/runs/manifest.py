"""The manifest of a run: what is run, and which chunks of it are done.

DIR/manifest.json               this
DIR/chunks/000000.safetensors   the results of some samples
DIR/mask.npy                    the group of each variable, where all samples share them
DIR/certificates/               those of the samples, where they are asked for, and index.json, which names them
DIR/totals.json, .png           of all samples
DIR/means.safetensors           the mean scores of each class
DIR/log.jsonl                   when, where and how long: no result, and different each time
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmap.errors import FileError
from proofmap.explainers.origin import Source
from proofmap.runs.chunk import read_words
from proofmap.sources.own_files import FORMAT, MANIFEST, MASK
from proofmap.storage.hashing import digest
from proofmap.storage.resumable_folder import changes, inside, keep

__all__ = ["INDEX", "MANIFEST", "MASK", "Entry", "Manifest", "chunk_file", "contradiction", "differences", "seal"]

INDEX = "certificates/index.json"

_VERSION = 2
_FIRST = 1
_REPEATED = ("model", "job", "mask", "versions")  # what every chunk says too


@dataclass(frozen=True)
class Entry:
    """A finished chunk."""

    file: str  # inside the folder
    sha256: str
    samples: int


@dataclass(frozen=True)
class Manifest:
    """What is run, and what of it is done."""

    about: Mapping[str, Any]
    chunks: Mapping[int, Entry] = field(default_factory=dict)
    model: Source = field(default_factory=lambda: Source(""))  # as it was given; no result depends on where a file lies
    certificates: str | None = None  # the SHA-256 of their index, where they are made

    @property
    def total(self) -> int:
        """How many chunks there will be."""
        return -(-int(self.about["data"]["samples"]) // int(self.about["job"]["chunk"]))

    def save(self, folder: Path) -> None:
        """Write the file; the order in which chunks were finished leaves no trace."""
        listed = {str(number): vars(self.chunks[number]) for number in sorted(self.chunks)}
        whole = {"format": FORMAT, "version": _VERSION, "run": self.about, "model": self.model.json(), "chunks": listed}
        if self.certificates is not None:
            whole["certificates"] = {"file": INDEX, "sha256": self.certificates}
        whole["digest"] = seal(whole)
        keep(folder, MANIFEST, whole)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the file, which has to be as it was written; files that it names have to lie in the folder."""
        path = folder / MANIFEST
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            if (whole["format"], whole["version"]) != (FORMAT, _VERSION):
                old = (whole["format"], whole["version"]) == (FORMAT, _FIRST)
                raise FileError(
                    f"{path} is version {whole['version']!r} of {whole['format']!r}, expected {_VERSION} of {FORMAT!r}"
                    + (", as nothing vouches for what it says: run it again, into a new folder" if old else "")
                )
            chunks = {int(number): Entry(**entry) for number, entry in whole["chunks"].items()}
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
            raise FileError(f"{path} is no manifest of a run: it says what cannot be; choose another folder")
        for entry in chunks.values():
            inside(folder, entry.file)
        if whole.get("digest") != seal(whole):
            raise FileError(manifest._changed(folder, f"{whole.get('digest')}", seal(whole)))
        return manifest

    def _changed(self, folder: Path, stated: str, actual: str) -> str:
        """What was changed by hand: a value that a chunk has otherwise, or else the digest."""
        for entry in self.chunks.values():
            words, _ = read_words(inside(folder, entry.file), entry.samples)
            why = contradiction(self.about, words.about, entry.file)
            if why is not None:
                return f"{folder} contradicts itself: {why}; take the folder as the run left it, or run it again"
        return (
            f"{folder / MANIFEST} has the digest {stated[:12]}…, and what it says has {actual[:12]}…: take the file as "
            "the run left it, or run it again, into a new folder"
        )


def _readable(about: Mapping[str, Any]) -> bool:
    """Whether what readers rely on is there and of the right kind."""
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


def _possible(number: int, entry: Entry, total: int) -> bool:
    kinds = isinstance(entry.file, str) and isinstance(entry.sha256, str) and type(entry.samples) is int
    return kinds and 0 <= number < total and entry.samples > 0


def seal(whole: Mapping[str, Any]) -> str:
    """The digest of all that a manifest says."""
    return digest([json.dumps({key: value for key, value in whole.items() if key != "digest"}, sort_keys=True)])


def contradiction(about: Mapping[str, Any], chunk: Mapping[str, Any], where: str) -> str | None:
    """What a manifest says otherwise than a chunk, with both values.

    The names of the classes stand in the manifest alone: no number depends on them.
    """
    repeated = {key: about[key] for key in _REPEATED}
    repeated["model"] = {key: value for key, value in about["model"].items() if key != "classes"}
    for name, (ours, theirs) in changes(repeated, chunk).items():
        return f"{name} is {_short(ours)} in the manifest and {_short(theirs)} in {where}"
    return None


def chunk_file(number: int) -> str:
    """Where a chunk goes, inside the folder."""
    return f"chunks/{number:06d}.safetensors"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What two runs do not have in common, such as "job.ball.eps was 0.01 and is 0.02"."""
    return [f"{name} was {_short(was)} and is {_short(now)}" for name, (was, now) in changes(old, new).items()]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:60]}..."
