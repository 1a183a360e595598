"""`proofmap explain` on samples: explain each one, write its files, and print a line or a record about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from proofmap.cli import explain_certificates as certificates
from proofmap.cli.explain_output import decided, line, origin, plain, record, stems
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.samples_and_balls import SampleInBall, graphs, read_cases
from proofmap.explainers import Explainer, Explanation
from proofmap.explainers.auto import explain
from proofmap.explainers.statements.explained_inputs import INPUT
from proofmap.graph import Graph
from proofmap.inputs.several_inputs import GroupsOfInputs
from proofmap.registry import EXPLAINER_ENTRIES
from proofmap.sources import Model
from proofmap.text.wording import plural, smoothed, taken_off


@dataclass(frozen=True, eq=False)
class ExplainTask:
    """The samples to explain with their balls, the network for each shape, the class, and the folder for files."""

    model: Model
    cases: Sequence[SampleInBall]
    networks: Mapping[tuple[int, ...], Graph]
    target: int | None
    out: Path

    @classmethod
    def read(
        cls,
        subject: Subject,
        ball: o.BallOptions,
        limit: int | None,
        target: Mapping[str, str | None] | str | None,
        out: Path,
        *,
        default: str | None = "auto",
        labelled: bool = True,
    ) -> ExplainTask:
        """Read the model and the samples, before any work starts.

        target: the class, or a mapping from the option that gives it. default: the radius if none is given. labelled:
        whether labels are classes of the model.
        """
        model, cases = read_cases(subject, ball, default=default if labelled else None, limit=limit)
        cases = cases if labelled else [replace(case, label=None) for case in cases]
        ((option, text),) = (target if isinstance(target, Mapping) else {"--target": target}).items()
        return cls(model, cases, graphs(cases, model), o.class_of(text, model.classes, option), out)

    def named_cases(self) -> Iterator[tuple[SampleInBall, str]]:
        """Create the folder, and yield each sample with the stem of its files."""
        o.make_folder(self.out)
        yield from zip(self.cases, stems([case.name for case in self.cases]), strict=True)

    def save(self, case: SampleInBall, e: Explanation, stem: str) -> tuple[Explanation, dict[str, Any]]:
        """Write the .proofmap file and the picture. Return the explanation with its origin, and its record."""
        whole, file, picture = self.write(case, e, stem)
        return whole, record(case, whole, self.model, file, picture)

    def write(self, case: SampleInBall, e: Explanation, stem: str) -> tuple[Explanation, Path, Path]:
        """Write both files. Return the explanation with its origin, and their paths."""
        whole = replace(e, origin=origin(case, self.model))
        file, picture = self.out / f"{stem}.proofmap", self.out / f"{stem}.map.png"
        whole.save(file)
        whole.plot().savefig(picture)
        if case.several is not None:
            for part in whole.inputs:
                part.plot().savefig(self.out / f"{stem}.{plain(str(part.settings[INPUT]))}.map.png")
        return whole, file, picture

    def finish(self, method: str, records: Sequence[Mapping[str, Any]], as_json: bool) -> None:
        """Print all records as one JSON document, or the number of maps."""
        if as_json:
            typer.echo(json.dumps({"model": self.model.name, "method": method, "inputs": records}, indent=1))
        else:
            typer.echo(f"wrote {plural(len(self.cases), 'map')} to {self.out}")


def explain_by_method(
    task: ExplainTask, method: str, settings: Mapping[str, Any], certificate: Path | None, as_json: bool
) -> None:
    """Explain each sample by one method, and write a certificate of the proof if one is requested."""
    if certificate is not None:
        certificates.check(task.cases, task.networks)
        o.make_folder(certificate.parent)
    explainers: dict[tuple[tuple[int, ...], int], Explainer] = {}
    records = []
    for case, stem in task.named_cases():
        key = (case.shape, id(case.balls))
        if key not in explainers:
            explainers[key] = EXPLAINER_ENTRIES[method].kind(task.networks[case.shape], case.balls, **settings)
        explanation, entry = task.save(case, explainers[key].explain(case.inputs, task.target), stem)
        lines = [line(case, explanation, task.model)]
        if certificate is not None:
            files, said = certificates.write(explanation, certificate)
            entry |= {"certificate": files[0]} if len(files) == 1 else {"certificates": files}
            lines.append(said)
        records.append(entry)
        if not as_json:
            typer.echo("\n".join(lines))
    if not as_json:
        _print_notes(explanation, records)
    task.finish(method, records, as_json)


def _print_notes(e: Explanation, records: Sequence[Mapping[str, Any]]) -> None:
    """Print what holds for all explanations of a method: a layer left out, noisy copies, rounding."""
    if (off := e.settings.get("taken_off")) is not None:
        typer.echo(f"note: {taken_off(off)}")
    if e.guarantee == "probable":
        typer.echo(f"note: {smoothed(e.settings)}")
    if any(entry.get("rigorous") is False for entry in records):
        o.tell((o.ROUNDING_NOTE,))


def explain_automatically(task: ExplainTask, groups: GroupsOfInputs, seconds: float, as_json: bool) -> None:
    """Write a map of each sample, a proof if one fits the time limit, and print the reasons for both choices."""
    records = []
    for case, stem in task.named_cases():
        network, domain = task.networks[case.shape], case.limits
        found = explain(network, case.inputs, target=task.target, groups=groups, domain=domain, seconds=seconds)
        _, entry = task.save(case, found.map, stem)
        proof = None if found.proof is None else task.save(case, found.proof, f"{stem}.proof")[1]
        records.append({**entry, "said": list(found.said), "proof": proof})
        if not as_json:
            typer.echo("\n  ".join([f"{case.name}: {decided(case, found.map, task.model)}", *found.said]))
    task.finish("chosen", records, as_json)
