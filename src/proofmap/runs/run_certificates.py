"""Writing of a run's certificates: one per sample, with its input and the common model, resumable.

DIR/certificates/model.onnx, network.onnx   the model's file, or the exported network
DIR/certificates/000017.proof, .npy         the certificate of row 17, and its input
DIR/certificates/index.json                 each row's certificate with its SHA-256, or the reason why it has none
"""

import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from proofmap.errors import BoundError, FileError, InputError, ProofmapWarning
from proofmap.proof.certificate import packed
from proofmap.proof.make_certificate import (
    CertificateSubject,
    Certified,
    certify,
    comparable,
    in_units_of,
    splits,
    with_objective,
)
from proofmap.proof.never_weaker import Explained
from proofmap.proof.output_statement import model_graph
from proofmap.proof.proof_tree import growth_for
from proofmap.proof.statement import Asked
from proofmap.runs.chunk import Array
from proofmap.runs.manifest import INDEX
from proofmap.runs.results import Results
from proofmap.runs.run_job import Setup
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import Samples
from proofmap.storage.hashing import hash_file, hash_values
from proofmap.storage.resumable_folder import EventLog, path_inside, read_log, write_piece, write_piece_once

_BOUND_ARRAYS = ("full", "nominal")
_TREE_SECONDS = 60.0  # the time for one sample's trees
_FOLDER = PurePosixPath(INDEX).parent


def check_certifiable(setup: Setup) -> Certified:
    """Raise InputError before any work if the job cannot be certified; return the ONNX file for the certificates."""
    job = setup.job
    if job.method != "eva" or not (setup.objective == "margin" or setup.about_outputs):
        raise InputError(
            f"got certificates of {job.method} with the objective {setup.objective!r}, expected eva and 'margin', an "
            "output or a label: certificates are about its overlaps"
        )
    return Certified.of(model_graph(setup.graph) if setup.about_outputs else setup.graph)


def write_certificates(
    folder: Path,
    samples: Samples,
    model: Certified,
    setup: Setup,
    order: Sequence[int],
    log: EventLog,
    *,
    index: str | None,
    progress: bool,
) -> str:
    """Write missing or changed certificates and the index; return the SHA-256 of the index.

    Args:
        index: The SHA-256 of an earlier index; None if there is none.
    """
    name = f"{'network' if model.path is None else 'model'}.onnx"
    write_piece(folder, f"{_FOLDER}/{name}", model.data)
    kept = replace(model, path=path_inside(folder, f"{_FOLDER}/{name}"))
    work = _CertificateWriter(folder, Results.open(folder), setup, kept, log, _recorded(folder, index))
    entries = []
    with ProgressBar(len(order), "certificates", show=progress) as bar:
        for row, at in enumerate(order):
            with bar.work():
                entries.append({"row": row, **work.entry(row, samples, at)})
    whole = {"format": "proofmap-certificates", "version": 1, "model": name, "samples": entries}
    write_piece(folder, INDEX, whole)
    return hash_file(folder / INDEX)


def _recorded(folder: Path, index: str | None) -> dict[int, str]:
    """Return the recorded SHA-256 of each row's certificate, from the log or the index of a complete run."""
    logged = [entry for entry in read_log(folder) if entry["event"] == "certificate"]
    found: dict[int, str] = {entry["row"]: entry["sha256"] for entry in logged if {"row", "sha256"} <= entry.keys()}
    path = path_inside(folder, INDEX)
    if index is not None and path.is_file() and hash_file(path) == index:
        found |= {e["row"]: e["sha256"] for e in json.loads(path.read_bytes())["samples"] if "sha256" in e}
    return found


@dataclass(frozen=True, eq=False)
class _CertificateWriter:
    """Writes the certificates of one run."""

    folder: Path
    results: Results
    setup: Setup
    model: Certified
    log: EventLog
    recorded: Mapping[int, str]  # row -> the SHA-256 of the certificate written earlier

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The arrays of all rows that certificates need."""
        return {name: self.results[name] for name in ("mask", "eps", "target", "scores", *_BOUND_ARRAYS)}

    @cached_property
    def reasons(self) -> dict[int, str]:
        """The reasons of rows without an explanation."""
        return self.results.reasons

    def entry(self, row: int, samples: Samples, index: int) -> dict[str, Any]:
        """Write the certificate of a row if needed, and return its entry in the index."""
        reason = self.reasons.get(row)
        if reason is not None:
            return {"reason": reason}
        name, given = f"{row:06d}.proof", f"{row:06d}.npy"
        path = path_inside(self.folder, f"{_FOLDER}/{name}")
        try:
            subject = self._subject(row, samples.read(index)[None])
            asked = subject.asked
            if self._is_current(path, row, asked):
                digest = self.recorded[row]
            else:
                content = self._new_certificate(row, subject)
                digest = sha256(content).hexdigest()
                write_piece(self.folder, f"{_FOLDER}/{name}", content)
                self.log.add("certificate", row=row, sha256=digest)
        except (BoundError, InputError) as error:
            return {"reason": str(error)}
        write_piece_once(self.folder, f"{_FOLDER}/{given}", packed(asked.x))
        return {"certificate": name, "input": given, "sha256": digest}

    def _new_certificate(self, row: int, subject: CertificateSubject) -> bytes:
        """Compute a new certificate."""
        points = self.results.points(row)
        met = None if points is None else torch.from_numpy(points)
        settings, full, nominal = self.setup.job.settings, *(float(self.arrays[name][row]) for name in _BOUND_ARRAYS)
        explained = Explained(full, nominal, bool(settings.get("rigorous", False)))
        growth = growth_for(explained, subject.groups, None, _TREE_SECONDS, self._searched, splits(subject.graph))
        growth = in_units_of(subject, explained, growth)
        made = certify(subject, met, growth, self.model, comparable(subject, self.setup.objective, explained))
        if made.shortfall is not None:
            warnings.warn(f"row {row}: {made.shortfall}", ProofmapWarning, stacklevel=2)
        return made.content

    @cached_property
    def inputs(self) -> list[str | None]:
        """The recorded SHA-256 of the explained values, or None."""
        return self.results.inputs

    def _subject(self, row: int, x: torch.Tensor) -> CertificateSubject:
        found = hash_values(x)
        if self.inputs[row] not in (None, found):
            raise FileError(
                f"{self.results.samples[row]} has changed since it was explained: the SHA-256 of its values was "
                f"{self.inputs[row]} and is {found}; put it back, and run again"
            )
        mask = self.arrays["mask"]
        mine = torch.from_numpy(mask[row if len(mask) > 1 else 0][None].astype("int64"))
        around = self.setup.ball_of(x, float(self.arrays["eps"][row]))
        target = int(self.arrays["target"][row])
        subject = CertificateSubject(self.setup.graph, x, around, mine, self.arrays["scores"].shape[1], target)
        return with_objective(subject, self.setup.objective)

    @property
    def _searched(self) -> bool:
        """True if the job uses an exact search."""
        bounds = self.setup.job.settings.get("bounds")
        return bounds is not None and bounds.search is not None

    def _is_current(self, path: Path, row: int, asked: Asked) -> bool:
        """Return whether the row has an unchanged certificate of the same question and model."""
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != self.recorded.get(row):
                return False
            with zipfile.ZipFile(BytesIO(content)) as file:
                claim = json.loads(file.read("claim.json"))
        except (OSError, zipfile.BadZipFile, LookupError, ValueError):
            return False
        same = all(claim.get(name) == value for name, value in asked.claim.items())
        return same and claim["model"] == self.model.stated
