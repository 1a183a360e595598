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
from proofmap.explainers.certified_explanation import LEAVES_OF_SETS, statement_of_changes, statement_of_sets
from proofmap.proof.certificate import packed
from proofmap.proof.contrastive_statement import ContrastiveStatement
from proofmap.proof.make_certificate import (
    CertificateSubject,
    Certified,
    certify,
    certify_changes,
    comparable,
    in_units_of,
    splits,
    with_objective,
)
from proofmap.proof.never_weaker import Explained, ExplainedSet, ExplainedSize
from proofmap.proof.output_statement import model_graph, without_last_sigmoid
from proofmap.proof.proof_tree import Growth, growth_for
from proofmap.proof.statement import Asked
from proofmap.runs.chunk import Array
from proofmap.runs.manifest import INDEX
from proofmap.runs.results import Results
from proofmap.runs.run_job import Setup
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import Samples
from proofmap.storage.hashing import hash_file, hash_values
from proofmap.storage.resumable_folder import EventLog, path_inside, read_log, write_piece, write_piece_once
from proofmap.verify.objectives import Label

_BOUND_ARRAYS = ("full", "nominal")
_TREE_SECONDS = 60.0  # the time for one sample's trees
_FOLDER = PurePosixPath(INDEX).parent
_CERTIFIED = ("eva", "sufficient", "contrastive")  # methods of runs with certificates


def check_certifiable(setup: Setup) -> Certified:
    """Raise InputError before any work if the job cannot be certified; return the ONNX file for the certificates."""
    job = setup.job
    of_outputs = job.method == "eva" and setup.about_outputs
    if job.method not in _CERTIFIED or not (of_outputs or setup.objective == "margin"):
        raise InputError(
            f"got certificates of {job.method} with the objective {setup.objective!r}, expected "
            f"{', '.join(_CERTIFIED)} and the objective 'margin', or eva and an output or a label"
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
            if self._is_current(path, row, subject, asked):
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
        if subject.sets is not None:
            return self._certificate_of_sets(row, subject)
        points = self.results.points(row)
        met = None if points is None else torch.from_numpy(points)
        settings, full, nominal = self.setup.job.settings, *(float(self.arrays[name][row]) for name in _BOUND_ARRAYS)
        explained = Explained(full, nominal, bool(settings.get("rigorous", False)))
        bent = without_last_sigmoid(subject.graph) if isinstance(self.setup.objective, Label) else subject.graph
        growth = growth_for(explained, subject.groups, None, _TREE_SECONDS, self._searched, splits(bent))
        growth = in_units_of(subject, explained, growth)
        made = certify(subject, met, growth, self.model, comparable(subject, self.setup.objective, explained))
        if made.shortfall is not None:
            warnings.warn(f"row {row}: {made.shortfall}", ProofmapWarning, stacklevel=2)
        return made.content

    def _certificate_of_sets(self, row: int, subject: CertificateSubject) -> bytes:
        """Compute a new certificate of sufficient or contrastive sets."""
        nominal, rigorous = float(self.arrays["nominal"][row]), bool(self.setup.job.settings.get("rigorous", False))
        growth = Growth(LEAVES_OF_SETS, _TREE_SECONDS) if splits(self.setup.graph) else None
        if isinstance(subject.sets, ContrastiveStatement):
            limit = float(self.results["contrast_limit"][row])
            size = ExplainedSize(limit, nominal, rigorous, limit, subject.sets.least)
            made = certify_changes(subject, growth, self.model, size)
        else:
            bound, limit = (float(self.results[name][row]) for name in ("reason_bound", "reason_limit"))
            made = certify(subject, None, growth, self.model, ExplainedSet(bound, nominal, rigorous, limit))
        if made.shortfall is not None:
            warnings.warn(f"row {row}: {made.shortfall}", ProofmapWarning, stacklevel=2)
        return made.content

    def _with_sets(self, row: int, subject: CertificateSubject) -> CertificateSubject:
        """Return the question about the sets of a row; about overlaps, if it has none."""
        reason, contrast = self.results.reason(row), self.results.contrast(row)
        if reason is not None:
            return replace(subject, sets=statement_of_sets(reason))
        if contrast is None:
            return subject
        own = int(self.results["predicted"][row])
        rival = None if own == subject.target else subject.target
        return replace(subject, target=own, rival=rival, sets=statement_of_changes(contrast))

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
        return self._with_sets(row, with_objective(subject, self.setup.objective))

    @property
    def _searched(self) -> bool:
        """True if the job uses an exact search."""
        bounds = self.setup.job.settings.get("bounds")
        return bounds is not None and bounds.search is not None

    def _is_current(self, path: Path, row: int, subject: CertificateSubject, asked: Asked) -> bool:
        """Return whether the row has an unchanged certificate of the same question and model."""
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != self.recorded.get(row):
                return False
            with zipfile.ZipFile(BytesIO(content)) as file:
                claim = json.loads(file.read("claim.json"))
        except (OSError, zipfile.BadZipFile, LookupError, ValueError):
            return False
        stated = asked.claim
        if subject.sets is not None:
            stated = {name: stated[name] for name in ("input", "ball", "groups")}
            if not subject.sets.stated_in(claim["statement"]):
                return False
        same = all(claim.get(name) == value for name, value in stated.items())
        return same and claim["model"] == self.model.stated
