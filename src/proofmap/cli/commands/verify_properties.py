"""`proofmap verify` on VNN-LIB files: prove that the unsafe outputs of each file cannot occur, or find one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import typer

from proofmap.bounds import Method
from proofmap.cli.counterexample_files import Points, values_of
from proofmap.cli.explain_output import stems
from proofmap.cli.options.shared_options import ROUNDING_NOTE, finite, tell
from proofmap.cli.property_certificates import write
from proofmap.errors import FileError, InputError
from proofmap.explainers.explanation import format_overlap
from proofmap.graph import Graph
from proofmap.graph.rewrite.fixed_inputs import with_fixed_signs
from proofmap.graph.rewrite.output_heads import as_model_outputs, shape_of_outputs, without_two_logits
from proofmap.graph.rewrite.probability_head import SINGLE_SIGMOID
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import Model, Preparation, check_shape, read_declared
from proofmap.sources.own_files import VIOLATED
from proofmap.text.wording import plural
from proofmap.verify.property import PropertyAnswer, Region, check, decide

_VNN_COMP_WORDS = {"holds": "unsat", "violated": "sat", "unknown": "unknown"}


def decide_files(
    paths: Sequence[Path],
    method: Method,
    points: Points,
    result: Path | None,
    device: torch.device,
    as_json: bool,
    certificate: Path | None = None,
) -> bool:
    """Print the answer for each file, after all files were read. Return whether all properties hold.

    With `certificate`, there is one file, and its certificate is written there.
    """
    model = points.model
    asked = [_read(path, model) for path in paths]
    entries = []
    names = stems([path.name.removesuffix(".gz") for path in paths])
    with ProgressBar(len(paths), "verify") as bar:
        for path, (regions, graph), stem in zip(paths, asked, names, strict=True):
            with bar.work():
                answer = decide(graph, regions, bounds=method, run=points.run, device=device)
            answered = {**_entry(path.name, regions, answer), "rigorous": answer.rigorous}
            entry = points.keep(answer.point, f"{stem}{VIOLATED}", answered, picture=False)
            entries.append(entry)
            if result is not None:
                result.write_text(_result(answer, model.preparation), encoding="utf-8")
            if not as_json:
                bar.write(f"{path.name}: {answer.verdict}: {_meaning(entry, points.confirmed)}")
            if certificate is not None:
                entry["certificate"], said = write(graph, path, answer, method, model, certificate)
                if not as_json:
                    bar.write(said)
    counts = {word: sum(entry["verdict"] == word for entry in entries) for word in _VNN_COMP_WORDS}
    if as_json:
        whole = {"model": model.name, **counts, "of": len(entries), "specifications": entries}
        typer.echo(json.dumps(whole, indent=1))
    else:
        of = plural(len(entries), "specification")
        typer.echo(f"holds: {counts['holds']} of {of}; violated: {counts['violated']}; unknown: {counts['unknown']}")
        tell(() if all(entry["rigorous"] for entry in entries) else (ROUNDING_NOTE,))
    return all(entry["verdict"] == "holds" for entry in entries)


def _read(path: Path, model: Model) -> tuple[tuple[Region, ...], Graph]:
    specification = read_declared(path, model.preparation)
    regions = specification.regions
    graph = without_two_logits(model.graph(regions[0].lower.float()[None]))
    check_shape(path, "output", specification.output_shape, shape_of_outputs(graph))
    ends = (torch.stack([region.lower for region in regions]), torch.stack([region.upper for region in regions]))
    graph = with_fixed_signs(graph, ends[0].amin(0), ends[1].amax(0))
    if graph.taken_off == SINGLE_SIGMOID or not _only_compares(regions):  # a property of values, not of their order
        graph = as_model_outputs(graph)
    try:
        check(graph, regions)
    except InputError as error:
        raise FileError(f"{path}: {error}") from error
    return regions, graph


def _only_compares(regions: Sequence[Region]) -> bool:
    return all(case.compares for region in regions for case in region.unsafe)


def _entry(name: str, regions: Sequence[Region], answer: PropertyAnswer) -> dict[str, Any]:
    return {
        "name": name,
        "verdict": answer.verdict,
        "boxes": len(regions),
        "cases": sum(len(region.unsafe) for region in regions),
        "open_cases": answer.left,
        "margin": finite(answer.margin),
        "why": answer.why,
    }


def _meaning(entry: dict[str, Any], confirmed: str) -> str:
    cases, left = entry["cases"], entry["open_cases"]
    match entry["verdict"]:
        case "holds":
            what = "its one case cannot" if cases == 1 else f"none of its {cases} cases can"
            box = "its box" if entry["boxes"] == 1 else f"its {entry['boxes']} boxes"
            return f"{what} happen anywhere in {box}, by a margin of {format_overlap(entry['margin'], 'sampled')}"
        case "violated":
            return f"{entry['point']} meets its assertions, {confirmed}"
        case _:
            of = "its one case" if cases == 1 else f"{left} of its {cases} cases"
            why = "" if entry["why"] is None else f" ({entry['why']})"
            return f"{of} {'is' if left == 1 else 'are'} not excluded{why}, and an attack found no counterexample"


def _result(answer: PropertyAnswer, preparation: Preparation) -> str:
    """Return the answer in VNN-COMP's format: one word, and after `sat` the counterexample's inputs and outputs."""
    if answer.point is None or answer.outputs is None:
        return f"{_VNN_COMP_WORDS[answer.verdict]}\n"
    inputs = values_of(answer.point, preparation).astype(float).flatten().tolist()
    named = [("X", k, value) for k, value in enumerate(inputs)]
    named += [("Y", k, value) for k, value in enumerate(answer.outputs.double().tolist())]
    lines = "\n".join(f"({letter}_{k} {value!r})" for letter, k, value in named)
    return f"{_VNN_COMP_WORDS[answer.verdict]}\n({lines})\n"
