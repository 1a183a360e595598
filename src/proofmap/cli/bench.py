"""proofmap bench: a table of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proofmap.bench import names, read, run

__all__ = ["bench"]


def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(names())}, or a TOML file of your own.")],
    data: Annotated[Path | None, typer.Option(help="The folder with the official files of the data set.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where results go; by default out/NAME. Run again, it goes on.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few digits or photographs that are installed, in place of --data.")
    ] = False,
    weights: Annotated[Path | None, typer.Option(help="The weights of VGG16, which the package does not have.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
) -> None:
    """Run a table of the paper and print it, with the paper's numbers after a slash.

    For instance: proofmap bench table1-mnist --data ~/mnist
    """
    spec = read(name)
    typer.echo(run(spec, out or Path("out") / spec.name, data, quick=quick, weights=weights, device=device).markdown())
