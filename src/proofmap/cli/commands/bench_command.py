"""The command `proofmap bench`: a benchmark table of the EVA paper."""

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import shared_options as o
from proofmap.cli.terminal_tables import show
from proofmap.errors import InputError


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help=f"The table: {', '.join(names.benches())}, or a TOML file of your own.", autocompletion=names.benches
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="The folder with the official files of the data set: --data ~/mnist")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for results, by default out/NAME: --out tables. A second run continues in it."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Use packaged digits or photographs, not --data, and leave out slow methods."),
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(help="The weights of VGG16, which the package does not contain: --weights vgg16.safetensors"),
    ] = None,
    device: o.Device = "cpu",
) -> None:
    """Run a benchmark table of the EVA paper and print it. The numbers of the paper stand after a slash.

    For instance: proofmap bench table1-mnist --data ~/mnist
    """
    if name == names.OLD_TRIALS_NAME:
        raise InputError(
            f"got {name}, expected a table of this package: the trials with known ground truth are in Proofmap's "
            "repository; run there: python benchmarks/ground_truth.py"
        )
    from proofmap.bench import read, run

    spec, where = read(name), str(o.device_of(device))
    folder = out or Path("out") / spec.name
    run(spec, folder, data, quick=quick, weights=weights, device=where)
    show((folder / "table.md").read_text(encoding="utf-8"))
