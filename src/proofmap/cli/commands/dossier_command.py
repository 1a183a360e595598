"""The command `proofmap dossier`: pack a run and its certificates as one zip file that others can check."""

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import InputError


def dossier(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder of proofmap run --certificates.", show_default=False)
    ],
    out: Annotated[Path, unset("The zip file to write: --out dossier.zip")],
    by: Annotated[str | None, unset('The author of the dossier: --by "Ada Lovelace, Analytical Engines".')] = None,
    date: Annotated[
        str | None,
        unset("The date of the dossier, by default today: --date 2026-03-01. The same arguments give the same bytes."),
        texts.Check(texts.day),
    ] = None,
) -> None:
    """Write a run as one zip file: model, inputs, claims, certificates, checker, report, and a guide to the evidence.

    The recipient runs `python check.py dossier.zip`, which needs only Python and numpy. This command runs the same
    check first, and writes nothing if the checker refuses a file.

    For instance: proofmap dossier results --out dossier.zip
    """
    if out.suffix.lower() != ".zip":
        raise InputError(f"got --out {out}, expected a name that ends in .zip")

    from proofmap.dossier import dossier as write
    from proofmap.text.wording import plural

    made = write(folder, out, by=by, date=None if date is None else texts.day(date))
    typer.echo(f"{made.kind} proven, {made.ball}: {made.proven}")
    typer.echo(f"wrote {plural(made.certified, 'certificate')} to {out}; its checker proved each of them again")
