"""verify without a specification: decisions over balls, proven, refuted by a point that is kept, or undecided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from math import inf
from typing import Any

import torch
import typer

from proofmap.attack.counterexample import refute
from proofmap.bounds import Method
from proofmap.cli.counterexample_files import Points
from proofmap.cli.explain_output import stems
from proofmap.cli.options.samples_and_balls import Case, graphs
from proofmap.cli.options.shared_options import ROUNDINGS, finite, tell
from proofmap.errors import BoundError
from proofmap.explainers.explanation import rounded
from proofmap.graph import Graph
from proofmap.graph.classes import classes_of, margins
from proofmap.rounding.coverage import covered
from proofmap.runtime.outward_numbers import between
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import Bar
from proofmap.sources.own_files import REFUTED
from proofmap.text.wording import around, beside, bound_name, radius, reached_name, share, taken_off
from proofmap.verify.overlap import Overlap, overlap
from proofmap.verify.radius import certified_radius
from proofmap.verify.radius import radius as both_radii

__all__ = ["Question", "answer_all"]

_VERDICTS = ("proven", "refuted", "undecided")
_UPPER, _LOWER = bound_name("certified"), reached_name()
_TIMES = 100  # what roundings take at a point: above that they are not why a search proves nothing
_OVERLAP = 0.05  # of the work: the radius takes some twenty bounds more


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of every input."""

    method: Method
    eps: str  # in the user's words, which no rounding changes
    norm: str
    target: int | None
    radius: bool
    points: Points  # and the model

    def ball(self, case: Case) -> str:
        """What the answer is about."""
        return around({"norm": self.norm, "domain": case.ball.domain}, stated=self.eps)


def answer_all(cases: Sequence[Case], question: Question, as_json: bool) -> bool:
    """Print the answer for every input and what they come to; whether all are proven."""
    networks = graphs(cases, question.points.model)
    entries = []
    with Bar(len(cases), "verify") as bar:
        for case, stem in zip(cases, stems([case.name for case in cases]), strict=True):
            with bar.work():
                entry = _answer(case, networks[case.shape], question, stem)
            entries.append(entry)
            if not as_json:
                bar.write(_line(entry, case, question))
    counts = {word: sum(entry["verdict"] == word for entry in entries) for word in _VERDICTS}
    accuracy = None if question.target is not None else _accuracy(entries)
    off = networks[cases[0].shape].taken_off
    if as_json:
        summary = {"model": question.points.model.name, "taken_off": off, **counts, "of": len(entries)}
        summary["certified_accuracy"] = accuracy
        typer.echo(json.dumps({**summary, "inputs": entries}, indent=1))
    else:
        if off is not None:
            typer.echo(f"note: {taken_off(off)}")
        tell(() if all(entry["rigorous"] for entry in entries) else (ROUNDINGS,))
        balls = {question.ball(case) for case in cases}
        ball = f" for {balls.pop()}" if len(balls) == 1 else ", each for the ball beside it"
        proven = share(counts["proven"], len(entries), "input")
        typer.echo(f"proven: {proven}{ball}; refuted: {counts['refuted']}; undecided: {counts['undecided']}")
        if accuracy is not None:
            right = share(accuracy["proven_and_right"], accuracy["labelled"], "labelled input")
            typer.echo(f"certified accuracy, proven and predicted as labelled: {right}{ball}")
    return all(entry["verdict"] == "proven" for entry in entries)


def _answer(case: Case, graph: Graph, question: Question, stem: str) -> dict[str, Any]:
    network = graph.to(case.x.device, case.x.dtype)
    predicted = int(network(case.x).flatten(1).argmax(1))
    aim = predicted if question.target is None else question.target
    classes_of(aim, 1, graph.classes, case.x.device)
    upper, why, found, rounding = inf, None, None, False
    rigorous = covered(network)
    up_to: tuple[float | None, float | None] = (None, None)
    try:
        with part(0.0, _OVERLAP if question.radius else 1.0):
            asked: Any = {"bounds": question.method, "target": aim, "enough": 0.0}
            found = overlap(network, case.x, case.ball, **asked, rigorous=rigorous)
            upper = float(found.full)
            if upper >= 0 and rigorous and _near(found, graph, aim):
                rounding = bool(overlap(network, case.x, case.ball, **asked, rigorous=False).full < 0)
            if rounding and question.method.search is None:  # a search is in float64 already
                precise = graph.to(case.x.device, torch.float64)
                upper = float(overlap(precise, case.x.double(), case.ball, **asked, rigorous=True).full)
                rounding = upper >= 0
        if question.radius:
            with part(_OVERLAP, 1.0):
                up_to = _radius(case, network, question.method, aim, upper < 0, rigorous)
    except BoundError as error:
        why = str(error)
    known = [] if found is None or found.points is None else [found.points[:, 0]]
    refutation = None if upper < 0 else refute(network, case.x, case.ball, aim, question.points.run, known)
    domain = case.ball.domain
    entry = {
        "name": case.name,
        "label": case.label,
        "predicted": predicted,
        "target": aim,
        "class": question.points.model.title(aim),
        "verdict": "proven" if upper < 0 else "undecided" if refutation is None else "refuted",
        _UPPER: finite(upper),
        _LOWER: None if found is None else finite(float(found.full_lower)),
        "why": why,
        "rigorous": rigorous,
        "rounding": rounding,
        "eps": case.ball.eps,
        "norm": question.norm,
        "domain": None if domain is None else list(domain),
        "radius": up_to[0],
        "radius_refuted": up_to[1],
        "becomes": None if refutation is None else refutation.becomes,
    }
    point = None if refutation is None else refutation.point
    return question.points.keep(point, f"{stem}{REFUTED}", entry, picture=True)


def _near(found: Overlap, graph: Graph, aim: int) -> bool:
    """Whether roundings may be why nothing is proven. Of a search, which takes as long again when asked without them,
    only where its bound is no more than some times what they take at the point that it met.
    """
    if found.points is None:
        return True
    point = found.points[:, 0].double()
    value = margins(graph.to(point.device, torch.float64)(point).flatten(1), found.target)
    return bool(found.full <= _TIMES * (value - found.full_lower))


def _radius(
    case: Case, graph: Graph, method: Method, aim: int, proven: bool, rigorous: bool
) -> tuple[float, float | None]:
    """Up to which radius the decision is proven, and where a method searches, from which one on it is refuted."""
    asked: Any = {"norm": case.ball.norm, "domain": case.ball.domain, "bounds": method, "target": aim}
    asked |= {"rigorous": rigorous, "progress": False}
    refuted = None
    if method.search is None:
        largest = float(certified_radius(graph, case.x, **asked))
    else:
        found = both_radii(graph, case.x, **asked)
        largest, refuted = float(found.proven), finite(float(found.refuted))
    return max(largest, float(case.ball.eps) if proven else 0.0), refuted


def _accuracy(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Proven and right, of all that have a label."""
    labelled = [entry for entry in entries if entry["label"] is not None]
    if not labelled:
        return None
    right = sum(entry["verdict"] == "proven" and entry["label"] == entry["predicted"] for entry in labelled)
    return {"proven_and_right": right, "labelled": len(labelled), "share": right / len(labelled)}


def _line(entry: dict[str, Any], case: Case, question: Question) -> str:
    title = question.points.model.title
    predicted, aim = entry["predicted"], entry["target"]
    label = beside(entry["label"], predicted, title)
    asked = "" if aim == predicted else f", asked about {title(aim)}, which is not the prediction"
    bound = _bound(entry[_LOWER], entry[_UPPER], both=question.method.search is not None)
    match entry["verdict"]:
        case "proven":
            answer = bound
        case "refuted":
            where = "the input itself" if aim != predicted else entry["point"]
            answer = f"classified as {title(entry['becomes'])} at {where}, {question.points.confirmed}"
        case _:
            why = "" if entry["why"] is None else f" ({entry['why']})"
            answer = f"{bound}{why}, and an attack found nothing"
    undecided = entry["verdict"] == "undecided" and entry["rounding"]
    verdict = f"{entry['verdict']}{', rounding' * undecided} for {question.ball(case)}: {answer}"
    up_to = _up_to(entry["radius"], entry["radius_refuted"])
    return f"{entry['name']}: {title(predicted)}{label}{asked}: {verdict}{up_to}"


def _bound(lower: float | None, upper: float | None, both: bool) -> str:
    """What is proven; both: with what an input of the ball reaches, where a search looked for it."""
    if upper is None:
        return "no bound"
    return (
        f"AO(B) in {between(lower, upper)}" if both and lower is not None else f"AO(B) <= {rounded(upper, 'certified')}"
    )


def _up_to(proven: float | None, refuted: float | None) -> str:
    if proven is None:
        return ""
    beyond = "" if refuted is None else f", refuted at ε = {radius(refuted, ROUND_CEILING)}"
    return f"; proven up to ε = {radius(proven)}{beyond}" if proven > 0 else f"; no radius is proven{beyond}"
