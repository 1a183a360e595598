"""proofmap run: a whole data set explained, on this machine or on a cluster."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Source
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import InputError
from proofmap.registry import COMPARED, METHODS

if TYPE_CHECKING:
    from proofmap.inputs.ball import Ball
    from proofmap.runs import Engine
    from proofmap.sources import Preparation

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Explaining:
    """How samples are explained: by which method, in which ball, with which settings."""

    method: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(COMPARED)}: --method eva", autocompletion=o.among(COMPARED)),
        texts.one_of(COMPARED, "--method"),
    ] = "eva"
    ball: o.BallOptions
    scoring: o.Scoring
    settings: Annotated[
        list[str] | None,
        unset(
            "What else the method takes, once for each: --set samples=50 --set precision=float16.",
            "--set",
            metavar="NAME=VALUE",
        ),
        texts.Check(texts.settings),
    ] = None
    certificates: Annotated[
        bool,
        typer.Option("--certificates", help="Write for every sample what is proven of it as a file others can check."),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """What the method takes beyond a ball and groups."""
        values = {name: _value(name, text) for name, text in texts.settings(self.settings or []).items()}
        return values | o.bounds_of(self.scoring.bounding, self.method, METHODS[self.method].kind)

    def around(self, shape: tuple[int, ...], preparation: Preparation) -> Ball:
        """The ball; methods that look for no adversaries have no radius, and know its domain alone."""
        from proofmap.inputs.ball import Ball

        ball, eps = self.ball.or_radius("auto").around(shape, preparation), self.ball.eps
        if METHODS[self.method].ball:
            return ball
        if eps is not None:
            raise InputError(
                f"got --eps {eps} for {self.method}, which looks at no ball, expected it with eva and its like"
            )
        return Ball(0.0, domain=ball.domain)


@dataclass(frozen=True)
class Selection:
    """Which samples, in which order."""

    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Pictures, arrays (npy, npz), tables (csv), folders of these, or MNIST's and CIFAR-10's own files.",
            show_default=False,
        ),
    ]
    limit: o.Limit = None
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Draw the order of the samples, before --limit.")] = False
    seed: Annotated[int, typer.Option(help="Of the order, and of methods that draw samples: --seed 3")] = 0


@dataclass(frozen=True)
class Computing:
    """Who computes, and how much at once."""

    engine: Annotated[
        str,
        typer.Option(
            help="local, in this process; or --engine ray, on a Ray cluster.", autocompletion=o.among(names.ENGINES)
        ),
        texts.one_of(names.ENGINES, "--engine"),
    ] = "local"
    address: Annotated[
        str | None,
        unset(
            "Of the Ray cluster: --address 10.0.0.1:6379. By default the one this machine is part of, else this "
            "machine."
        ),
    ] = None
    gpus_per_worker: Annotated[
        float,
        typer.Option(help="With --engine ray --device cuda: --gpus-per-worker 1, or 0.5 for two workers on a GPU."),
    ] = 0.0
    workers: Annotated[
        int | None, unset("With --engine ray: --workers 8. By default as many as there is room for.")
    ] = None
    chunk: Annotated[
        int, typer.Option(help="Samples that are explained together and written as one file: --chunk 20")
    ] = 50
    threads: Annotated[
        int, typer.Option(help="Of torch, in each worker; the last digits depend on it: --threads 16")
    ] = 1
    memory: Annotated[
        float,
        typer.Option(help="GiB that a worker may use for bounds; the last digits depend on it: --memory 8"),
        texts.Check(texts.gigabytes),
    ] = 4.0

    def where(self) -> Engine:
        """This process, or a cluster, without which its options are refused."""
        if self.engine == "local" and (self.address is not None or self.gpus_per_worker or self.workers is not None):
            raise InputError("got --address, --gpus-per-worker or --workers without a cluster, expected --engine ray")
        from proofmap.runs import Local, Ray

        return Ray(self.address, self.gpus_per_worker, self.workers) if self.engine == "ray" else Local()


def run(
    *,
    model: Annotated[
        str,
        unset(
            "--model net.onnx; module.py:function, a function that returns a torch module; or zoo:mnist_mlp.",
            "--model",
            autocompletion=names.models,
        ),
    ],
    out: Annotated[
        Path,
        unset(
            "The folder for the results: --out results. Started again with the same arguments, it does what is missing."
        ),
    ],
    explaining: Explaining,
    selection: Selection,
    computing: Computing,
    as_json: o.Json = False,
    source: Source,
    device: o.Device = "cpu",
) -> None:
    """Explain every sample of a data set, and sum up: how many are certified, how the overlaps are spread.

    It may be killed at any moment: started again it goes on, and ends with the same files to the last byte. A sample
    that cannot be read is recorded with its reason. Exit code 1: not one could be explained.

    For instance: proofmap run pictures --model net.onnx --eps 2/255 --groups grid:12 --out results
    """
    engine = computing.where()

    from proofmap.runs import Job, shape_of
    from proofmap.runs import run as explain_all
    from proofmap.sources import open_samples

    settings = explaining.arguments()
    explained = source.model(model)
    samples = open_samples(selection.data, explained.preparation)
    o.tell(samples.notes)
    job = Job(
        method=explaining.method,
        ball=explaining.around(shape_of(samples, explained), explained.preparation),
        groups=o.groups_of(explaining.scoring.groups),
        settings=settings,
        target=o.class_of(explaining.scoring.target, explained.classes),
        device=device,
        chunk=computing.chunk,
        threads=computing.threads,
        memory=texts.gigabytes(computing.memory),
    )
    cores = os.cpu_count() or 1
    if computing.engine == "local" and job.device == "cpu" and job.threads == 1 < cores:
        typer.echo(f"one of {cores} cores is used: --engine ray or --threads {cores} takes all", err=True)
    limit, shuffle, seed = selection.limit, selection.shuffle, selection.seed
    totals = explain_all(
        samples,
        explained,
        job,
        out,
        limit=limit,
        shuffle=shuffle,
        seed=seed,
        engine=engine,
        certified=explaining.certificates,
    )
    typer.echo(json.dumps(totals.json(), indent=1) if as_json else totals.text())
    if totals.guarantee == "certified" and not totals.rigorous:
        o.tell((o.ROUNDINGS,))
    if not totals.explained:
        raise typer.Exit(1)


def _value(name: str, text: str) -> Any:
    if name == "precision":
        import torch

        kind = getattr(torch, text, None)
        if not isinstance(kind, torch.dtype):
            raise InputError(f"got --set precision={text}, expected float16, bfloat16 or float32")
        return kind
    try:
        return json.loads(text)
    except ValueError:
        return text
