"""Certificates of what `proofmap explain` proves: one for an input, and how to check it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proofmap.cli.cases import Case
from proofmap.errors import InputError
from proofmap.explain import Explanation
from proofmap.graph import Graph
from proofmap.proof.certify import check_model
from proofmap.sources import Model

__all__ = ["check", "write"]


def check(cases: Sequence[Case], networks: Mapping[tuple[int, ...], Graph], model: Model) -> None:
    """Refuse several inputs, and a network of which a certificate cannot speak."""
    if len(cases) != 1:
        raise InputError(
            f"got {len(cases)} inputs with --certificate, expected one: proofmap run --certificates writes one for each"
        )
    check_model(networks[cases[0].shape], model.certified_file)


def write(explanation: Explanation, path: Path, model: Model) -> tuple[list[dict[str, Any]], str]:
    """Write the files; what a program and a reader are told of them. A targeted map has one for each half."""
    if explanation.opposite is None:
        made = {path: explanation.certificate(file=model.certified_file)}
    else:
        made = {
            path.with_suffix(".plus.proof"): explanation.certificate(file=model.certified_file, half="+"),
            path.with_suffix(".minus.proof"): explanation.certificate(file=model.certified_file, half="-"),
        }
    records, lines = [], []
    for name, certificate in made.items():
        files = [str(file) for file in certificate.save(name)]
        size = len(certificate.content)
        records.append(
            {"file": files[0], "model": files[1], "input": files[2], "full": certificate.full, "bytes": size}
        )
        lines.append(f"certificate {files[0]}, {size} bytes: {certificate.summary()}")
        lines.append(f"check it with: python -m proofmap.proof.check {shlex.join(files)}")
    return records, "\n".join(lines)
