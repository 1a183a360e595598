"""Reading of a run's certificates with their claims; nothing is proven before the checker has run.

DIR/certificates/index.json                     each row's certificate, or the reason why it has none
DIR/certificates/model.onnx or network.onnx     the model of all certificates: the given file, or the exported network
DIR/certificates/000017.proof, 000017.npy       the certificate of row 17, and its input
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

from proofmap.errors import FileError
from proofmap.proof.check import Claim, Rejected, kind_of
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX
from proofmap.storage.hashing import hash_file
from proofmap.storage.resumable_folder import path_inside

FOLDER = "certificates"
_FORMAT = ("proofmap-certificates", 1)
_READ_ERRORS = (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError, BadZipFile)


@dataclass(frozen=True, eq=False)
class SampleCertificate:
    """The certificate of one row with its claim, which is not proven yet."""

    row: int  # row of the run
    certificate: Path
    input: Path
    claim: Claim

    @classmethod
    def read(cls, row: int, certificate: Path, input: Path, model: bytes) -> SampleCertificate:
        """Read the claim; raise FileError unless it is about this model and this input."""
        try:
            claim = Claim.read(certificate, model, input).lighter()
        except (*_READ_ERRORS, Rejected) as error:
            raise FileError(
                f"{certificate} is no certificate of {input.name} and of the model ({error}): run again, into a "
                "new folder"
            ) from error
        return cls(row, certificate, input, claim)


@dataclass(frozen=True, eq=False)
class RunCertificates:
    """All certificates of a run."""

    model: Path
    sha256: str  # hash of the model's file
    claimed: tuple[SampleCertificate, ...]  # in the order of the run
    reasons: Mapping[int, str]  # row -> the reason why it has no certificate

    @property
    def exported(self) -> bool:
        """True if the model's file was exported by the run, as its name tells."""
        return self.model.name == "network.onnx"

    @property
    def kind(self) -> str:
        """The subject of all certificates: "decisions" or "outputs"."""
        return kind_of(self.claimed[0].claim)

    @classmethod
    def open(cls, results: Results) -> RunCertificates:
        """Read the certificates of a run; raise FileError if a file has changed since the run."""
        folder, rows = results.folder, len(results)
        if results.manifest.certificates is None:
            raise FileError(
                f"{folder} has no certificates, expected a run that wrote them: run it again with certified=True into "
                "a new folder",
                arguments=("certified",),
            )
        method = results.about["job"]["method"]
        if method in ("sufficient", "contrastive"):
            raise FileError(
                f"the certificates of {folder} are about {method} sets, expected those of decisions for a dossier, "
                "from a run of the method 'eva'"
            )
        path = path_inside(folder, INDEX)
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
        except _READ_ERRORS as error:
            raise FileError(
                f"{path} is no list of certificates ({type(error).__name__}: {error}): run again, into a new folder"
            ) from error
        if not files:
            raise FileError(
                f"none of the {rows} samples of {folder} has a certificate ({_first(reasons)}): nothing to hand over"
            )
        content = model.read_bytes()
        claimed: dict[str, SampleCertificate] = {}
        for row, certificate, given in files:
            one = SampleCertificate.read(row, certificate, given, content)
            first = claimed.setdefault(one.claim.input, one)
            if first is not one:  # a repeated input counts once
                reasons[row] = f"the input of sample {first.row} again"
        return cls(model, hash_file(model), tuple(claimed.values()), reasons)


def _file(folder: Path, name: str, expected: str | None = None) -> Path:
    path = path_inside(folder / FOLDER, name)
    if expected is not None and hash_file(path) != expected:
        raise _changed(path, expected)
    return path


def _changed(path: Path, expected: str) -> FileError:
    return FileError(f"{path} is not as the run left it: its SHA-256 is not {expected}; run again, into a new folder")


def _first(reasons: Mapping[int, str]) -> str:
    return f"the first: {next(iter(reasons.values()))}" if reasons else "none is listed"
