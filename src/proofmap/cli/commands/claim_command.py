"""The command `proofmap claim`: write proven bounds as VNN-LIB questions for other verifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import ModelOptions
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.saved_explanations import saved
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.claims.claim import Which
    from proofmap.sources import Model


def claim(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The explained model. Or only a folder of proofmap run: the folder names its model.",
            show_default=False,
            autocompletion=names.models,
        ),
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Files that proofmap explain wrote (.proofmap), folders of these, or one folder of proofmap run.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        unset(
            "For a folder of proofmap run: the inputs that were explained, --data digits.npz. A run with "
            "--certificates contains its inputs."
        ),
    ] = None,
    groups: Annotated[
        str,
        typer.Option(
            help="Groups u whose overlap AO(B_u) is claimed in addition to AO(B): --groups all, top or none. top "
            "takes the ten groups with the highest scores."
        ),
        texts.one_of(names.CLAIMED_GROUPS, "--groups"),
    ] = "top",
    out: Annotated[Path, typer.Option(help="The output folder: --out claims")] = Path("claims"),
    source: ModelOptions,
) -> None:
    """Write each proven bound as a question for other verifiers: a network in ONNX and a property in VNN-LIB.

    A verifier reads a file of OUT/vnnlib and its network in OUT/onnx. Its answer `unsat` confirms the claim.
    OUT/instances.csv lists all questions in the format of VNN-COMP. For a folder of proofmap run, existing files are
    kept: an interrupted command continues when it is started again.

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
        _claim_explanations(source.model(model), inputs, which, out)
    elif len(given) > 2 or len(runs) > 1 or given[-1] != runs[0]:
        raise InputError(
            f"got {runs[0]} beside other inputs, expected one run alone: write its claims to its own folder"
        )
    else:
        _claim_run(runs[0], None if len(given) == 1 else model, data or [], source, which, out)


def _claim_explanations(model: Model, inputs: Sequence[Path], which: Which, out: Path) -> None:
    from proofmap.claims.claim import claims_of
    from proofmap.claims.claim_files import LIST, VnnlibFiles
    from proofmap.cli.explain_output import plain
    from proofmap.explainers import Explanation
    from proofmap.explainers.statements.explained_inputs import INPUTS
    from proofmap.report.attacked_overlaps import checked
    from proofmap.storage.records import write_atomic
    from proofmap.text.wording import plural

    explanations = [(plain(file.stem), Explanation.load(file)) for path in inputs for file in saved(path)]
    _check_names([name for name, _ in explanations])
    questions, written = VnnlibFiles(model), dict[str, bytes]()
    for name, e in explanations:
        graph = checked(model.network, e.x, name, e.model_hash, e.settings.get(INPUTS))
        for k, one in claims_of(e, name, graph.classes, which):
            written |= questions.files(one, e.x[k], f"{name}, sample {k}", graph, e.model_hash)
    written[LIST] = questions.listed
    o.make_folder(out)
    for place, content in written.items():
        write_atomic(out / place, content, ours=True)
    typer.echo(f"wrote {plural(len(questions.instances), 'claim')} to {out}")


def _claim_run(
    run: Path, model: str | None, data: Sequence[Path], source: ModelOptions, which: Which, out: Path
) -> None:
    from proofmap.claims.run_claims import RunClaims, stored_inputs, verified_inputs
    from proofmap.cli.explain_output import stems
    from proofmap.runs import Results
    from proofmap.sources import open_samples
    from proofmap.text.wording import plural

    results = Results.open(run)
    results.check()
    explained = source.model(model or results.manifest.model.name)
    inputs = verified_inputs(results, open_samples(data, explained.preparation)) if data else stored_inputs(results)
    if inputs is None:
        raise InputError(f"{run} does not contain its inputs, expected --data with the inputs that were explained")
    count = RunClaims(results, explained, inputs, stems(results.samples), which).write(out)
    failed = f"; {plural(len(results.reasons), 'sample')} could not be explained" if results.reasons else ""
    open_ = "" if results.complete else "; the run is not finished"
    typer.echo(f"wrote {plural(count, 'claim')} of {plural(len(results), 'sample')} to {out}{open_}{failed}")


def _check_names(found: Sequence[str]) -> None:
    """Refuse two explanations with the same name: their files would overwrite each other."""
    twice = next((name for name, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"got two explanations named {twice}, expected different names: write them to two folders")
