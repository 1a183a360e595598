"""proofmap explain: a map and a file for each input."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from proofmap.cli import options as o
from proofmap.cli.cases import Case, graphs, read_cases
from proofmap.errors import FileError, InputError
from proofmap.explain import Explainer, Explanation, Origin, TargetedEVA
from proofmap.explain.explanation import rounded
from proofmap.explain.wording import around, beside, bound_name, plural, taken_off
from proofmap.sources import Model

__all__ = ["explain"]


EXPLAINERS: dict[str, type[Explainer]] = {
    **{name: kind for name, kind in o.READY.items() if issubclass(kind, Explainer)},
    "targeted": TargetedEVA,
}


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
            help=f"{', '.join(EXPLAINERS)}: eva and targeted prove what they say; --method targeted shows what would "
            "make an input the --target.",
            autocompletion=o.among(EXPLAINERS),
        ),
    ] = "eva",
    out: Annotated[Path, typer.Option(help="The folder for pictures and .proofmap files: --out maps")] = Path("out"),
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Explain decisions: for each input what is proven about its ball, and a map of which parts matter to it.

    For instance: proofmap explain zoo:mnist_mlp digit.png --eps 0.02 --groups grid:12 --out maps
    """
    settings = _settings(method, groups, bounds)
    if method == "targeted" and target is None:
        raise InputError("got --method targeted alone, expected the class to move to as well: give --target")
    found, cases = read_cases(
        inputs, partial(source.model, model), eps, norm, domain, o.device_of(device), default="auto"
    )
    aim = o.class_of(target, found.classes)
    networks = graphs(cases, found)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {out}: {error.strerror}; choose another with --out") from error
    explainers: dict[tuple[tuple[int, ...], int], Explainer] = {}
    records = []
    for case, stem in zip(cases, _stems([case.name for case in cases]), strict=True):
        key = (case.shape, id(case.ball))
        if key not in explainers:
            explainers[key] = EXPLAINERS[method](networks[case.shape], case.ball, **settings)
        explanation = replace(explainers[key].explain(case.x, aim), origin=_origin(case, found))
        file, picture = out / f"{stem}.proofmap", out / f"{stem}.map.png"
        explanation.save(file)
        explanation.plot().savefig(picture)
        records.append(_record(case, explanation, found, file, picture))
        if not as_json:
            typer.echo(_line(case, explanation, found))
    if as_json:
        typer.echo(json.dumps({"model": found.name, "method": method, "inputs": records}, indent=1))
    else:
        if (off := explanation.settings.get("taken_off")) is not None:
            typer.echo(f"note: {taken_off(off)}")
        typer.echo(f"wrote {plural(len(cases), 'map')} to {out}")


def _settings(method: str, groups: str | None, bounds: str | None) -> dict[str, Any]:
    """What the explainer takes beyond a model and a ball."""
    if method not in EXPLAINERS:
        raise InputError(f"got --method {method}, expected one of {', '.join(EXPLAINERS)}")
    return {"groups": o.groups_of(groups), **o.bounds_of(bounds, method, EXPLAINERS[method])}


def _origin(case: Case, model: Model) -> Origin:
    """Where an input and its explanation come from, for whoever has the file alone."""
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    return Origin(model.source, (case.source(),), (case.label,), model.classes, _columns(case), made)


def _columns(case: Case) -> tuple[str, ...] | None:
    """The names of a row's variables."""
    return case.columns if case.columns is not None and len(case.columns) == case.x[0].numel() else None


def _stems(names: Sequence[str]) -> list[str]:
    """A file's name for each sample: its own without an ending, numbered where another has it already."""
    found: dict[str, None] = {}
    last: Counter[str] = Counter()
    for name in names:
        plain = re.sub(r"\.[A-Za-z0-9]+(?=#|$)", "", name)
        stem = again = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip(".-") or "input"
        while again in found:
            last[stem] += 1
            again = f"{stem}-{last[stem] + 1}"
        found[again] = None
    return list(found)


def _line(case: Case, e: Explanation, model: Model) -> str:
    """What is known about an input, in one line."""
    predicted, aim = int(e.predicted), int(e.target)
    said = f"{case.name}: {model.title(predicted)}{beside(case.label, predicted, model.title)}"
    if e.opposite is not None and aim == int(e.overlap.target):
        return f"{said}; it is {model.title(aim)} already: nothing is asked"
    if e.opposite is not None:
        adding, removing = (
            f"{rounded(float(side.full), e.guarantee)} by {how}, {'proven' if float(side.full) <= 0 else 'undecided'}"
            for side, how in ((e.overlap, "adding"), (e.opposite, "removing"))
        )
        return f"{said}; towards {model.title(aim)}, {_ball(case, e)}: AO(B) <= {adding}; <= {removing}"
    other = "" if aim == predicted else f", explained as {model.title(aim)}, which is not the prediction"
    return f"{said}{other}; {_ball(case, e)}: {_meaning(e)}"


def _ball(case: Case, e: Explanation) -> str:
    if case.boxed:
        return "the file's box"
    if isinstance(case.ball.eps, str):
        why = "the radius proven" if _radius(e) else "as no radius is proven: give --eps"
        return f"{around(e.settings)} ({why})"
    return around(e.settings)


def _radius(e: Explanation) -> Any:
    eps = e.settings["eps"]
    return eps[0] if isinstance(eps, list) else eps


def _meaning(e: Explanation) -> str:
    value = float(e.overlap.full)
    shown = rounded(value, e.guarantee)
    match e.guarantee:
        case "certified" if value <= 0:
            return f"AO(B) <= {shown}, proven: no input of the ball is classified otherwise"
        case "certified" if float(e.overlap.nominal) > 0:
            return f"AO(B) <= {shown}, refuted: the input itself is classified otherwise"
        case "certified":
            return f"AO(B) <= {shown}, undecided: an input of the ball may be classified otherwise, or none"
        case "sampled" if value > 0:
            return f"AO(B) >= {shown}, refuted: a sample of the ball is classified otherwise"
        case "sampled":
            return f"AO(B) >= {shown}: no sample of the ball is classified otherwise; nothing is proven"
        case _:
            return f"AO(B) about {shown}: an estimate; nothing is proven"


def _record(case: Case, e: Explanation, model: Model, file: Path, picture: Path | None) -> dict[str, Any]:
    sides = {"": e.overlap, **({} if e.opposite is None else {"opposite": e.opposite})}
    objective = e.settings.get("objective", "margin")
    return {
        "name": case.name,
        "label": case.label,
        "predicted": int(e.predicted),
        "target": int(e.target),
        "class": model.title(int(e.target)),
        **{bound_name(e.guarantee, objective, part): o.finite(float(side.full)) for part, side in sides.items()},
        "guarantee": e.guarantee,
        "certified": bool(e.proven),
        "eps": None if case.boxed else _radius(e),
        "norm": e.settings["norm"],
        "domain": e.settings["domain"],
        "seconds": e.seconds,
        "file": str(file),
        "picture": None if picture is None else str(picture),
    }
