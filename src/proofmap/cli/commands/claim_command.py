"""proofmap claim: what was proven, as questions to other verifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Source
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.option_names import among
from proofmap.cli.saved_explanations import saved
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.claims.claim import Which
    from proofmap.sources import Model

__all__ = ["claim"]


def claim(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The model that was explained; or a folder of proofmap run alone, whose model is the one it names.",
            show_default=False,
            autocompletion=names.models,
        ),
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Files that proofmap explain wrote (.proofmap), or folders of them; or one folder of proofmap run.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        unset("Of a run: what was explained, --data digits.npz. One with --certificates has its inputs itself."),
    ] = None,
    groups: Annotated[
        str,
        typer.Option(
            help="Of which AO(B_u) claims go beside AO(B)'s: --groups all, top (the ten that score most) or none.",
            autocompletion=among(names.WHICH),
        ),
        texts.one_of(names.WHICH, "--groups"),
    ] = "top",
    out: Annotated[Path, typer.Option(help="The folder for the questions: --out claims")] = Path("claims"),
    source: Source,
) -> None:
    """Write every proven bound of explanations as a question that other verifiers answer: ONNX and VNN-LIB.

    unsat, for a file in OUT/vnnlib with its network in OUT/onnx, confirms the claim. OUT/instances.csv lists them as
    VNN-COMP does. Of a run, what is there already is left as it is: killed and started again it goes on.

    For instance: proofmap claim zoo:mnist_mlp maps --groups all
    """
    from proofmap.runs.manifest import MANIFEST

    which: Which = groups  # type: ignore[assignment]  # checked as a text
    given = [Path(model), *(inputs or [])]
    runs = [path for path in given if (path / MANIFEST).is_file()]
    if not runs:
        if data:
            raise InputError("got --data without a run, expected it with a folder of proofmap run")
        if not inputs:
            raise InputError(f"got {model} and no INPUT, expected what proofmap explain or proofmap run wrote")
        _of_explanations(source.model(model), inputs, which, out)
    elif len(given) > 2 or len(runs) > 1 or given[-1] != runs[0]:
        raise InputError(
            f"got {runs[0]} beside other inputs, expected one run alone: write its claims to its own folder"
        )
    else:
        _of_run(runs[0], None if len(given) == 1 else model, data or [], source, which, out)


def _of_explanations(model: Model, inputs: Sequence[Path], which: Which, out: Path) -> None:
    from proofmap.claims.claim import claims_of
    from proofmap.claims.claim_files import LIST, Questions
    from proofmap.cli.explain_output import plain
    from proofmap.explainers import Explanation
    from proofmap.report.two_sided_bounds import checked
    from proofmap.storage.records import write
    from proofmap.text.wording import plural

    explanations = [(plain(file.stem), Explanation.load(file)) for path in inputs for file in saved(path)]
    _check_names([name for name, _ in explanations])
    questions, written = Questions(model), dict[str, bytes]()
    for name, e in explanations:
        graph = checked(model.network, e.x, name, e.model_hash)
        for k, one in claims_of(e, name, graph.classes, which):
            written |= questions.files(one, e.x[k], f"{name}, sample {k}", graph, e.model_hash)
    written[LIST] = questions.listed
    o.make_folder(out)
    for place, content in written.items():
        write(out / place, content, ours=True)
    typer.echo(f"wrote {plural(len(questions.instances), 'claim')} to {out}")


def _of_run(run: Path, model: str | None, data: Sequence[Path], source: Source, which: Which, out: Path) -> None:
    from proofmap.claims.run_claims import RunClaims, given, kept
    from proofmap.cli.explain_output import stems
    from proofmap.runs import Results
    from proofmap.sources import open_samples
    from proofmap.text.wording import plural

    results = Results.open(run)
    results.check()
    explained = source.model(model or results.manifest.model.name)
    inputs = given(results, open_samples(data, explained.preparation)) if data else kept(results)
    if inputs is None:
        raise InputError(f"{run} does not hold its inputs, expected --data with what was explained")
    count = RunClaims(results, explained, inputs, stems(results.samples), which).write(out)
    failed = f"; {plural(len(results.reasons), 'sample')} could not be explained" if results.reasons else ""
    open_ = "" if results.complete else ", of a run that is not finished"
    typer.echo(f"wrote {plural(count, 'claim')} of {plural(len(results), 'sample')} to {out}{open_}{failed}")


def _check_names(found: Sequence[str]) -> None:
    """Two files of one name would be written over each other."""
    twice = next((name for name, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"got two explanations named {twice}, expected different names: write them to two folders")
