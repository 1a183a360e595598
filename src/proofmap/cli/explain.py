"""proofmap explain: a map and a file for each input."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli import names, texts
from proofmap.cli import options as o
from proofmap.errors import FileError, InputError

if TYPE_CHECKING:
    from proofmap.cli.cases import Case
    from proofmap.explain import Explainer, Explanation
    from proofmap.sources import Model

__all__ = ["explain", "explainers"]


def explain(
    context: typer.Context,
    model: o.ModelArgument,
    inputs: o.Inputs,
    eps: o.Eps = None,
    norm: o.Norm = "inf",
    domain: o.Domain = None,
    groups: o.Groups = None,
    bounds: o.Bounds = None,
    target: o.Target = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(names.EXPLAINERS)}: eva and targeted prove what they say; --method targeted shows what "
            "would make an input the --target.",
            autocompletion=o.among(names.EXPLAINERS),
        ),
        texts.one_of(names.EXPLAINERS, "--method"),
    ] = "eva",
    limit: o.Limit = None,
    out: Annotated[Path, typer.Option(help="The folder for pictures and .proofmap files: --out maps")] = Path("out"),
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Explain decisions: for each input what is proven about its ball, and a map of which parts matter to it.

    For instance: proofmap explain zoo:mnist_mlp digit.png --eps 0.02 --groups grid:12 --out maps
    """
    if method == "targeted" and target is None:
        raise InputError("got --method targeted alone, expected the class to move to as well: give --target")

    from proofmap.cli.cases import graphs, read_cases, stems

    kind = explainers()[method]
    settings = {"groups": o.groups_of(groups), **o.bounds_of(bounds, method, kind)}
    found, cases = read_cases(
        inputs, partial(source.model, model), eps, norm, domain, o.device_of(device), default="auto", limit=limit
    )
    aim = o.class_of(target, found.classes)
    networks = graphs(cases, found)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {out}: {error.strerror}; choose another with --out") from error
    made: dict[tuple[tuple[int, ...], int], Explainer] = {}
    records = []
    for case, stem in zip(cases, stems([case.name for case in cases]), strict=True):
        key = (case.shape, id(case.ball))
        if key not in made:
            made[key] = kind(networks[case.shape], case.ball, **settings)
        explanation = made[key].explain(case.x, aim)
        file, picture = out / f"{stem}.proofmap", out / f"{stem}.map.png"
        explanation.save(file)
        explanation.plot(columns=_columns(case), class_names=found.classes).savefig(picture)
        records.append(_record(case, explanation, found, file, picture))
        if not as_json:
            typer.echo(_line(case, explanation, found))
    if as_json:
        typer.echo(json.dumps({"model": found.name, "method": method, "inputs": records}, indent=1))
    else:
        typer.echo(f"wrote {len(cases)} {'maps' if len(cases) > 1 else 'map'} to {out}")


def explainers() -> dict[str, type[Explainer]]:
    """The explainers by name."""
    from proofmap.explain import BASELINES, Explainer, TargetedEVA

    ready = {name: kind for name, kind in BASELINES.items() if issubclass(kind, Explainer) and not o.needs(kind)}
    return {**ready, "targeted": TargetedEVA}


def _columns(case: Case) -> tuple[str, ...] | None:
    """The names of a row's variables."""
    return case.columns if case.columns is not None and len(case.columns) == case.x[0].numel() else None


def _line(case: Case, e: Explanation, model: Model) -> str:
    """What is known about an input, in one line."""
    from proofmap.explain.explanation import rounded

    predicted, aim = int(e.predicted), int(e.target)
    said = "" if case.label in (None, predicted) else f", labelled {model.title(case.label or 0)}"
    if e.opposite is not None and aim == int(e.overlap.target):
        return f"{case.name}: {model.title(predicted)}{said}; it is {model.title(aim)} already: nothing is asked"
    if e.opposite is not None:
        adding, removing = (rounded(float(side.full), e.guarantee) for side in (e.overlap, e.opposite))
        towards = f"towards {model.title(aim)}: AO(B) <= {adding} by adding, {removing} by removing"
        return f"{case.name}: {model.title(predicted)}{said}; {towards}, both proven"
    other = "" if aim == predicted else f", explained as {model.title(aim)}"
    return f"{case.name}: {model.title(predicted)}{said}{other}; {_ball(case, e)}: {_meaning(e)}"


def _ball(case: Case, e: Explanation) -> str:
    if case.boxed:
        return "the file's box"
    radius = _radius(e)
    if isinstance(case.ball.eps, str):
        return f"ε = {radius:.4g} (the radius proven)" if radius else "ε = 0, as no radius is proven: give --eps"
    return f"ε = {radius:.4g}"


def _radius(e: Explanation) -> Any:
    eps = e.settings["eps"]
    return eps[0] if isinstance(eps, list) else eps


def _meaning(e: Explanation) -> str:
    from proofmap.explain.explanation import rounded

    value = float(e.overlap.full)
    shown = rounded(value, e.guarantee)
    match e.guarantee:
        case "certified" if value <= 0:
            return f"AO(B) <= {shown}, certified: no input of the ball is classified otherwise"
        case "certified":
            return f"AO(B) <= {shown}, not certified: an input of the ball may be classified otherwise, or none"
        case "sampled" if value > 0:
            return f"AO(B) >= {shown}: a sample of the ball is classified otherwise"
        case "sampled":
            return f"AO(B) >= {shown}: no sample of the ball is classified otherwise; nothing is proven"
        case _:
            return f"AO(B) about {shown}: an estimate; nothing is proven"


def _record(case: Case, e: Explanation, model: Model, file: Path, picture: Path | None) -> dict[str, Any]:
    sides = {"overlap": e.overlap, **({} if e.opposite is None else {"opposite": e.opposite})}
    return {
        "name": case.name,
        "label": case.label,
        "predicted": int(e.predicted),
        "target": int(e.target),
        "class": model.title(int(e.target)),
        **{name: o.finite(float(side.full)) for name, side in sides.items()},
        "guarantee": e.guarantee,
        "certified": bool(e.proven),
        "eps": None if case.boxed else _radius(e),
        "norm": e.settings["norm"],
        "domain": e.settings["domain"],
        "seconds": e.seconds,
        "file": str(file),
        "picture": None if picture is None else str(picture),
    }
