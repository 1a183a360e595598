"""The command `proofmap export`: write the results of a run as CSV, Parquet, npz or Zarr."""

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of proofmap run.", show_default=False)],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help=f"The file to write. Its name ends in {', '.join(names.EXPORT_SUFFIXES)}.",
            show_default=False,
        ),
        texts.Check(texts.exported),
    ],
) -> None:
    """Write the results of a finished or unfinished run as a table or as arrays. All files are checked first.

    For instance: proofmap export results results.parquet
    """
    from proofmap.runs import Results

    results = Results.open(folder)
    results.check()
    results.export(out)
    typer.echo(f"wrote {len(results)} samples to {out}{'' if results.complete else '; the run is not finished'}")
