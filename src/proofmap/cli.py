"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proofmap.bench import names, read, run
from proofmap.errors import ProofmapError

app = typer.Typer(help="Explain what a neural network decided, with proofs.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Explain what a neural network decided, with proofs."""


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(names())}, or a TOML file of your own.")],
    data: Annotated[Path | None, typer.Option(help="The folder with the official files of the data set.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where results go; by default out/NAME. Run again, it goes on.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="A few digits that the package ships, in place of --data.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
) -> None:
    """Run a table of the paper and print it, with the paper's numbers after a slash.

    For instance: proofmap bench table1-mnist --data ~/mnist
    """
    try:
        spec = read(name)
        table = run(spec, out or Path("out") / spec.name, data, quick=quick, device=device)
    except ProofmapError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(table.markdown())
