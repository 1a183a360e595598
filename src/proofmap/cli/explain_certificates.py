"""`proofmap explain --certificate`: write the certificate of one input, and print how to check it."""

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from proofmap.cli.options.samples_and_balls import SampleInBall
from proofmap.errors import InputError, ProofmapWarning
from proofmap.explainers import Explanation
from proofmap.graph import Graph
from proofmap.proof.make_certificate import Certified


def check(cases: Sequence[SampleInBall], networks: Mapping[tuple[int, ...], Graph]) -> None:
    """Refuse several inputs, and networks that have no certificates."""
    if len(cases) != 1:
        raise InputError(
            f"got {len(cases)} inputs with --certificate, expected one: proofmap run --certificates writes one for each"
        )
    Certified.of(networks[cases[0].shape])


def write(explanation: Explanation, path: Path) -> tuple[list[dict[str, Any]], str]:
    """Write the certificates; return records for programs and lines for people. A targeted map has two certificates."""
    halves: tuple[Literal["+", "-"] | None, ...] = (None,) if explanation.opposite is None else ("+", "-")
    names = {None: path, "+": path.with_suffix(".plus.proof"), "-": path.with_suffix(".minus.proof")}
    records, lines = [], []
    for half in halves:
        with warnings.catch_warnings():  # printed as a line instead
            warnings.simplefilter("ignore", ProofmapWarning)
            certificate = explanation.certificate(half=half)
            files = [str(file) for file in certificate.save(names[half])]
        size = len(certificate.content)
        records.append(
            {
                "file": files[0],
                "model": files[1],
                "input": files[2],
                "full": certificate.full,
                "bytes": size,
                "exported": certificate.exported,
                "weaker": certificate.shortfall,
            }
        )
        lines.append(f"certificate {files[0]}, {size} bytes: {certificate.summary()}")
        if certificate.shortfall is not None:
            lines.append(f"note: {certificate.shortfall}")
        lines.append(f"check it with: proofmap check {shlex.join(files)}")
    return records, "\n".join(lines)
