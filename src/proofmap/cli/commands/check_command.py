"""proofmap check: the checker of certificates and dossiers, as the file that it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["check"]


def check(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="A certificate, its model and its input; or one dossier, a zip or the folder that it was unpacked to.",
            show_default=False,
        ),
    ],
) -> None:
    """Prove a certificate, or every certificate of a dossier, again. The first line is the verdict.

    This runs the checker `proofmap/proof/check.py`, which anybody can run without Proofmap: `python check.py` takes the
    same files and prints the same words. Exit status: 0 all claims hold and the decision is proven; 1 something does
    not hold, or the claims hold and decide nothing; 2 wrong usage.

    For instance: proofmap check digit.proof net.onnx digit.npy
    """
    from proofmap.proof.check import main

    raise typer.Exit(main([str(file) for file in files], "proofmap check"))
