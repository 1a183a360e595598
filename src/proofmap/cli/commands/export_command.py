"""proofmap export: the results of a run in a format that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts

__all__ = ["export"]


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of proofmap run.", show_default=False)],
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help=f"A name that ends in {', '.join(names.FORMATS)}.", show_default=False),
        texts.Check(texts.exported),
    ],
) -> None:
    """Write the results of a run, or what there is of one, as a table or as arrays. Every file is checked first.

    For instance: proofmap export results results.parquet
    """
    from proofmap.runs import Results

    results = Results.open(folder)
    results.check()
    results.export(out)
    typer.echo(f"wrote {len(results)} samples to {out}{'' if results.complete else ', of a run that is not finished'}")
