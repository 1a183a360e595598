"""proofmap dossier: a run and its certificates as one file that others can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import InputError

__all__ = ["dossier"]


def dossier(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder of proofmap run --certificates.", show_default=False)
    ],
    out: Annotated[Path, unset("The archive to write: --out dossier.zip")],
    by: Annotated[str | None, unset('Who makes the dossier: --by "Ada Lovelace, Analytical Engines".')] = None,
    date: Annotated[
        str | None,
        unset("Of the dossier, by default today: --date 2026-03-01. The same arguments give the same bytes."),
        texts.Check(texts.day),
    ] = None,
) -> None:
    """Write a run as one zip: model, inputs, claims, certificates, checker, report, and what they are evidence of.

    Whoever gets it runs python check.py dossier.zip, with Python and numpy alone. Here that is done first: what the
    checker refuses is not written.

    For instance: proofmap dossier results --out dossier.zip
    """
    if out.suffix.lower() != ".zip":
        raise InputError(f"got --out {out}, expected a name that ends in .zip")

    from proofmap.dossier import dossier as write
    from proofmap.text.wording import plural

    made = write(folder, out, by=by, date=None if date is None else texts.day(date))
    typer.echo(f"decisions proven, {made.ball}: {made.proven}")
    typer.echo(f"wrote {plural(made.certified, 'certificate')} to {out}; its checker proved each of them again")
