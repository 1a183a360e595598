"""The command `proofmap explain`: an attribution map and a .proofmap file for each input."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.output_options import OutputOptions
from proofmap.errors import InputError
from proofmap.registry import EXPLAINER_ENTRIES, EXPLAINERS


@dataclass(frozen=True)
class Written:
    """Options of the output files."""

    out: Annotated[Path, typer.Option(help="The folder for pictures and .proofmap files: --out maps")] = Path("out")
    certificate: Annotated[
        Path | None,
        unset(
            "Write a certificate of the proof for one input, with the input and the network beside it, so that others "
            "can check it: --certificate digit.proof"
        ),
    ] = None
    as_json: o.Json = False


@dataclass(frozen=True)
class ScoredQuestion:
    """Options of what is explained: the decision or one output, and the groups that are scored."""

    scoring: o.Scoring
    explained: OutputOptions


def explain(
    *,
    ball: o.BallOptions,
    what: ScoredQuestion,
    method: Annotated[
        str | None,
        unset(
            f"The method: {', '.join(EXPLAINERS)}. eva and targeted prove their bounds. --method targeted shows which "
            "changes lead to the class --target. probable needs --norm 2 and explains the vote over noisy copies. By "
            "default eva; without --eps, a method that fits the time."
        ),
        texts.one_of(EXPLAINERS, "--method"),
    ] = None,
    within: Annotated[
        float,
        typer.Option(help="Without --eps and --method: the time limit per input in seconds: --within 60"),
        texts.above_zero("--within", "60"),
    ] = 60.0,
    rigorous: Annotated[
        bool | None,
        unset(
            "With eva or targeted: proofs also cover all rounding errors of the model in float32. --no-rigorous is "
            "faster. By default on for all models whose rounding errors can be bounded.",
            "--rigorous/--no-rigorous",
        ),
    ] = None,
    limit: o.Limit = None,
    written: Written,
    subject: Subject,
) -> None:
    """Explain decisions: print a bound over the ball of each input, and draw a map of the parts that matter.

    For instance: proofmap explain zoo:mnist_mlp digit.png --eps 0.02 --groups grid:12 --out maps

    Without --eps and --method, Proofmap chooses a map and the strongest proof that fit into --within, and says why.
    """
    certificate, scoring = written.certificate, what.scoring
    bounding = scoring.bounding
    if certificate is not None:
        _check_certificate(certificate, method)
        method = method or "eva"
    output = what.explained.objective()
    if output is not None and method not in (None, "eva", "empirical"):
        raise InputError(f"got --output with --method {method}, expected eva or empirical: they explain single outputs")
    if output is not None and scoring.target is not None:
        raise InputError("got --target with --output, expected one of them: an output has no class")
    automatic = (
        output is None
        and method is None
        and bounding.bounds is None
        and rigorous is None
        and ball.chosen
        and not subject.boxed
    )
    method = method or "eva"
    if EXPLAINER_ENTRIES[method].target and scoring.target is None:
        raise InputError(f"got --method {method} alone, expected the class to move to as well: give --target")

    from proofmap.cli.explain_samples import ExplainTask, explain_automatically, explain_by_method
    from proofmap.cli.options.named_inputs import groups_of_inputs

    kind = EXPLAINER_ENTRIES[method].kind
    settings = o.bounds_of(bounding, method, kind)
    if rigorous is not None:
        o.check_proves(method, kind, rigorous)
        settings["rigorous"] = rigorous
    if output is not None:
        settings["objective"] = output
    task = ExplainTask.read(subject, ball, limit, scoring.target, written.out, labelled=output is None)
    groups = None if automatic and scoring.groups is None else groups_of_inputs(scoring.groups, task.model.parts)
    if automatic:
        explain_automatically(task, groups, within, written.as_json)
    else:
        explain_by_method(task, method, {"groups": groups, **settings}, certificate, written.as_json)


def _check_certificate(path: Path, method: str | None) -> None:
    """Refuse methods and file names without certificates, before anything is read."""
    if method not in (None, "eva", "targeted", "sufficient", "contrastive"):
        raise InputError(
            f"got --certificate with --method {method}, expected eva, targeted, sufficient or contrastive: certificates"
            " are about their overlaps and sets"
        )
    if path.suffix != ".proof":
        raise InputError(f"got --certificate {path}, expected a name that ends in .proof")
