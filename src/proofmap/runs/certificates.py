"""The certificates of a run: one a sample, beside its input and the model that all are about.

DIR/certificates/model.onnx, network.onnx   the model's file, or the exported network
DIR/certificates/000017.proof, .npy         the certificate of row 17, and its input
DIR/certificates/index.json                 every row, with the SHA-256 of its certificate, or why it has none
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from proofmap.bar import Bar
from proofmap.digest import hash_file
from proofmap.errors import BoundError, InputError
from proofmap.proof.certificate import packed
from proofmap.proof.certify import ModelFile, Subject, certify, check_model, splits
from proofmap.proof.grow import Growth
from proofmap.proof.network import export
from proofmap.resume import inside, keep
from proofmap.runs.chunk import Array
from proofmap.runs.job import Setup
from proofmap.runs.manifest import INDEX
from proofmap.runs.results import Results
from proofmap.sources import Model, Samples

__all__ = ["certificates", "check_certifiable"]

_FOLDER = PurePosixPath(INDEX).parent


def check_certifiable(setup: Setup, model: Model) -> None:
    """Refuse a run of which nothing can be certified, before any work."""
    job = setup.job
    if job.method != "eva" or job.settings.get("objective", "margin") != "margin":
        raise InputError(
            f"got certificates of {job.method}, expected eva and its objective 'margin': they are about its overlaps"
        )
    check_model(setup.graph, model.certified_file)


def certificates(
    folder: Path, samples: Samples, model: Model, setup: Setup, order: Sequence[int], progress: bool
) -> str:
    """Write those that are missing, and the index; return its SHA-256."""
    file = _model(folder, model, setup)
    work = _Work(folder, Results.open(folder), setup, file, hash_file(file.path))
    entries = []
    with Bar(len(order), "certificates", show=progress) as bar:
        for row, index in enumerate(order):
            with bar.work():
                entries.append({"row": row, **work.entry(row, samples, index)})
    whole = {"format": "proofmap-certificates", "version": 1, "model": file.path.name, "samples": entries}
    keep(folder, INDEX, whole)
    return hash_file(folder / INDEX)


def _model(folder: Path, model: Model, setup: Setup) -> ModelFile:
    """The model's file, as the run keeps it."""
    own = model.certified_file
    name = f"{_FOLDER}/{'network' if own is None else 'model'}.onnx"
    keep(folder, name, export(setup.graph) if own is None else own.path.read_bytes())
    return ModelFile(inside(folder, name), None if own is None else own.prepare)


@dataclass(frozen=True, eq=False)
class _Work:
    """The certificates of one run."""

    folder: Path
    results: Results
    setup: Setup
    file: ModelFile
    digest: str  # of the model's file

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """What is known of all rows."""
        return {name: self.results[name] for name in ("mask", "eps", "target", "scores")}

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Why rows have no explanation."""
        return self.results.reasons

    def entry(self, row: int, samples: Samples, index: int) -> dict[str, Any]:
        """What the index says of a row."""
        reason = self.reasons.get(row)
        if reason is not None:
            return {"reason": reason}
        name, given = f"{row:06d}.proof", f"{row:06d}.npy"
        path = inside(self.folder, f"{_FOLDER}/{name}")
        try:
            subject = self._subject(row, samples.read(index)[None])
            if not self._is_there(path, subject):
                points = self.results.points(row)
                growth = Growth.fitting(subject.groups) if self._grows else None
                met = None if points is None else torch.from_numpy(points)
                made = certify(subject, met, growth, self.file)
                keep(self.folder, f"{_FOLDER}/{given}", packed(made.x))
                keep(self.folder, f"{_FOLDER}/{name}", made.content)
        except (BoundError, InputError) as error:
            return {"reason": str(error)}
        return {"certificate": name, "input": given, "sha256": hash_file(path)}

    def _subject(self, row: int, x: torch.Tensor) -> Subject:
        ball, mask = self.setup.job.ball, self.arrays["mask"]
        assert ball is not None
        mine = torch.from_numpy(mask[row if len(mask) > 1 else 0][None].astype("int64"))
        around, target = replace(ball, eps=float(self.arrays["eps"][row])), int(self.arrays["target"][row])
        return Subject(self.setup.graph, x, around, mine, self.arrays["scores"].shape[1], target)

    @property
    def _grows(self) -> bool:
        """Whether trees do: the overlaps were searched for."""
        bounds = self.setup.job.settings.get("bounds")
        return bounds is not None and bounds.search is not None and splits(self.setup.graph)

    def _is_there(self, path: Path, subject: Subject) -> bool:
        """Whether a certificate of just this was written before."""
        try:
            with zipfile.ZipFile(path) as file:
                claim = json.loads(file.read("claim.json"))
        except (OSError, zipfile.BadZipFile, LookupError, ValueError):
            return False
        same = all(claim.get(name) == value for name, value in subject.asked.claim.items())
        return same and claim["model"]["sha256"] == self.digest and path.with_suffix(".npy").exists()
