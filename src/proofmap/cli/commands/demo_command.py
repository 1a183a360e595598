"""The command `proofmap demo`: explain packaged MNIST digits of a packaged network, with proofs, in seconds."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli.options.shared_options import make_folder

if TYPE_CHECKING:
    from torch import Tensor

    from proofmap.explainers import Explanation, Origin
    from proofmap.inputs.ball import Ball
    from proofmap.sources import Model

_EPS = 0.015  # the radius of the ball, in units of the pixel range [0, 1]
_DIGITS = 6  # digits to explain
_SEARCH_SECONDS = 60.0  # time limit of the exact search, for a digit that one pass of bounds does not prove
_STOP_BELOW = -0.5  # the search stops when AO(B) is proven to be at most this
_COMPARED_DIGITS = 16  # digits on which methods are compared
_METHODS = ("eva", "first-order", "saliency", "integrated-gradients")
_CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the report, pictures and .proofmap files: --out demo")
    ] = Path("out/demo"),
) -> None:
    """Explain handwritten digits of the package: print the proven bounds, and write a report with the maps.

    For instance: proofmap demo --out demo
    """
    import torch

    from proofmap import data
    from proofmap.bench import compare
    from proofmap.explainers import EVA, TargetedEVA
    from proofmap.explainers.explanation import format_overlap
    from proofmap.inputs.ball import Ball
    from proofmap.report import report
    from proofmap.sources import read_model

    started = time.perf_counter()
    make_folder(out)
    model = read_model("zoo:mnist_mlp")
    network = model.network
    images, labels = data.digits()
    ball = Ball(_EPS, domain=(0.0, 1.0))

    digits = EVA(network, ball, progress=False).explain(images[:_DIGITS])
    open_ = digits.overlap.full >= 0
    digits = _searched(digits, open_, model, ball)
    digits = replace(digits, origin=_origin(model, torch.arange(_DIGITS), labels))
    typer.echo(f"{_DIGITS} digits; every pixel may change by up to {_EPS} within [0, 1], all at once")
    typer.echo(f"{'digit':>5}  {'network says':<12}  {'AO(B)':>6}  {'answer':<9}  {'by':<6}  most important pixel")
    for k in range(_DIGITS):
        typer.echo(_line(digits, k, int(labels[k]), "search" if open_[k] else "bounds"))
    typer.echo(
        "AO(B): a proven bound of the lead of any other class in the whole ball. Below 0, no class can get ahead."
    )
    typer.echo(
        "A pixel's score is the drop of that bound when the pixel cannot change. The score itself is not proven."
    )

    which = (labels == 4).nonzero().flatten()[:3]
    fours = TargetedEVA(network, ball, progress=False).explain(images[which], target=9)
    fours = replace(fours, origin=_origin(model, which, labels))
    nines = ", ".join(format_overlap(float(value), "certified") for value in fours.overlap.full)
    typer.echo(f"Three 4s, if ink is only added: the lead of 9 is proven to be at most {nines}")

    table = compare(network, images[:_COMPARED_DIGITS], _METHODS, ball=ball, progress=False)
    table = replace(table, title=f"{model.name} on {_COMPARED_DIGITS} digits of the package")
    for name, explanation in (("digits", digits), ("four-to-nine", fours)):
        explanation.save(out / f"{name}.proofmap")
        explanation.plot().savefig(out / f"{name}.png")
    named = [("digits", digits), ("four-to-nine", fours)]
    report(out / "report.html", named, table=table, model=model)
    typer.echo(f"Open {out / 'report.html'}; pictures and .proofmap files are beside it.")
    typer.echo(f"{time.perf_counter() - started:.1f} s in all, {digits.seconds / _DIGITS:.2f} s a digit for its map")


def _origin(model: Model, which: Tensor, labels: Tensor) -> Origin:
    """Return the origin of packaged digits."""
    from proofmap.explainers import Origin, Source

    samples = tuple(Source(f"digit {k} of the package") for k in which.tolist())
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    return Origin(model.source, samples, tuple(labels[which].tolist()), _CLASSES, made=made)


def _searched(e: Explanation, open_: Tensor, model: Model, ball: Ball) -> Explanation:
    """Return the same maps, with AO(B) of the undecided samples bounded by branch and bound.

    The ball B_u of every group is a subset of B, so the new bound of AO(B) is also a bound of AO(B_u).
    """
    from proofmap.bounds import Exact
    from proofmap.verify.overlap import overlap

    if not bool(open_.any()):
        return e
    search = Exact(seconds=_SEARCH_SECONDS)
    closed = overlap(model.network, e.x[open_], ball, target=e.target[open_], bounds=search, enough=_STOP_BELOW)
    full = e.overlap.full.clone()
    full[open_] = full[open_].minimum(closed.full)
    bounded = replace(e.overlap, full=full, frozen=e.overlap.frozen.minimum(full[:, None]))
    how = f"{e.settings['bounds']}; of AO(B) where that is not below 0: {search}"
    return replace(e, overlap=bounded, settings={**e.settings, "bounds": how})


def _line(e: Explanation, k: int, label: int, how: str) -> str:
    """Return one row of the printed table."""
    from proofmap.explainers.explanation import format_overlap
    from proofmap.explainers.statements.explained_verdict import verdict_of
    from proofmap.text.verdict_wording import FIRST_WORDS

    worst, best = float(e.overlap.full[k]), int(e.scores[k].argmax())
    row, column = divmod(best, e.x.shape[-1])
    answer = FIRST_WORDS[verdict_of(e, k).outcome]
    bound, predicted = format_overlap(worst, "certified"), _CLASSES[int(e.predicted[k])]
    return f"{label:5d}  {predicted:<12}  {bound:>6}  {answer:<9}  {how:<6}  row {row}, column {column}"
