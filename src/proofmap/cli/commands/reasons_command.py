"""The command `proofmap reasons`: the groups of values that decide, or the smallest sets that can change the class."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.output_options import OutputOptions
from proofmap.errors import InputError
from proofmap.registry import READY

_ORDERS = tuple(name for name in READY if name not in ("sufficient", "contrastive"))


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """Options of the decision, or of the change of one output that is allowed."""

    target: o.Target = None
    explained: OutputOptions
    within: Annotated[
        float | None,
        unset("With --output: the change that is allowed: --within 0.5"),
        texts.above_zero("--within", "0.5"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Changing:
    """Options of contrastive sets."""

    contrastive: Annotated[
        bool,
        typer.Option(
            "--contrastive",
            help="Find the smallest sets of values that can change the decision instead, each with the changed input.",
        ),
    ] = False
    to: Annotated[
        str | None,
        unset("With --contrastive: the class that the decision has to change to, by number or name: --to 3", "--to"),
    ] = None
    sets: Annotated[
        int,
        typer.Option(
            help="With --contrastive: the largest number of sets per input; further sets share no value: --sets 3",
            min=1,
        ),
    ] = 1

    def refuse_others(self, *, target: str | None, order: str | None) -> None:
        """Raise InputError for options that do not fit together."""
        if not self.contrastive:
            if self.to is not None:
                raise InputError("got --to without --contrastive, expected both: --contrastive --to 3")
            if self.sets != 1:
                raise InputError("got --sets without --contrastive, expected both: --contrastive --sets 3")
            return
        if target is not None:
            raise InputError(
                "got --target with --contrastive, expected the class that the predicted one has to change to: "
                f"--to {target}"
            )
        if order is not None:
            raise InputError(f"got --order {order} with --contrastive, expected one of them: it orders kept groups")


@dataclass(frozen=True)
class Freeing:
    """Options of the groups, their order and the proofs."""

    groups: o.Groups = None
    order: Annotated[
        str | None,
        unset(
            f"Free groups in the order of a method's scores, small ones first: --order eva, {', '.join(_ORDERS)}. By "
            "default the prices of a linear program, which give smaller sets."
        ),
        texts.one_of(_ORDERS, "--order"),
    ] = None
    bounds: Annotated[
        str | None,
        unset(
            "The bounding method of the proofs: --bounds backward. By default exact, a search, with one tree for all "
            "questions about an input."
        ),
        texts.Check(texts.bounds, names.BOUND_NAMES),
    ] = None
    seconds: Annotated[
        float,
        typer.Option(help="The time limit per input in seconds. Groups that are left then are undecided: --seconds 60"),
        texts.above_zero("--seconds", "60"),
    ] = 10.0
    rigorous: Annotated[
        bool | None,
        unset(
            "Proofs also cover all rounding errors of the model in float32. By default on for all models whose "
            "rounding errors can be bounded.",
            "--rigorous/--no-rigorous",
        ),
    ] = None


def reasons(
    *,
    ball: o.BallOptions,
    freeing: Freeing,
    deciding: Deciding,
    changing: Changing,
    limit: o.Limit = None,
    out: Annotated[Path, typer.Option(help="The folder for pictures and .proofmap files: --out reasons")] = Path("out"),
    as_json: o.Json = False,
    subject: Subject,
) -> None:
    """Find small sets of values that decide: if they keep their values, no change of the others changes the class.

    This is proven for the whole ball. Each kept group is necessary, with an adversarial example, or undecided. With
    --contrastive, find the smallest sets of values that can change the class, with the changed inputs.

    For instance: proofmap reasons zoo:mnist_mlp digit.png --eps 0.02 --groups grid:7 --out reasons
    """
    output = deciding.explained.objective()
    changing.refuse_others(target=deciding.target, order=freeing.order)
    if output is not None and changing.to is not None:
        raise InputError("got --to with --output, expected one of them: an output has no class")
    if output is not None and deciding.target is not None:
        raise InputError("got --target with --output, expected one of them: an output has no class")
    if output is not None and deciding.within is None:
        raise InputError("got --output without --within, expected the change that is allowed: --within 0.5")
    if output is None and deciding.within is not None:
        raise InputError("got --within without --output, expected the output that may change by this: --output 0")
    if output is not None and freeing.order is not None:
        raise InputError(f"got --order {freeing.order} with --output, expected one of them: it scores decisions")
    if texts.is_automatic(ball.eps) and changing.contrastive:
        raise InputError(
            "got --eps auto, expected a number: within the largest proven radius no set changes the decision"
        )
    if texts.is_automatic(ball.eps):
        raise InputError(
            "got --eps auto, expected a number: within the largest proven radius every value may move, so that none "
            "has to be kept"
        )

    from proofmap.cli.explain_samples import ExplainTask
    from proofmap.cli.find_reasons import find_changes, find_reasons
    from proofmap.cli.options.named_inputs import groups_of_inputs

    settings: dict[str, Any] = {"seconds": freeing.seconds, "rigorous": freeing.rigorous}
    if freeing.bounds is not None:
        settings["bounds"] = o.Bounding(freeing.bounds).method
    if output is not None:
        settings |= {"objective": output, "within": deciding.within}
    asked = {"--to": changing.to} if changing.contrastive else {"--target": deciding.target}
    task = ExplainTask.read(subject, ball, limit, asked, out, default=None, labelled=output is None)
    settings["groups"] = groups_of_inputs(freeing.groups, task.model.parts)
    if freeing.order is not None and task.model.parts:
        raise InputError(f"got --order {freeing.order} for several inputs, expected none: prices order the groups")
    if changing.contrastive:
        find_changes(task, settings | {"sets": changing.sets}, as_json)
    else:
        find_reasons(task, settings, freeing.order, as_json)
