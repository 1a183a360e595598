"""`proofmap verify --certificate`: write the certificate of one VNN-LIB property, and print how to check it."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofmap.bounds import Method
from proofmap.cli.counterexample_files import values_of
from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.proof.halving_tree import ProofLimits
from proofmap.proof.property_certificate import certify_property
from proofmap.sources import Model
from proofmap.verify.property import PropertyAnswer


def check(certificate: Path | None, inputs: Sequence[Path], *, boxed: bool) -> None:
    """Refuse other inputs than one property, and other names of the file."""
    if certificate is None:
        return
    if not boxed:
        raise InputError(
            "got --certificate without a VNN-LIB file, expected one: proofmap explain --certificate writes the "
            "certificate of a decision"
        )
    if len(inputs) != 1:
        raise InputError(
            f"got {len(inputs)} specifications with --certificate, expected one: a certificate is about one"
        )
    if certificate.suffix != ".proof":
        raise InputError(f"got --certificate {certificate}, expected a name that ends in .proof")
    if not certificate.parent.is_dir():
        raise InputError(f"got --certificate {certificate}, expected a folder that exists: {certificate.parent}")


def write(
    graph: Graph, path: Path, answer: PropertyAnswer, method: Method, model: Model, certificate: Path
) -> tuple[dict[str, Any] | None, str]:
    """Write the certificate of an answer; return a record for programs, and lines for people."""
    if answer.verdict == "unknown":
        return None, "no certificate: the property is neither proven nor refuted"
    point = None if answer.point is None else values_of(answer.point, model.preparation)
    limits = ProofLimits() if method.search is None else ProofLimits(seconds=method.search.seconds)
    own = model.network.file if isinstance(model.network, Graph) else None
    made = certify_property(graph, path, point=point, limits=limits, file=own)
    files = [str(file) for file in made.save(certificate)]
    size = len(made.content)
    record = {"file": files[0], "model": files[1], "property": files[2], "bytes": size, "exported": made.exported}
    text = f"certificate {files[0]}, {size} bytes: {made.summary()}\ncheck it with: proofmap check {shlex.join(files)}"
    return record, text
