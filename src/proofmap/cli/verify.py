"""proofmap verify: decisions over balls, or the properties of VNN-LIB files, proven, refuted or left undecided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from proofmap.bounds import Method, named
from proofmap.cli import options as o
from proofmap.cli.cases import Case, graphs, own_ball, read_cases, specified, stems
from proofmap.cli.points import Points
from proofmap.cli.properties import check_result, decide_files
from proofmap.errors import BoundError, InputError
from proofmap.explain.explanation import rounded
from proofmap.explain.refute import refute
from proofmap.graph import Graph
from proofmap.overlap import certified_radius, classes_of, overlap
from proofmap.sources import Model
from proofmap.sources.written import REFUTED

__all__ = ["verify"]

_NO = 1
_VERDICTS = ("proven", "refuted", "undecided")


def verify(
    context: typer.Context,
    model: o.ModelArgument,
    inputs: o.Inputs,
    eps: o.Eps = None,
    norm: o.Norm = "inf",
    domain: o.Domain = None,
    bounds: o.Bounds = None,
    target: o.Target = None,
    no_radius: Annotated[
        bool, typer.Option("--no-radius", help="Leave out the largest radius that is proven: its search takes longest.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The folder for the points that refute a decision or a property: --out points")
    ] = Path("out"),
    result: Annotated[
        Path | None,
        typer.Option(help="For one VNN-LIB file, its answer in VNN-COMP's format: --result r.txt", show_default=False),
    ] = None,
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Prove that no input of the ball is classified otherwise, or that the property of a VNN-LIB file holds.

    Exit code 1 where that is not proven for every input. For instance: proofmap verify zoo:mnist_mlp digit.png --eps
    0.02
    """
    method = named(bounds or "backward")
    if specified(inputs):
        own_ball(eps, norm, domain)
        if target is not None or no_radius:
            raise InputError("got --target or --no-radius with a VNN-LIB file, expected none: it says what is decided")
        check_result(result, len(inputs))
        bare = source.model(model, bare=True)
        proven = decide_files(inputs, bare, method, Points(out, bare), result, o.device_of(device), as_json)
    else:
        check_result(result, 0)
        if eps == "auto":
            raise InputError(
                "got --eps auto, expected a number such as 0.02 or 2/255: the proven radius is printed anyway"
            )
        found, cases = read_cases(inputs, partial(source.model, model), eps, norm, domain, o.device_of(device))
        aim = o.class_of(target, found.classes)
        question = _Question(found, method, str(eps), norm, aim, not no_radius, Points(out, found))
        proven = _answer_all(cases, graphs(cases, found), question, as_json)
    if not proven:
        raise typer.Exit(_NO)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked of every input."""

    model: Model
    method: Method
    eps: str  # in the user's words, which no rounding changes
    norm: str
    target: int | None
    radius: bool
    points: Points

    def ball(self, case: Case) -> str:
        """What the answer is about."""
        domain = case.ball.domain
        where = "no domain" if domain is None else f"domain {domain[0]:g} to {domain[1]:g}"
        return f"ε = {self.eps} (ℓ{'∞' if self.norm == 'inf' else self.norm}, {where})"


def _answer_all(
    cases: Sequence[Case], networks: dict[tuple[int, ...], Graph], question: _Question, as_json: bool
) -> bool:
    """Print the answer for every input and what they come to; whether all are proven."""
    entries = []
    for case, stem in zip(cases, stems([case.name for case in cases]), strict=True):
        entry = _answer(case, networks[case.shape], question, stem)
        entries.append(entry)
        if not as_json:
            typer.echo(_line(entry, case, question))
    counts = {word: sum(entry["verdict"] == word for entry in entries) for word in _VERDICTS}
    accuracy = None if question.target is not None else _accuracy(entries)
    if as_json:
        found = {"model": question.model.name, **counts, "of": len(entries), "certified_accuracy": accuracy}
        typer.echo(json.dumps({**found, "inputs": entries}, indent=1))
    else:
        balls = {question.ball(case) for case in cases}
        ball = f" for {balls.pop()}" if len(balls) == 1 else ", each for the ball beside it"
        proven = _share(counts["proven"], len(entries), "input")
        typer.echo(f"proven: {proven}{ball}; refuted: {counts['refuted']}; undecided: {counts['undecided']}")
        if accuracy is not None:
            right = _share(accuracy["proven_and_right"], accuracy["labelled"], "labelled input")
            typer.echo(f"certified accuracy: {right} proven and right{ball}")
    return all(entry["verdict"] == "proven" for entry in entries)


def _answer(case: Case, graph: Graph, question: _Question, stem: str) -> dict[str, Any]:
    network = graph.to(case.x.device, case.x.dtype)
    predicted = int(network(case.x).flatten(1).argmax(1))
    aim = predicted if question.target is None else question.target
    classes_of(aim, 1, graph.classes, case.x.device)
    upper, why, radius = inf, None, None
    try:
        upper = float(overlap(network, case.x, case.ball, bounds=question.method, target=aim).full)
        if question.radius:
            radius = _radius(case, network, question.method, aim, upper <= 0)
    except BoundError as error:
        why = str(error)
    found = None if upper <= 0 else refute(network, case.x, case.ball, aim, question.points.run)
    domain = case.ball.domain
    entry = {
        "name": case.name,
        "label": case.label,
        "predicted": predicted,
        "target": aim,
        "class": question.model.title(aim),
        "verdict": "proven" if upper <= 0 else "undecided" if found is None else "refuted",
        "overlap": o.finite(upper),
        "why": why,
        "eps": case.ball.eps,
        "norm": question.norm,
        "domain": None if domain is None else list(domain),
        "radius": radius,
        "becomes": None if found is None else found.becomes,
    }
    point = None if found is None else found.point
    return question.points.keep(point, f"{stem}{REFUTED}", entry, picture=True)


def _radius(case: Case, graph: Graph, method: Method, aim: int, proven: bool) -> float:
    norm, domain = case.ball.norm, case.ball.domain
    found = certified_radius(graph, case.x, norm=norm, domain=domain, bounds=method, target=aim)
    return max(float(found), float(case.ball.eps) if proven else 0.0)


def _accuracy(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Proven and right, of all that have a label."""
    labelled = [entry for entry in entries if entry["label"] is not None]
    if not labelled:
        return None
    right = sum(entry["verdict"] == "proven" and entry["label"] == entry["predicted"] for entry in labelled)
    return {"proven_and_right": right, "labelled": len(labelled), "share": right / len(labelled)}


def _line(entry: dict[str, Any], case: Case, question: _Question) -> str:
    title = question.model.title
    label, predicted, aim = entry["label"], entry["predicted"], entry["target"]
    said = "" if label in (None, predicted) else f", labelled {title(label)}"
    asked = "" if aim == predicted else f", asked about {title(aim)}"
    bound = f"AO(B) <= {rounded(entry['overlap'], 'certified')}" if entry["overlap"] is not None else "no bound"
    match entry["verdict"]:
        case "proven":
            found = f", {bound}"
        case "refuted":
            where = "the input itself" if aim != predicted else entry["point"]
            found = f": classified as {title(entry['becomes'])} at {where}, {question.points.confirmed}"
        case _:
            why = "" if entry["why"] is None else f" ({entry['why']})"
            found = f": {bound}{why}, and an attack found nothing"
    verdict = f"{entry['verdict']} for {question.ball(case)}{found}"
    return f"{entry['name']}: {title(predicted)}{said}{asked}: {verdict}{_up_to(entry['radius'])}"


def _up_to(radius: float | None) -> str:
    """The radius, rounded to the side on which it stays proven."""
    if radius is None:
        return ""
    shown = Context(prec=4, rounding=ROUND_FLOOR).create_decimal_from_float(radius).normalize()
    return f"; proven up to ε = {float(shown):.4g}" if radius > 0 else "; no radius is proven"


def _share(some: int, every: int, what: str) -> str:
    return f"{some} of {every} {what}{'s' * (every != 1)} ({100 * some / every:.1f} %)"
