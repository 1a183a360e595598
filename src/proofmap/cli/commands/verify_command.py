"""The command `proofmap verify`: prove or refute decisions over balls, or properties of VNN-LIB files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.output_options import OutputOptions
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.verify.objectives import Output

_EXIT_NOT_PROVEN = 1  # the exit code of a question whose answer is no


@dataclass(frozen=True)
class Changes:
    """Options about the change of one output."""

    explained: OutputOptions
    within: Annotated[
        str | None,
        unset(
            "Prove that no input of the ball changes one output by more, as of a regression network: --within 0.5. "
            "By default the output 0; --output names another."
        ),
        texts.Check(texts.change),
    ] = None

    def output(self, *, boxed: bool, target: str | None, no_radius: bool) -> Output | None:
        """Return the output that --within is about; None without this option."""
        if self.within is None:
            if self.explained.objective() is not None:
                raise InputError(
                    "got --output without --within, expected the largest change that is allowed: --within 0.5"
                )
            return None
        if boxed:
            raise InputError("got --within with a VNN-LIB file, expected none: the file contains the question")
        if target is not None or no_radius:
            raise InputError("got --target or --no-radius with --within, expected none: an output has no class")
        return self.explained.objective(whole=True)


@dataclass(frozen=True)
class Answers:
    """Options of the answers: the files, and the form of the output."""

    out: Annotated[Path, typer.Option(help="The folder for counterexamples: --out points")] = Path("out")
    result: Annotated[
        Path | None, unset("With one VNN-LIB file: write the answer in the format of VNN-COMP: --result r.txt")
    ] = None
    certificate: Annotated[
        Path | None,
        unset(
            "With one VNN-LIB file: write a certificate that the property holds, or of a point that violates it, so "
            "that others can check it: --certificate p.proof"
        ),
    ] = None
    as_json: o.Json = False


def verify(
    *,
    ball: o.BallOptions,
    bounding: o.Bounding,
    target: o.Target = None,
    no_radius: Annotated[
        bool,
        typer.Option(
            "--no-radius", help="Do not search for the largest proven radius. That search takes most of the time."
        ),
    ] = False,
    changes: Changes,
    answers: Answers,
    subject: Subject,
) -> None:
    """Prove that the class is the same for all inputs of a ball, or that the property of a VNN-LIB file holds.

    With a second model before the inputs: prove it for both models, and bound how far their logits can differ.
    With --within, prove that one output changes by no more in the ball.

    Exit code 1: not proven for every input.

    For instance: proofmap verify zoo:mnist_mlp digit.png --eps 0.02, or proofmap verify a.onnx b.onnx digit.png --eps
    0.02
    """
    boxed, out, result, as_json = subject.boxed, answers.out, answers.result, answers.as_json
    other = second_model(subject.inputs)
    if other is not None:
        subject = replace(subject, inputs=subject.inputs[1:])
    _check_result(result, len(subject.inputs) if boxed else 0)
    if answers.certificate is not None:
        from proofmap.cli.property_certificates import check

        check(answers.certificate, subject.inputs, boxed=boxed)
    if boxed:
        if other is not None:
            raise InputError("got two models with a VNN-LIB file, expected samples and --eps: verify each model alone")
        ball.refuse_beside_a_box()
        if target is not None or no_radius:
            raise InputError(
                "got --target or --no-radius with a VNN-LIB file, expected none: the file contains the question"
            )
    elif texts.is_automatic(ball.eps):
        raise InputError("got --eps auto, expected a number such as 0.02 or 2/255: the proven radius is printed anyway")
    output = changes.output(boxed=boxed, target=target, no_radius=no_radius)
    if output is not None and other is not None:
        raise InputError("got --within with two models, expected one: verify the change of each model's output alone")
    if out.exists() and not out.is_dir():
        raise InputError(f"got --out {out}, which is a file, expected a folder: choose another")

    from proofmap.bounds import Backward
    from proofmap.cli.commands.verify_decisions import DecisionQuery, answer_all
    from proofmap.cli.commands.verify_pairs import PairQuery, compare_all, second_of
    from proofmap.cli.commands.verify_properties import decide_files
    from proofmap.cli.counterexample_files import Points
    from proofmap.cli.options.samples_and_balls import read_cases

    method = bounding.method or Backward()
    if boxed:
        place, points = o.device_of(subject.device), Points(out, subject.load(bare=True))
        proven = decide_files(subject.inputs, method, points, result, place, as_json, answers.certificate)
    elif output is not None and changes.within is not None:
        from proofmap.cli.commands.verify_outputs import ChangeQuery, answer_outputs

        model, cases = read_cases(subject, ball)
        asked = ChangeQuery(method, str(ball.eps), ball.norm, output, changes.within, Points(out, model))
        proven = answer_outputs(cases, asked, as_json)
    else:
        model, cases = read_cases(subject, ball)
        aim = o.class_of(target, model.classes)
        if other is not None:
            pair = PairQuery(method, str(ball.eps), ball.norm, aim)
            proven = compare_all(cases, (model, second_of(subject, other, model)), pair, as_json)
        else:
            query = DecisionQuery(method, str(ball.eps), ball.norm, aim, not no_radius, Points(out, model))
            proven = answer_all(cases, query, as_json)
    if not proven:
        raise typer.Exit(_EXIT_NOT_PROVEN)


def second_model(inputs: Sequence[Path]) -> str | None:
    """Return the first input if it names a model: an ONNX file, a function of a module, or a model of the zoo."""
    name = str(inputs[0]) if inputs else ""
    if not (name.lower().endswith(".onnx") or name.startswith("zoo:") or ".py:" in name):
        return None
    if len(inputs) == 1:
        raise InputError(f"got the second model {name} and no inputs, expected inputs after it: a.onnx b.onnx x.npy")
    return name


def _check_result(result: Path | None, count: int) -> None:
    """Refuse a result file that cannot be written, or a number of VNN-LIB files other than one."""
    if result is None:
        return
    if count != 1:
        got = f"with {count} specifications" if count else "without a VNN-LIB file"
        raise InputError(f"got --result {got}, expected one: the file holds the answer to one")
    if result.is_dir() or not result.parent.is_dir():
        what = "it is a folder" if result.is_dir() else f"there is no folder {result.parent}"
        raise InputError(f"got --result {result}, expected a file that can be written: {what}")
