"""The command `proofmap run`: explain a whole data set, on this machine or on a Ray cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import ModelOptions
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.output_options import OutputOptions
from proofmap.errors import InputError
from proofmap.registry import COMPARED, EXPLAINER_ENTRIES

if TYPE_CHECKING:
    from proofmap.inputs.several_inputs import Balls, InputPart
    from proofmap.runs import Engine
    from proofmap.sources import Preparation


@dataclass(frozen=True, kw_only=True)
class Explaining:
    """Options of the explanation: the method, the ball and further settings."""

    method: Annotated[
        str,
        typer.Option(help=f"The method, one of {', '.join(COMPARED)}: --method eva"),
        texts.one_of(COMPARED, "--method"),
    ] = "eva"
    ball: o.BallOptions
    scoring: o.Scoring
    settings: Annotated[
        list[str] | None,
        unset(
            "A further setting of the method. May be repeated: --set samples=50 --set precision=float16.",
            "--set",
            metavar="NAME=VALUE",
        ),
        texts.Check(texts.settings),
    ] = None
    explained: OutputOptions
    certificates: Annotated[
        bool, typer.Option("--certificates", help="Write a certificate for each sample, which others can check.")
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return the settings of the method other than the ball and the groups."""
        values = {name: _value(name, text) for name, text in texts.settings(self.settings or []).items()}
        values |= o.bounds_of(self.scoring.bounding, self.method, EXPLAINER_ENTRIES[self.method].kind)
        output = self.explained.objective()
        if output is None:
            return values
        if self.method not in ("eva", "empirical"):
            raise InputError(f"got --output with --method {self.method}, expected eva or empirical")
        if self.scoring.target is not None:
            raise InputError("got --target with --output, expected one of them: an output has no class")
        if self.ball.eps is None or texts.is_automatic(self.ball.eps):
            raise InputError("got --output without a radius, expected a number such as --eps 0.02")
        return {**values, "objective": output}

    def around(self, shape: tuple[int, ...], preparation: Preparation, parts: Sequence[InputPart]) -> Balls:
        """Return the ball. Methods without adversarial search have no radius and use only its domain.

        parts: several inputs, which have a ball each.
        """
        from proofmap.cli.options.named_inputs import balls_of_inputs
        from proofmap.inputs.ball import Ball

        within = {
            "sufficient": "every value may move, so that none has to be kept",
            "contrastive": "no change of values changes the class",
        }
        if self.method in within and (self.ball.eps is None or texts.is_automatic(self.ball.eps)):
            raise InputError(
                f"got --method {self.method} without a radius, expected a number, such as --eps 0.02: within the "
                f"largest proven radius {within[self.method]}"
            )
        options, eps = self.ball.or_radius("auto"), self.ball.eps
        if parts:
            balls = balls_of_inputs(options, parts, preparation)
        else:
            ball = options.around(shape, preparation)
        if EXPLAINER_ENTRIES[self.method].ball:
            return balls if parts else ball
        if eps is not None:
            raise InputError(
                f"got --eps {eps} for {self.method}, which looks at no ball, expected it with eva or another method "
                "that has a ball"
            )
        if parts:
            return tuple(None if one is None else Ball(0.0, domain=one.domain) for one in balls)
        return Ball(0.0, domain=ball.domain)


@dataclass(frozen=True)
class Selection:
    """Options of the samples and their order."""

    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Pictures, arrays (npy, npz), tables (csv), the official files of MNIST and CIFAR-10, or folders of "
            "these. Several inputs: npz files with one array for each, or image=pictures table=rows.csv.",
            show_default=False,
        ),
    ]
    limit: o.Limit = None
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle the samples before --limit is applied.")] = False
    seed: Annotated[int, typer.Option(help="The seed of --shuffle and of methods that draw samples: --seed 3")] = 0


@dataclass(frozen=True)
class Computing:
    """Options of the workers and their resources."""

    engine: Annotated[
        str,
        typer.Option(help="Compute in this process (local) or on a Ray cluster: --engine ray."),
        texts.one_of(names.ENGINES, "--engine"),
    ] = "local"
    address: Annotated[
        str | None,
        unset(
            "The address of the Ray cluster: --address 10.0.0.1:6379. By default the cluster that this machine "
            "belongs to, or this machine alone."
        ),
    ] = None
    gpus_per_worker: Annotated[
        float,
        typer.Option(
            help="With --engine ray --device cuda: GPUs of each worker: --gpus-per-worker 1, or 0.5 for two workers "
            "per GPU."
        ),
    ] = 0.0
    workers: Annotated[
        int | None,
        unset("With --engine ray: the number of workers: --workers 8. By default as many as fit on the cluster."),
    ] = None
    chunk: Annotated[
        int, typer.Option(help="The number of samples that are explained together and written as one file: --chunk 20")
    ] = 50
    threads: Annotated[
        int,
        typer.Option(help="Threads of torch in each worker: --threads 16. The last digits of results depend on it."),
    ] = 1
    memory: Annotated[
        float,
        typer.Option(help="Memory of each worker, in GiB: --memory 8. The last digits of results depend on it."),
        texts.Check(texts.gigabytes),
    ] = 4.0

    def make_engine(self) -> Engine:
        """Return the engine. Options of a cluster need --engine ray."""
        if self.engine == "local" and (self.address is not None or self.gpus_per_worker or self.workers is not None):
            raise InputError("got --address, --gpus-per-worker or --workers without a cluster, expected --engine ray")
        from proofmap.runs import Local, Ray

        return Ray(self.address, self.gpus_per_worker, self.workers) if self.engine == "ray" else Local()


def run(
    *,
    model: Annotated[
        str,
        unset(
            "The model: --model net.onnx; module.py:function, a function that returns a torch module; or "
            "zoo:mnist_mlp.",
            "--model",
            autocompletion=names.models,
        ),
    ],
    out: Annotated[
        Path,
        unset(
            "The folder for results: --out results. A second run with the same arguments computes only missing results."
        ),
    ],
    explaining: Explaining,
    selection: Selection,
    computing: Computing,
    as_json: o.Json = False,
    source: ModelOptions,
    device: o.Device = "cpu",
) -> None:
    """Explain all samples of a data set, and print totals: the number of proven decisions and the spread of overlaps.

    An interrupted run continues when it is started again, and writes the same files, byte for byte. A sample that
    cannot be read is recorded with the reason. Exit code 1: no sample could be explained.

    For instance: proofmap run pictures --model net.onnx --eps 2/255 --groups grid:12 --out results
    """
    engine = computing.make_engine()

    from proofmap.cli.options.named_inputs import groups_of_inputs
    from proofmap.runs import Job, shape_of
    from proofmap.runs import run as explain_all
    from proofmap.sources import open_inputs

    settings = explaining.arguments()
    explained, samples = open_inputs(selection.data, source.model(model))
    o.tell(samples.notes)
    job = Job(
        method=explaining.method,
        ball=explaining.around(shape_of(samples, explained), explained.preparation, explained.parts),
        groups=groups_of_inputs(explaining.scoring.groups, explained.parts),
        settings=settings,
        target=o.class_of(explaining.scoring.target, explained.classes),
        device=device,
        chunk=computing.chunk,
        threads=computing.threads,
        memory=texts.gigabytes(computing.memory),
    )
    cores = os.cpu_count() or 1
    if computing.engine == "local" and job.device == "cpu" and job.threads == 1 < cores:
        typer.echo(f"only one of {cores} cores is used: --engine ray or --threads {cores} uses all of them", err=True)
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
        o.tell((o.ROUNDING_NOTE,))
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
