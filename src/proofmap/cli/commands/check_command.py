"""The command `proofmap check`: run the checker of certificates and dossiers."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="A certificate, its model, and its input or VNN-LIB file; or one dossier, as a zip file or a folder.",
            show_default=False,
        ),
    ],
) -> None:
    """Check a certificate, or all certificates of a dossier. The first line of the output is the verdict.

    This command runs the file `proofmap/proof/check.py`. Anybody can run that file without Proofmap: `python check.py`
    takes the same files and prints the same text. Exit status: 0: all claims hold, and the decision is proven.
    1: a claim does not hold, or the claims hold but prove no decision, or a property is violated. 2: wrong usage.

    For instance: proofmap check digit.proof net.onnx digit.npy
    """
    from proofmap.proof.check import main

    raise typer.Exit(main([str(file) for file in files], "proofmap check"))
