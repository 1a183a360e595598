"""The ONNX file of a certificate: the user's file, or an export if the checker cannot read it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from proofmap.errors import BoundError, FileError
from proofmap.graph import Graph
from proofmap.graph.ir import ModelFile
from proofmap.proof import check
from proofmap.proof.network_export import export
from proofmap.storage.hashing import hash_graph

_SOURCES = {"model": "a model in memory (model hash {})", "file": "an ONNX file (SHA-256 {})"}


@dataclass(frozen=True, eq=False)
class Certified:
    """The bytes of an ONNX file, the preparation before it, and where the file lies (None: not written yet).

    exported_from: None for the user's own file. Otherwise the "kind" ("model" or "file") and the "sha256" of the
    original, and "because", the reason for the export.
    """

    data: bytes
    prepare: Mapping[str, Any] | None = None
    path: Path | None = None
    exported_from: Mapping[str, str] | None = None

    @classmethod
    def of(cls, graph: Graph, file: ModelFile | str | os.PathLike[str] | None = None) -> Certified:
        """Take `file`, else the file that the graph was loaded from, else export the graph.

        Raises:
            FileError: the file cannot be read, or it has changed since it was loaded.
            BoundError: the checker cannot read `file`.
            InputError: the graph has to be exported and has an operation that certificates do not cover.
        """
        given = file if isinstance(file, ModelFile) or file is None else ModelFile(Path(file))
        own = given or graph.file
        if own is None:
            why = "it was not loaded from an ONNX file"
            return cls(export(graph), exported_from={"kind": "model", "sha256": hash_graph(graph), "because": why})
        data = _read(own)
        try:
            check.read_network(data, graph.input.shape, None if own.prepare is None else dict(own.prepare))
        except check.Rejected as error:
            if given is not None:
                raise BoundError(
                    f"the checker cannot read {own.path}: {error}; leave out file=, and the network is exported"
                ) from error
            why = f"the checker cannot read that file ({error})"
            original = {"kind": "file", "sha256": sha256(data).hexdigest(), "because": why}
            return cls(export(graph), exported_from=original)
        return cls(data, own.prepare, own.path)

    @property
    def stated(self) -> dict[str, Any]:
        """The entry of the claim that names the file."""
        prepare = None if self.prepare is None else {"mean": None, "std": None, "layout": "NCHW", **self.prepare}
        original = None if self.exported_from is None else dict(self.exported_from)
        return {"sha256": sha256(self.data).hexdigest(), "prepare": prepare, "exported_from": original}


def exported(model: Mapping[str, Any]) -> str | None:
    """A sentence with both hashes for a claim about an exported network; None for one about the user's own file."""
    original = model.get("exported_from")
    if original is None:
        return None
    source = _SOURCES[original["kind"]].format(original["sha256"])
    return (
        f"The certificate is about an ONNX file (SHA-256 {model['sha256']}) that was exported from {source}, because "
        f"{original['because']}"
    )


def _read(file: ModelFile) -> bytes:
    """Read the file. Refuse one that has changed since it was loaded."""
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {file.path}: {error.strerror or error}") from error
    found = sha256(data).hexdigest()
    if file.sha256 not in (None, found):
        raise FileError(
            f"{file.path} has changed since it was loaded: its SHA-256 was {file.sha256} and is {found} now; load it "
            "and explain the input again"
        )
    return data


@contextmanager
def refusing() -> Iterator[None]:
    """Convert a rejection by the checker to a BoundError."""
    try:
        yield
    except check.Rejected as error:
        raise BoundError(f"no certificate can be about this network or ball: {error}") from error
