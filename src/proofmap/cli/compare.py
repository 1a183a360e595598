"""proofmap compare: methods of explanation side by side on the user's own model and data."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from proofmap.ball import Ball
from proofmap.bench import Table
from proofmap.bench import compare as tabulated
from proofmap.cli import options as o
from proofmap.cli.cases import read_cases
from proofmap.errors import FileError, InputError
from proofmap.explain.wording import plural
from proofmap.metrics import (
    METRICS,
    Deletion,
    Insertion,
    Metric,
    MuFidelity,
    RobustnessSr,
    Stability,
    Tightness,
    Uniform,
)

__all__ = ["compare"]

_JUDGES = {name: kind for name, kind in METRICS.items() if kind is not Tightness}  # which judges bounds, not maps


def compare(
    context: typer.Context,
    model: o.ModelArgument,
    inputs: o.Inputs,
    methods: Annotated[
        str, typer.Option(help=f"Names among {', '.join(o.READY)}: --methods eva,rise")
    ] = "eva,first-order,saliency",
    metrics: Annotated[
        str, typer.Option(help=f"Names among {', '.join(_JUDGES)}: --metrics deletion,mu-fidelity")
    ] = "deletion,insertion",
    eps: o.Eps = None,
    norm: o.Norm = "inf",
    domain: o.Domain = None,
    groups: o.Groups = None,
    target: o.Target = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for table.md and table.csv, beside what is printed: --out tables", show_default=False
        ),
    ] = None,
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Compare methods of explanation by metrics, on the same samples and draws: means with 95 % intervals.

    For instance: proofmap compare zoo:mnist_mlp digits.npz --methods eva,rise --metrics deletion,insertion
    """
    chosen = _names(methods)
    for name in chosen:
        if name not in o.READY:
            raise InputError(f"got the method {name!r}, expected one of {', '.join(o.READY)}")
    found, cases = read_cases(
        inputs, partial(source.model, model), eps, norm, domain, o.device_of(device), default="auto"
    )
    if any(case.boxed for case in cases):
        raise InputError("got VNN-LIB files, expected samples: explain and verify take the box of a VNN-LIB file")
    if any(case.shape != cases[0].shape for case in cases):
        raise InputError("got samples of several shapes, expected one: give --size to bring pictures to one size")
    ball = cases[0].ball
    x = torch.cat([case.x for case in cases])
    judges = [_metric(name, ball, found.preparation.range) for name in _names(metrics)]
    graph, aim = found.graph(x), o.class_of(target, found.classes)
    if aim is not None and aim >= graph.classes:
        raise InputError(f"got --target {aim}, expected a class from 0 to {graph.classes - 1}")
    table = tabulated(graph, x, chosen, judges, target=aim, ball=ball, groups=o.groups_of(groups))
    data = ", ".join(path.name for path in inputs)
    table = replace(table, title=f"{found.name} on {data}, {plural(len(x), 'sample')}")
    if out is not None:
        _write(out, table)
    typer.echo(
        json.dumps(_document(found.name, data, len(x), table), indent=1) if as_json else table.markdown(), nl=as_json
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _metric(name: str, ball: Ball, values: tuple[float, float]) -> Metric[Any]:
    """A metric with what it needs to know about the inputs: where they lie, and how far they move."""
    if name not in _JUDGES:
        raise InputError(f"got the metric {name!r}, expected one of {', '.join(_JUDGES)}")
    kind = _JUDGES[name]
    low, high = values if ball.domain is None else ball.domain
    if kind is RobustnessSr:
        return RobustnessSr(norm=ball.norm, domain=ball.domain or (-inf, inf), largest=float(high) - float(low))
    if issubclass(kind, (Deletion, Insertion, MuFidelity)):
        return kind(baseline=Uniform(float(low), float(high)))
    if not isinstance(ball.eps, float):
        raise InputError(f"got the metric {name!r} with --eps auto, expected a number: it is measured within a radius")
    return Stability(ball.eps, domain=ball.domain)


def _write(out: Path, table: Table) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.md").write_text(table.markdown(), encoding="utf-8")
        (out / "table.csv").write_text(table.csv(), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from error


def _document(model: str, data: str, samples: int, table: Table) -> dict[str, Any]:
    rows = {method: {name: asdict(cell) for name, cell in cells.items()} for method, cells in table.rows.items()}
    return {"model": model, "data": data, "samples": samples, "methods": rows, "seconds": table.seconds}
