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


def write(explanation: Explanation, path: Path, model: Model) -> tuple[dict[str, Any], str]:
    """Write the files; what a program and a reader are told of them."""
    certificate = explanation.certificate(file=model.certified_file)
    files = [str(file) for file in certificate.save(path)]
    command = f"python -m proofmap.proof.check {shlex.join(files)}"
    size = len(certificate.content)
    record = {"file": files[0], "model": files[1], "input": files[2], "full": certificate.full, "bytes": size}
    return record, f"certificate {files[0]}, {size} bytes: {certificate.summary()}\ncheck it with: {command}"
