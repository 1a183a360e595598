"""proofmap bench: a table of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import shared_options as o
from proofmap.cli.terminal_tables import show
from proofmap.errors import InputError

__all__ = ["bench"]


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{names.COURT}, one of {', '.join(names.benches())}, or a TOML file of your own.",
            autocompletion=lambda: [names.COURT, *names.benches()],
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="The folder with the official files of the data set: --data ~/mnist")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where results go; by default out/NAME. Run again, it goes on: --out tables")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Installed digits or photographs in place of --data, and no dear methods.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="Of VGG16, which the package does not have: --weights vgg16.safetensors")
    ] = None,
    device: o.Device = "cpu",
) -> None:
    """Run a table of the paper and print it, with the paper's numbers after a slash; or all methods before the court.

    For instance: proofmap bench table1-mnist --data ~/mnist
    """
    if name == names.COURT:
        _court(out or Path("out") / names.COURT, data, quick, weights, device)
        return
    from proofmap.bench import read, run

    spec, where = read(name), str(o.device_of(device))
    folder = out or Path("out") / spec.name
    run(spec, folder, data, quick=quick, weights=weights, device=where)
    show((folder / "table.md").read_text(encoding="utf-8"))


def _court(folder: Path, data: Path | None, quick: bool, weights: Path | None, device: str) -> None:
    if quick or weights is not None:
        raise InputError("got --quick or --weights for the court, expected neither: it brings its networks")
    from proofmap.court import run, sections

    run(sections(data), folder, device=str(o.device_of(device)))
    show((folder / "table.md").read_text(encoding="utf-8"))
