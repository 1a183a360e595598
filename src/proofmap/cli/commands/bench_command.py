"""The command `proofmap bench`: a benchmark table of the EVA paper, or the benchmark with ground truth."""

from __future__ import annotations

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
            help=f"The table: {', '.join(names.benches())}, or a TOML file of your own. {names.COURT} is the benchmark "
            "with ground truth.",
            autocompletion=lambda: [names.COURT, *names.benches()],
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
        typer.Option(
            "--quick", help="Use installed digits or photographs instead of --data, and leave out slow methods."
        ),
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(help="The weights of VGG16, which the package does not contain: --weights vgg16.safetensors"),
    ] = None,
    device: o.Device = "cpu",
) -> None:
    """Run a benchmark table of the EVA paper and print it. The numbers of the paper stand after a slash.

    `proofmap bench court` compares all methods on inputs for which the correct explanation is known.

    For instance: proofmap bench table1-mnist --data ~/mnist
    """
    if name == names.COURT:
        _ground_truth(out or Path("out") / names.COURT, data, quick, weights, device)
        return
    from proofmap.bench import read, run

    spec, where = read(name), str(o.device_of(device))
    folder = out or Path("out") / spec.name
    run(spec, folder, data, quick=quick, weights=weights, device=where)
    show((folder / "table.md").read_text(encoding="utf-8"))


def _ground_truth(folder: Path, data: Path | None, quick: bool, weights: Path | None, device: str) -> None:
    if quick or weights is not None:
        raise InputError("got --quick or --weights for court, expected neither: this benchmark has its own networks")
    from proofmap.ground_truth import run, sections

    run(sections(data), folder, device=str(o.device_of(device)))
    show((folder / "table.md").read_text(encoding="utf-8"))
