"""`proofmap verify` on samples: prove each decision over its ball, or refute it by a saved counterexample."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from math import inf
from typing import Any

import torch
import typer

from proofmap.attack.counterexample import find_counterexample
from proofmap.bounds import Backward, Method
from proofmap.cli.counterexample_files import Points
from proofmap.cli.explain_output import stems
from proofmap.cli.options.samples_and_balls import SampleInBall, graphs
from proofmap.cli.options.shared_options import ROUNDING_NOTE, finite, tell
from proofmap.errors import BoundError
from proofmap.graph import Graph
from proofmap.graph.classes import classes_of
from proofmap.rounding.point_bounds import lower_bounds_at_points
from proofmap.rounding.rigorous_support import has_error_bounds, or_fast
from proofmap.runtime.memory import budget
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources.own_files import REFUTED
from proofmap.text.verdict import Outcome, OverlapBounds, Verdict
from proofmap.text.verdict_wording import CERTIFIED_ACCURACY, TEXT_SIGNS, bound_text, sentence
from proofmap.text.wording import beside, bound_name, radius, reached_name, share, taken_off
from proofmap.verify.overlap import Overlap, overlap
from proofmap.verify.radius import certified_radius
from proofmap.verify.radius import radius as both_radii

_OUTCOMES: tuple[Outcome, ...] = ("proven", "refuted", "undecided")
_UPPER, _LOWER = bound_name("certified"), reached_name()
_MAX_ROUNDING_MULTIPLE = 100  # a bound above this multiple of a point's rounding error is open for other reasons
_OVERLAP_WORK_SHARE = 0.05  # the radius needs about twenty more bounds


@dataclass(frozen=True, eq=False)
class DecisionQuery:
    """The settings of `proofmap verify` that are the same for all inputs."""

    method: Method
    eps: str  # the user's text, so that it is printed without rounding
    norm: str
    target: int | None
    radius: bool
    points: Points  # the output folder, and the model

    def ball(self, case: SampleInBall) -> str:
        """Describe the ball of a sample."""
        return case.around(self.norm, self.eps)

    def ball_text(self, case: SampleInBall) -> str:
        """Describe the ball for a sentence."""
        return f"the ball ({self.ball(case)})"


def answer_all(cases: Sequence[SampleInBall], query: DecisionQuery, as_json: bool) -> bool:
    """Print the answer for each input and the totals. Return whether all decisions are proven."""
    networks = graphs(cases, query.points.model)
    entries = []
    with ProgressBar(len(cases), "verify") as bar:
        for case, stem in zip(cases, stems([case.name for case in cases]), strict=True):
            with bar.work():
                entry = _answer(case, networks[case.shape], query, stem)
            entries.append(entry)
            if not as_json:
                bar.write(_line(entry, case, query))
    counts: dict[str, int] = {word: sum(entry["verdict"] == word for entry in entries) for word in _OUTCOMES}
    accuracy = None if query.target is not None else _accuracy(entries)
    off = networks[cases[0].shape].taken_off
    if as_json:
        summary = {"model": query.points.model.name, "taken_off": off, **counts, "of": len(entries)}
        typer.echo(json.dumps({**summary, "certified_accuracy": accuracy, "inputs": entries}, indent=1))
    else:
        if off is not None:
            typer.echo(f"note: {taken_off(off)}")
        tell(() if all(entry["rigorous"] for entry in entries) else (ROUNDING_NOTE,))
        balls = {query.ball(case) for case in cases}
        ball = f" for {balls.pop()}" if len(balls) == 1 else ", each for the ball beside it"
        proven = share(counts["proven"], len(entries), "input")
        typer.echo(f"proven: {proven}{ball}; refuted: {counts['refuted']}; undecided: {counts['undecided']}")
        if accuracy is not None:
            right = share(accuracy["proven_and_right"], accuracy["labelled"], "labelled input")
            typer.echo(f"{CERTIFIED_ACCURACY}: {right}{ball}")
    return all(entry["verdict"] == "proven" for entry in entries)


def _answer(case: SampleInBall, graph: Graph, query: DecisionQuery, stem: str) -> dict[str, Any]:
    network = graph.to(case.x.device, case.x.dtype)
    predicted = int(network(case.x).flatten(1).argmax(1))
    aim = predicted if query.target is None else query.target
    classes_of(aim, 1, graph.classes, case.x.device)
    upper, why, found, rounding = inf, None, None, False
    rigorous = has_error_bounds(network)
    up_to: tuple[float | None, float | None] = (None, None)
    try:
        with part(0.0, _OVERLAP_WORK_SHARE if query.radius else 1.0):
            asked: Any = {"bounds": query.method, "target": aim, "enough": 0.0}

            def bound(mode: bool | None) -> Overlap:
                covered = has_error_bounds(network) if mode is None else mode
                return overlap(network, case.x, case.ball, **asked, rigorous=covered)

            found = or_fast(None, bound)
            rigorous = found.rigorous
            upper = float(found.full)
            if upper >= 0 and rigorous and _may_be_rounding(found, graph):
                rounding = bool(overlap(network, case.x, case.ball, **asked, rigorous=False).full < 0)
            if rounding and query.method.search is None:  # a search already computes in float64
                precise = graph.to(case.x.device, torch.float64)
                upper = float(overlap(precise, case.x.double(), case.ball, **asked, rigorous=True).full)
                rounding = upper >= 0
        if query.radius:
            with part(_OVERLAP_WORK_SHARE, 1.0):
                up_to = _radius(case, network, query.method, aim, upper < 0, rigorous)
    except BoundError as error:
        why = str(error)
    known = [] if found is None or found.points is None else [found.points[:, 0]]
    refutation = None if upper < 0 else find_counterexample(network, case.x, case.ball, aim, query.points.run, known)
    entry = {
        "name": case.name,
        "label": case.label,
        "predicted": predicted,
        "target": aim,
        "class": query.points.model.title(aim),
        "verdict": "proven" if upper < 0 else "undecided" if refutation is None else "refuted",
        _UPPER: finite(upper),
        _LOWER: None if found is None else finite(float(found.full_lower)),
        "why": why,
        "rigorous": rigorous,
        "rounding": rounding,
        "eps": case.eps,
        "norm": query.norm,
        "domain": case.domain,
        "radius": up_to[0],
        "radius_refuted": up_to[1],
        "becomes": None if refutation is None else refutation.becomes,
    }
    point = None if refutation is None else refutation.point
    return query.points.keep(point, f"{stem}{REFUTED}", entry, picture=True)


def _may_be_rounding(found: Overlap, graph: Graph) -> bool:
    """Return whether rounding errors may be the reason that nothing is proven.

    A second search without rounding errors takes as long as the first. So for a search this is true only if the bound
    is at most `_MAX_ROUNDING_MULTIPLE` times the rounding error of a bound at the best point that it found.
    """
    if found.points is None:
        return True
    point, target = found.points[:, 0].double(), int(found.target)
    network = graph.to(point.device, torch.float64)
    logits = network(point).flatten()
    rival = int(logits.index_fill(0, found.target, -inf).argmax())
    lead = torch.zeros_like(logits)
    lead[rival], lead[target] = 1.0, -1.0
    above = -lower_bounds_at_points(network, point, -lead[None, None], Backward(), budget(None, point.device))
    return bool(found.full <= _MAX_ROUNDING_MULTIPLE * (above - logits @ lead))


def _radius(
    case: SampleInBall, graph: Graph, method: Method, aim: int, proven: bool, rigorous: bool
) -> tuple[float, float | None]:
    """Return the largest proven radius, and for a method that searches, the smallest refuted radius."""
    asked: Any = {"norm": case.ball.norm, "domain": case.region.domain, "bounds": method, "target": aim}
    asked |= {"rigorous": rigorous, "progress": False}
    refuted = None
    if method.search is None:
        largest = float(certified_radius(graph, case.x, **asked))
    else:
        found = both_radii(graph, case.x, **asked)
        largest, refuted = float(found.proven), finite(float(found.refuted))
    return max(largest, case.least_radius if proven else 0.0), refuted


def _accuracy(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Count the labelled inputs whose decision is proven and equal to the label."""
    labelled = [entry for entry in entries if entry["label"] is not None]
    if not labelled:
        return None
    right = sum(entry["verdict"] == "proven" and entry["label"] == entry["predicted"] for entry in labelled)
    return {"proven_and_right": right, "labelled": len(labelled), "share": right / len(labelled)}


def _line(entry: dict[str, Any], case: SampleInBall, query: DecisionQuery) -> str:
    title = query.points.model.title
    predicted, aim = entry["predicted"], entry["target"]
    label = beside(entry["label"], predicted, title)
    asked = "" if aim == predicted else f", asked about {title(aim)}, which is not the prediction"
    bound = _bound(entry, both=query.method.search is not None)
    verdict = Verdict("decision", entry["verdict"], "input" if aim != predicted else "attack")
    said = sentence(verdict, query.ball_text(case), rounding=entry["rounding"])
    match verdict.outcome:
        case "proven":
            answer = bound
        case "refuted":
            where = "the input itself" if aim != predicted else entry["point"]
            answer = f"class {title(entry['becomes'])} at {where}, {query.points.confirmed}"
        case _:
            why = "" if entry["why"] is None else f" ({entry['why']})"
            answer = f"{bound}{why}; an attack found no counterexample"
    up_to = _up_to(entry["radius"], entry["radius_refuted"])
    if case.several is not None and entry["radius"]:
        up_to += " of every input that moves"
    return f"{entry['name']}: {title(predicted)}{label}{asked}; {said}; {answer}{up_to}"


def _bound(entry: dict[str, Any], both: bool) -> str:
    """Word the bounds of AO(B); both: with the lower bound that a search found."""
    if entry[_UPPER] is None:
        return "no bound"
    bounds = OverlapBounds(-inf, upper=entry[_UPPER], searched=entry[_LOWER] if both else None)
    return bound_text(bounds, "certified", {}, "AO(B)", TEXT_SIGNS)


def _up_to(proven: float | None, refuted: float | None) -> str:
    if proven is None:
        return ""
    beyond = "" if refuted is None else f", refuted at ε = {radius(refuted, ROUND_CEILING)}"
    return f"; proven up to ε = {radius(proven)}{beyond}" if proven > 0 else f"; no radius is proven{beyond}"
