"""The certificates of a run, as they lie in its folder, and what each of them claims.

DIR/certificates/index.json                     which row has a certificate, and why others have none
DIR/certificates/model.onnx or network.onnx     the model that they are about: its own file, or as it was exported
DIR/certificates/000017.proof, 000017.npy       the certificate of row 17, and its input
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from proofmap.digest import hash_file
from proofmap.errors import FileError
from proofmap.resume import inside
from proofmap.runs import Results
from proofmap.runs.chunk import Array
from proofmap.runs.manifest import INDEX

__all__ = ["FOLDER", "Certificates", "Claimed", "number", "values_sha256"]

FOLDER = "certificates"
_FORMAT = ("proofmap-certificates", 1)
_BROKEN = (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError, BadZipFile)


@dataclass(frozen=True, eq=False)
class Claimed:
    """What one certificate claims: AO(B) <= full, AO(B_u) <= frozen[u], and from below where points were found."""

    row: int  # of the run
    certificate: Path
    input: Path
    model: str  # the SHA-256 of its file
    sha256: str  # of the input's values
    target: int
    rivals: tuple[int, ...]
    ball: Mapping[str, Any]  # as the certificate states it, numbers as text
    eps: float
    full: float
    frozen: Array | None  # (G,)
    full_lower: float | None
    frozen_lower: Array | None  # (G,)
    ordered: int  # pairs of groups of which it is proven, over the reals, which matters more

    def decided(self, classes: int) -> bool:
        """Whether no class gets ahead anywhere in the ball: all others are rivals, and the overlap is at most 0."""
        return (
            self.full <= 0 and self.ball.get("half") is None and set(self.rivals) == {*range(classes)} - {self.target}
        )

    @classmethod
    def read(cls, row: int, certificate: Path, input: Path) -> Claimed:
        """What the file says; whether it is proven is for the checker to find."""
        try:
            with ZipFile(certificate) as file:
                claim = json.loads(file.read("claim.json"))
                claims = claim["claims"]
                upper, lower = _load(file, claims["upper"]), _array(file, claims["lower"])
                reals = [_array(file, claims["reals"][side]) for side in ("upper", "lower")]
                return cls(
                    row=row,
                    certificate=certificate,
                    input=input,
                    model=str(claim["model"]["sha256"]),
                    sha256=str(claim["input"]["sha256"]),
                    target=int(claim["target"]),
                    rivals=tuple(int(rival) for rival in claim["rivals"]),
                    ball=claim["ball"],
                    eps=number(claim["ball"]["eps"]),
                    full=float(upper[0]),
                    frozen=upper[1:] if len(upper) > 1 else None,
                    full_lower=None if lower is None else float(lower[0]),
                    frozen_lower=None if lower is None or len(lower) == 1 else lower[1:],
                    ordered=_ordered(*reals),
                )
        except _BROKEN as error:
            raise FileError(
                f"{certificate} is no certificate ({type(error).__name__}: {error}): run again, into a new folder"
            ) from error


@dataclass(frozen=True, eq=False)
class Certificates:
    """All of a run."""

    model: Path
    sha256: str  # of the model's file
    claimed: tuple[Claimed, ...]  # in the order of the run
    reasons: Mapping[int, str]  # row -> why it has none

    @property
    def exported(self) -> bool:
        """Whether the model's file was made from the network by us: a run names it so."""
        return self.model.name == "network.onnx"

    @classmethod
    def open(cls, results: Results) -> Certificates:
        """Those of a run; every file has to be as it was written."""
        folder, rows = results.folder, len(results)
        if results.manifest.certificates is None:
            raise FileError(
                f"{folder} has no certificates, expected those of a run with --certificates: make it again with that "
                "option, into a new folder"
            )
        path = inside(folder, INDEX)
        if hash_file(path) != results.manifest.certificates:
            raise _changed(path, results.manifest.certificates)
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            if (whole["format"], whole["version"]) != _FORMAT:
                raise ValueError(f"{whole['format']!r} {whole['version']!r}, expected {_FORMAT[0]!r} {_FORMAT[1]}")
            samples = whole["samples"]
            if [entry["row"] for entry in samples] != [*range(rows)]:
                raise ValueError(f"it does not name the {rows} samples of the run, each once")
            reasons = {entry["row"]: str(entry["reason"]) for entry in samples if "certificate" not in entry}
            certified = [entry for entry in samples if "certificate" in entry]
            files = [
                (e["row"], _file(folder, e["certificate"], e["sha256"]), _file(folder, e["input"])) for e in certified
            ]
            model = _file(folder, whole["model"])
        except _BROKEN as error:
            raise FileError(
                f"{path} is no list of certificates ({type(error).__name__}: {error}): run again, into a new folder"
            ) from error
        if not files:
            raise FileError(
                f"none of the {rows} samples of {folder} has a certificate ({_first(reasons)}): nothing to hand over"
            )
        return cls(model, hash_file(model), tuple(Claimed.read(*file) for file in files), reasons)


def _file(folder: Path, name: str, expected: str | None = None) -> Path:
    path = inside(folder / FOLDER, name)
    if expected is not None and hash_file(path) != expected:
        raise _changed(path, expected)
    return path


def _changed(path: Path, expected: str) -> FileError:
    return FileError(f"{path} is not as the run left it: its SHA-256 is not {expected}; run again, into a new folder")


def _first(reasons: Mapping[int, str]) -> str:
    return f"the first: {next(iter(reasons.values()))}" if reasons else "none is listed"


def _array(file: ZipFile, name: str | None) -> Array | None:
    return None if name is None else _load(file, name)


def _ordered(upper: Array | None, lower: Array | None) -> int:
    """How many pairs (u, v) have AO(B_u) <= upper < lower <= AO(B_v), of sides (1 + G,)."""
    if upper is None or lower is None:
        return 0
    return int(np.searchsorted(np.sort(upper[1:]), lower[1:]).sum())


def _load(file: ZipFile, name: str) -> Array:
    array: Array = np.load(BytesIO(file.read(name)), allow_pickle=False)
    return array


def number(text: str) -> float:
    """A number that a certificate states, in decimals or in hex."""
    return float.fromhex(text) if "x" in text else float(text)


def values_sha256(path: Path) -> str:
    """The SHA-256 of an input's values, as little-endian float32 in C order."""
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}; run again, into a new folder") from error
    return sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()
