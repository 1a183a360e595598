"""proofmap demo: real digits and a trained network from the package, explained with proofs in a few seconds."""

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

__all__ = ["demo"]

_EPS = 0.015
_COUNT = 6  # digits to explain
_SEARCH_SECONDS = 60.0  # time limit of the search for a digit that bounds alone leave open
_ENOUGH = -0.5  # the search ends once AO(B) is proven to be at most this
_COMPARED = 16  # digits to compare methods on
_METHODS = ("eva", "first-order", "saliency", "integrated-gradients")
_CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the report, pictures and files: --out demo")] = Path(
        "out/demo"
    ),
) -> None:
    """Explain digits that come with the package: print what was proven, and write a report with the maps.

    For instance: proofmap demo --out demo
    """
    import torch

    from proofmap import data
    from proofmap.bench import compare
    from proofmap.explainers import EVA, TargetedEVA
    from proofmap.explainers.explanation import rounded
    from proofmap.inputs.ball import Ball
    from proofmap.report import report
    from proofmap.sources import read_model

    started = time.perf_counter()
    make_folder(out)
    model = read_model("zoo:mnist_mlp")
    network = model.network
    images, labels = data.digits()
    ball = Ball(_EPS, domain=(0.0, 1.0))

    digits = EVA(network, ball, progress=False).explain(images[:_COUNT])
    open_ = digits.overlap.full >= 0
    digits = _searched(digits, open_, model, ball)
    digits = replace(digits, origin=_origin(model, torch.arange(_COUNT), labels))
    typer.echo(f"{_COUNT} digits; every pixel may move by {_EPS}, inside [0, 1], in any way at all")
    typer.echo(f"{'digit':>5}  {'network says':<12}  {'AO(B)':>6}  {'answer':<9}  {'by':<6}  most important pixel")
    for k in range(_COUNT):
        typer.echo(_line(digits, k, int(labels[k]), "search" if open_[k] else "bounds"))
    typer.echo("AO(B): proven, no other class gets further ahead than that in the whole ball; below 0: none can.")
    typer.echo("A pixel's score is how far that bound falls when the pixel may not move: it is not itself proven.")

    which = (labels == 4).nonzero().flatten()[:3]
    fours = TargetedEVA(network, ball, progress=False).explain(images[which], target=9)
    fours = replace(fours, origin=_origin(model, which, labels))
    nines = ", ".join(rounded(float(value), "certified") for value in fours.overlap.full)
    typer.echo(f"Three 4s, by adding ink alone: proven, 9 gets no further ahead than {nines}")

    table = compare(network, images[:_COMPARED], _METHODS, ball=ball, progress=False)
    table = replace(table, title=f"{model.name} on {_COMPARED} digits of the package")
    for name, explanation in (("digits", digits), ("four-to-nine", fours)):
        explanation.save(out / f"{name}.proofmap")
        explanation.plot().savefig(out / f"{name}.png")
    named = [("digits", digits), ("four-to-nine", fours)]
    report(out / "report.html", named, table=table, model=model)
    typer.echo(f"Open {out / 'report.html'}; pictures and .proofmap files are beside it.")
    typer.echo(f"{time.perf_counter() - started:.1f} s in all, {digits.seconds / _COUNT:.2f} s a digit for its map")


def _origin(model: Model, which: Tensor, labels: Tensor) -> Origin:
    """Where digits of the package come from."""
    from proofmap.explainers import Origin, Source

    samples = tuple(Source(f"digit {k} of the package") for k in which.tolist())
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    return Origin(model.source, samples, tuple(labels[which].tolist()), _CLASSES, made=made)


def _searched(e: Explanation, open_: Tensor, model: Model, ball: Ball) -> Explanation:
    """The same maps, with AO(B) of the open samples bounded by branch and bound until their decision is proven.

    The ball of every group is a part of B, so that the new bound of AO(B) is one of AO(B_u) too.
    """
    from proofmap.bounds import Exact
    from proofmap.verify.overlap import overlap

    if not bool(open_.any()):
        return e
    search = Exact(seconds=_SEARCH_SECONDS)
    closed = overlap(model.network, e.x[open_], ball, target=e.target[open_], bounds=search, enough=_ENOUGH)
    full = e.overlap.full.clone()
    full[open_] = full[open_].minimum(closed.full)
    bounded = replace(e.overlap, full=full, frozen=e.overlap.frozen.minimum(full[:, None]))
    how = f"{e.settings['bounds']}; of AO(B) where that is not below 0: {search}"
    return replace(e, overlap=bounded, settings={**e.settings, "bounds": how})


def _line(e: Explanation, k: int, label: int, how: str) -> str:
    """One row of the table."""
    from proofmap.explainers.explanation import rounded

    worst, best = float(e.overlap.full[k]), int(e.scores[k].argmax())
    row, column = divmod(best, e.x.shape[-1])
    answer = "proven" if worst < 0 else "undecided"
    bound, predicted = rounded(worst, "certified"), _CLASSES[int(e.predicted[k])]
    return f"{label:5d}  {predicted:<12}  {bound:>6}  {answer:<9}  {how:<6}  row {row}, column {column}"
