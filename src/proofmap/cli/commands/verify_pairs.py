"""`proofmap verify` with two models: decisions proven for both, and bounds of the differences of their logits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from proofmap.bounds import Method
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.samples_and_balls import SampleInBall, graphs
from proofmap.cli.options.shared_options import ROUNDING_NOTE, finite, tell
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import Model
from proofmap.text.wording import share, taken_off
from proofmap.verify.model_comparison import compare_models, difference_text

_OUTCOMES = ("proven", "refuted", "undecided")


@dataclass(frozen=True)
class PairQuery:
    """The settings that are the same for all inputs."""

    method: Method
    eps: str  # the user's text, so that it is printed without rounding
    norm: str
    target: int | None


def second_of(subject: Subject, name: str, first: Model) -> Model:
    """Read the second model. Refuse one that reads the same files as other numbers."""
    second = subject.source.model(name)
    for what in ("size", "channels", "range"):
        a, b = (getattr(model.preparation, what) for model in (first, second))
        if a != b:
            raise InputError(
                f"the models read inputs with the {what} {a} and {b}, expected one for both: give it as --{what}",
                arguments=(what,),
            )
    return second.joined(first.parts) if first.parts else second


def compare_all(cases: Sequence[SampleInBall], models: tuple[Model, Model], query: PairQuery, as_json: bool) -> bool:
    """Print the answer for each input and the totals. Return whether all decisions are proven for both models."""
    networks = [graphs(cases, model) for model in models]
    entries = []
    with ProgressBar(len(cases), "verify") as bar:
        for case in cases:
            with bar.work():
                entry = _compare(case, [network[case.shape] for network in networks], models[0], query)
            entries.append(entry)
            if not as_json:
                bar.write(_line(entry, models))
    counts = [{word: sum(entry["verdicts"][k] == word for entry in entries) for word in _OUTCOMES} for k in (0, 1)]
    both: int = sum(entry["both_proven"] for entry in entries)
    if as_json:
        named = [{"model": model.name, **count} for model, count in zip(models, counts, strict=True)]
        typer.echo(json.dumps({"models": named, "both_proven": both, "of": len(entries), "inputs": entries}, indent=1))
    else:
        off = dict.fromkeys(network[cases[0].shape].taken_off for network in networks)
        tell(taken_off(name) for name in off if name is not None)
        tell(() if all(entry["rigorous"] for entry in entries) else (ROUNDING_NOTE,))
        ball = cases[0].around(query.norm, query.eps)
        typer.echo(f"proven for both models: {share(both, len(entries), 'input')} for {ball}")
        for model, count in zip(models, counts, strict=True):
            typer.echo(f"{model.name}: " + "; ".join(f"{word}: {number}" for word, number in count.items()))
        typer.echo(
            f"over all balls, in exact arithmetic: {_differ([entry['largest_difference'] for entry in entries])}"
        )
    return both == len(entries)


def _compare(case: SampleInBall, networks: Sequence[Graph], model: Model, query: PairQuery) -> dict[str, Any]:
    first, second = (graph.to(case.x.device, case.x.dtype) for graph in networks)
    at_x = [int(graph(case.x).argmax(1)) for graph in (first, second)]
    aim = at_x[0] if query.target is None else query.target
    entry: dict[str, Any] = {"name": case.name, "label": case.label, "predicted": at_x, "target": aim}
    entry |= {"class": model.title(aim), "eps": case.eps, "norm": query.norm}
    try:
        found = compare_models(first, second, case.x, case.ball, bounds=query.method, target=aim)
    except BoundError as error:
        nothing = {"verdicts": ["undecided", "undecided"], "both_proven": False, "difference": None}
        return {**entry, **nothing, "largest_difference": None, "rigorous": False, "why": str(error)}
    return {
        **entry,
        "verdicts": list(found.verdicts[0]),
        "both_proven": bool(found.both_proven),
        "difference": [[finite(end) for end in ends] for ends in found.difference[0].tolist()],
        "largest_difference": finite(float(found.largest_difference)),
        "rigorous": found.first.rigorous and found.second.rigorous,
        "why": None,
    }


def _line(entry: dict[str, Any], models: Sequence[Model]) -> str:
    said = []
    for model, verdict, predicted in zip(models, entry["verdicts"], entry["predicted"], strict=True):
        other = "" if predicted == entry["target"] else f" (predicts {models[0].title(predicted)})"
        said.append(f"{model.name}: {verdict}{other}")
    why = "" if entry["why"] is None else f" ({entry['why']})"
    return f"{entry['name']}: class {entry['class']}; {'; '.join(said)}; {_differ([entry['largest_difference']])}{why}"


def _differ(bounds: Sequence[float | None]) -> str:
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return "no bound of the difference of the logits"
    return f"logits differ by at most {difference_text(max(known))}"
