"""proofmap verify: whether a decision is proven over a ball, and up to which radius it is."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from proofmap.cli import options as o
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.bounds import Method
    from proofmap.cli.cases import Case
    from proofmap.graph import Graph
    from proofmap.sources import Model

__all__ = ["verify"]

_NO = 1
_OVERLAP = 0.05  # of the work: the radius takes some twenty bounds more


def verify(
    context: typer.Context,
    model: o.ModelArgument,
    inputs: o.Inputs,
    eps: o.Eps = None,
    norm: o.Norm = "inf",
    domain: o.Domain = None,
    bounds: o.Bounds = None,
    target: o.Target = None,
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Prove that no input of the ball is classified otherwise; exit code 1 where that is not proven for every input.

    For instance: proofmap verify zoo:mnist_mlp digit.png --eps 0.02
    """
    if eps == "auto":
        raise InputError("got --eps auto, expected a number such as 0.02 or 2/255: the proven radius is printed anyway")

    from proofmap.bar import Bar
    from proofmap.bounds import named
    from proofmap.cli.cases import graphs, read_cases

    method = named(bounds or "backward")
    found, cases = read_cases(inputs, partial(source.model, model), eps, norm, domain, o.device_of(device))
    aim = o.class_of(target, found.classes)
    networks = graphs(cases, found)
    records = []
    with Bar(len(cases), "verify") as bar:
        for case in cases:
            with bar.take():
                records.append(_verified(case, networks[case.shape], found, method, aim))
            if not as_json:
                bar.write(_line(records[-1]))
    certified = sum(record["certified"] for record in records)
    if as_json:
        typer.echo(json.dumps({"model": found.name, "certified": certified, "inputs": records}, indent=1))
    else:
        typer.echo(f"{certified} of {len(records)} certified")
    if certified < len(records):
        raise typer.Exit(_NO)


def _verified(case: Case, graph: Graph, model: Model, method: Method, aim: int | None) -> dict[str, Any]:
    from proofmap.overlaps import certified_radius, overlap
    from proofmap.progress import part

    with part(0.0, _OVERLAP):
        over = overlap(graph, case.x, case.ball, bounds=method, target=aim)
    certified, radius = float(over.full) <= 0, None
    if not case.boxed:
        norm, domain = case.ball.norm, case.ball.domain
        with part(_OVERLAP, 1.0):
            found = certified_radius(graph, case.x, norm=norm, domain=domain, bounds=method, target=over.target)
        radius = max(float(found), float(case.ball.eps) if certified else 0.0)
    return {
        "name": case.name,
        "label": case.label,
        "predicted": int(graph.to(case.x.device, case.x.dtype)(case.x).flatten(1).argmax(1)),
        "target": int(over.target),
        "class": model.title(int(over.target)),
        "overlap": o.finite(float(over.full)),
        "certified": certified,
        "eps": None if case.boxed else case.ball.eps,
        "radius": radius,
    }


def _line(record: dict[str, Any]) -> str:
    from proofmap.explain.explanation import rounded

    worst = "∞" if record["overlap"] is None else rounded(record["overlap"], "certified")
    answer = "certified" if record["certified"] else "not certified"
    radius = "" if record["radius"] is None else f"; certified up to radius {record['radius']:.4g}"
    return f"{record['name']}: {record['class']}; AO(B) <= {worst}, {answer}{radius}"
