"""`proofmap reasons` on samples: find the sets of each one, write their files, and print a line or a record."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import typer

from proofmap.cli.explain_output import line
from proofmap.cli.explain_samples import ExplainTask
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.samples_and_balls import SampleInBall
from proofmap.cli.reason_output import contrast_record, reason_record
from proofmap.errors import InputError
from proofmap.explainers import Contrastive, Explanation, Sufficient, as_attributor
from proofmap.explainers.upsampling import group_means
from proofmap.inputs.groups import Groups
from proofmap.text.wording import plural, taken_off


def find_reasons(task: ExplainTask, settings: Mapping[str, Any], order: str | None, as_json: bool) -> None:
    """Find the sufficient set of each sample. order: the method whose scores order the groups."""
    _find(task, lambda case: _found(task, case, settings, order), "sufficient", as_json)


def find_changes(task: ExplainTask, settings: Mapping[str, Any], as_json: bool) -> None:
    """Find the contrastive sets of each sample; the task's target is the class that is asked for."""
    _find(task, lambda case: _changes(task, case, settings), "contrastive", as_json)


def _find(task: ExplainTask, found: Callable[[SampleInBall], Explanation], method: str, as_json: bool) -> None:
    records = []
    for case, stem in task.named_cases():
        e, file, picture = task.write(case, found(case), stem)
        records.append(
            {
                "name": case.name,
                "label": case.label,
                "predicted": int(e.predicted),
                "target": int(e.target),
                "class": task.model.title(int(e.target)),
                "eps": None if case.boxed else e.settings["eps"] if case.several is None else case.eps,
                "norm": e.settings["norm"],
                "domain": e.settings["domain"] if case.several is None else case.domain,
                "rigorous": bool(e.settings.get("rigorous")),
                **(reason_record(e) if e.contrast is None else contrast_record(e, task.model.title)),
                "file": str(file),
                "picture": str(picture),
            }
        )
        if not as_json:
            typer.echo(line(case, e, task.model))
    if as_json:
        typer.echo(json.dumps({"model": task.model.name, "method": method, "inputs": records}, indent=1))
        return
    if (off := e.settings.get("taken_off")) is not None:
        typer.echo(f"note: {taken_off(off)}")
    if not e.settings.get("rigorous"):
        o.tell((o.ROUNDING_NOTE,))
    typer.echo(f"wrote {plural(len(task.cases), f'{method} set')} to {task.out}")


def _changes(task: ExplainTask, case: SampleInBall, settings: Mapping[str, Any]) -> Explanation:
    """Return the explanation of a sample; raise InputError with its name if its decision does not hold."""
    try:
        return Contrastive(task.networks[case.shape], case.ball, **settings).explain(case.x, task.target)
    except InputError as error:
        raise InputError(f"{case.name}: {error}", arguments=error.arguments) from error


def _found(task: ExplainTask, case: SampleInBall, settings: Mapping[str, Any], order: str | None) -> Explanation:
    """Return the explanation of a sample; raise InputError with its name if it has no sufficient set."""
    network = task.networks[case.shape]
    groups: Groups = settings["groups"]
    first = Sufficient(network, case.balls, **settings)
    try:
        if order is None:
            return first.explain(case.inputs, task.target)
        scorer = as_attributor(order, network, ball=case.ball, groups=groups)
        scores = group_means(scorer.attribute(case.x, task.target), groups)
        return Sufficient(network, case.ball, order=scores, **settings).explain(case.x, task.target)
    except InputError as error:
        raise InputError(f"{case.name}: {error}", arguments=error.arguments) from error
