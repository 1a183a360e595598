"""`proofmap verify --within`: prove that no input of a ball changes one output by more, or refute it by a point."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any

import torch
import typer
from torch import Tensor

from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.bounds import Method
from proofmap.cli.counterexample_files import Points
from proofmap.cli.explain_output import stems
from proofmap.cli.options.samples_and_balls import SampleInBall, graphs
from proofmap.cli.options.shared_options import ROUNDING_NOTE, finite, tell
from proofmap.errors import BoundError
from proofmap.graph import Graph
from proofmap.rounding.rigorous_support import has_error_bounds
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources.own_files import REFUTED
from proofmap.text.output_wording import bound_name_of, value_text, with_unit, within_text
from proofmap.text.wording import number, share
from proofmap.verify.objective import forms_of
from proofmap.verify.objectives import Output, objective_graph
from proofmap.verify.overlap import Overlap, overlap

_VERDICTS = ("proven", "refuted", "undecided")


@dataclass(frozen=True, eq=False)
class ChangeQuery:
    """The settings of `proofmap verify --within` that are the same for all inputs."""

    method: Method
    eps: str  # the user's text, so that it is printed without rounding
    norm: str
    output: Output
    within: str  # the user's text, an exact number
    points: Points

    @property
    def limit(self) -> Fraction:
        """The largest change that is allowed, exactly as it was typed."""
        above, slash, below = self.within.partition("/")
        return Fraction(above) / Fraction(below) if slash else Fraction(above)

    def ball(self, case: SampleInBall) -> str:
        """Describe the ball of a sample."""
        return case.around(self.norm, self.eps)


def answer_outputs(cases: Sequence[SampleInBall], query: ChangeQuery, as_json: bool) -> bool:
    """Print the answer for each input and the totals. Return whether all are proven."""
    unlabelled = [replace(case, label=None) for case in cases]  # labels are classes
    networks = graphs(unlabelled, query.points.model)
    entries = []
    with ProgressBar(len(cases), "verify") as bar:
        for case, stem in zip(unlabelled, stems([case.name for case in cases]), strict=True):
            with bar.work():
                entry = _answer(case, networks[case.shape], query, stem)
            entries.append(entry)
            if not as_json:
                bar.write(_line(entry, case, query))
    counts: dict[str, int] = {word: sum(entry["verdict"] == word for entry in entries) for word in _VERDICTS}
    if as_json:
        summary = {"model": query.points.model.name, **counts, "of": len(entries)}
        typer.echo(json.dumps({**summary, "inputs": entries}, indent=1))
    else:
        tell(() if all(entry["rigorous"] for entry in entries) else (ROUNDING_NOTE,))
        proven = share(counts["proven"], len(entries), "input")
        typer.echo(f"proven: {proven}; refuted: {counts['refuted']}; undecided: {counts['undecided']}")
    return counts["proven"] == len(entries)


def _answer(case: SampleInBall, graph: Graph, query: ChangeQuery, stem: str) -> dict[str, Any]:
    network, output = graph.to(case.x.device, case.x.dtype), query.output
    rigorous = has_error_bounds(objective_graph(network, output))
    found, why = None, None
    try:
        found = overlap(network, case.x, case.ball, bounds=query.method, objective=output, rigorous=rigorous)
    except BoundError as error:
        why = str(error)
    upper = inf if found is None else float(found.full)
    at_x = _value(query, network, case.x)
    value = float(at_x) if found is None or found.value is None else float(found.value)
    apart = abs(Fraction(value) - at_x)  # the bound is about changes from `value`, the user's model may give another
    proven = upper < inf and Fraction(upper) + apart <= query.limit
    reached, point = (Fraction(0), None) if proven or found is None else _largest_change(case, network, query, found)
    refuted = not proven and reached > query.limit
    entry = {
        "name": case.name,
        "output": output.record()["output"],
        "text": output.text,
        "value": value,
        "unit": output.unit,
        "direction": output.direction,
        "within": float(query.limit),
        "verdict": "proven" if proven else "refuted" if refuted else "undecided",
        bound_name_of(output): finite(upper),
        "reached": None if proven else float(reached),
        "why": why,
        "rigorous": rigorous,
        "eps": case.eps,
        "norm": query.norm,
        "domain": case.domain,
    }
    return query.points.keep(point if refuted else None, f"{stem}{REFUTED}", entry, picture=True)


def _largest_change(
    case: SampleInBall, network: Graph, query: ChangeQuery, found: Overlap
) -> tuple[Fraction, Tensor | None]:
    """Return the largest change at a point by the model as its user runs it, and the point."""
    output, at_x = query.output, _value(query, network, case.x)
    best, where = Fraction(0), None
    for point in _points(case, objective_graph(network, output), output, found):
        moved = _value(query, network, point) - at_x
        change = {"up": moved, "down": -moved, "both": abs(moved)}[output.direction]
        if change > best:
            best, where = change, point[0]
    return best, where


def _value(query: ChangeQuery, network: Graph, x: Tensor) -> Fraction:
    """Return the output at x (1, *shape), by the model as its user runs it."""
    outputs = query.points.run(x).flatten()
    picked = [Fraction(float(outputs[k])) for k in query.output.entries(network)]
    return max(picked) if query.output.reduce == "maximum" else sum(picked, Fraction(0)) / len(picked)


def _points(case: SampleInBall, graph: Graph, output: Output, found: Overlap) -> Iterator[Tensor]:
    """Yield points (1, *shape) of the ball at which the output changes much."""
    if found.points is not None:
        yield found.points[:, 0].to(case.x)
    family = case.ball.at(case.x)
    with full_precision(case.x.device), torch.no_grad():
        outputs = graph(case.x)
        forms = forms_of(outputs, outputs.argmax(1), None, output)
    yield attack_lower_bounds(graph, family, forms, budget(None, case.x.device)).points[:, 0].to(case.x)


def _line(entry: dict[str, Any], case: SampleInBall, query: ChangeQuery) -> str:
    output, upper = query.output, entry[bound_name_of(query.output)]
    said = within_text(output, query.within, entry["verdict"], f"the ball ({query.ball(case)})")
    bound = "no bound" if upper is None else f"at most {with_unit(number(upper, 'certified'), output)} is proven"
    match entry["verdict"]:
        case "proven":
            answer = bound
        case "refuted":
            reached = with_unit(number(entry["reached"], "sampled"), output)
            answer = f"by {reached} at {entry['point']}, {query.points.confirmed}"
        case _:
            why = "" if entry["why"] is None else f" ({entry['why']})"
            reached = with_unit(number(entry["reached"], "sampled"), output)
            answer = f"{bound}{why}; an attack reached {reached}"
    return f"{entry['name']}: {value_text(output, entry['value'])}; {said}; {answer}"
