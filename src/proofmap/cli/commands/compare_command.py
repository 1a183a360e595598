"""The command `proofmap compare`: compare explanation methods on the user's model and data."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.terminal_tables import show
from proofmap.errors import FileError, InputError
from proofmap.registry import READY

if TYPE_CHECKING:
    from proofmap.bench import Table


def compare(
    *,
    methods: Annotated[
        str,
        typer.Option(help=f"The methods to compare, among {', '.join(READY)}: --methods eva,rise"),
        texts.all_among(READY, "method"),
    ] = "eva,first-order,saliency",
    metrics: Annotated[
        str,
        typer.Option(help=f"The metrics, among {', '.join(names.COMPARED_METRICS)}: --metrics deletion,mu-fidelity"),
        texts.all_among(names.COMPARED_METRICS, "metric"),
    ] = "deletion,insertion",
    ball: o.BallOptions,
    groups: o.Groups = None,
    target: o.Target = None,
    out: Annotated[Path | None, unset("Also write table.md, table.csv and table.png here: --out tables")] = None,
    as_json: o.Json = False,
    subject: Subject,
) -> None:
    """Compare explanation methods by metrics, on the same samples and random draws. Print means with 95 % intervals.

    For instance: proofmap compare zoo:mnist_mlp digits.npz --methods eva,rise --metrics deletion,insertion
    """
    import torch

    from proofmap.bench import compare as tabulated
    from proofmap.cli.options.samples_and_balls import read_cases
    from proofmap.metrics import METRICS

    model, cases = read_cases(subject, ball, default="auto")
    if any(case.boxed for case in cases):
        raise InputError("got VNN-LIB files, expected samples: explain and verify take the box of a VNN-LIB file")
    if model.parts:
        raise InputError(
            f"got several inputs ({', '.join(part.name for part in model.parts)}), expected one: pm.compare in Python "
            "takes a tuple of them"
        )
    if any(case.shape != cases[0].shape for case in cases):
        raise InputError("got samples of several shapes, expected one: give --size to bring pictures to one size")
    region = cases[0].ball
    x = torch.cat([case.x for case in cases])
    chosen = [METRICS[name].for_ball(region, model.preparation.range) for name in texts.listed(metrics)]
    graph, aim = model.graph(x), o.class_of(target, model.classes)
    if aim is not None and aim >= graph.classes:
        raise InputError(f"got --target {aim}, expected a class from 0 to {graph.classes - 1}")
    grouping = o.groups_of(groups)
    table = tabulated(graph, x, texts.listed(methods), chosen, target=aim, ball=region, groups=grouping)
    first, *more = subject.inputs
    table = replace(table, model=model.name, data=first.name + (f" and {len(more)} more" if more else ""))
    if out is not None:
        _write(out, table)
    if as_json:
        typer.echo(json.dumps(_document(table), indent=1))
    else:
        show(_page(table), plain=str(table))


def _write(out: Path, table: Table) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.md").write_text(_page(table), encoding="utf-8", errors="backslashreplace")
        (out / "table.csv").write_text(table.csv(), encoding="utf-8")
        (out / "table.png").write_bytes(table.plot()._repr_png_())
    except OSError as error:
        raise FileError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from error


def _page(table: Table) -> str:
    return f"{table.heading()}\n\n{table.markdown()}\n{table.legend()}\n"


def _document(table: Table) -> dict[str, Any]:
    rows = {method: {name: asdict(cell) for name, cell in cells.items()} for method, cells in table.rows.items()}
    return {
        "model": table.model,
        "data": table.data,
        "samples": table.count,
        "methods": rows,
        "seconds": table.seconds,
        "metrics": {column.name: column.settings for column in table.columns},
        "seed": table.seed,
    }
