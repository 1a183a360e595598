"""proofmap run: a whole data set explained, on this machine or on a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli import names, texts
from proofmap.cli import options as o
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.ball import Ball
    from proofmap.runs import Engine

__all__ = ["run"]


def run(
    context: typer.Context,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Pictures, arrays (npy, npz), tables (csv), folders of these, or MNIST's and CIFAR-10's own files.",
            show_default=False,
        ),
    ],
    model: o.ModelOption,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder for the results: --out results. Started again with the same arguments, it does what is "
            "missing.",
            show_default=False,
        ),
    ],
    method: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(names.METHODS)}: --method eva", autocompletion=o.among(names.METHODS)),
        texts.one_of(names.METHODS, "--method"),
    ] = "eva",
    eps: o.Eps = None,
    norm: o.Norm = "inf",
    domain: o.Domain = None,
    groups: o.Groups = None,
    bounds: o.Bounds = None,
    target: o.Target = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="What else the method takes, once for each: --set samples=50 --set precision=float16.",
            show_default=False,
        ),
        texts.Check(texts.settings),
    ] = None,
    limit: o.Limit = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Draw the order of the samples, before --limit.")] = False,
    seed: Annotated[int, typer.Option(help="Of the order, and of methods that draw samples: --seed 3")] = 0,
    engine: Annotated[
        str,
        typer.Option(
            help="local, in this process; or --engine ray, on a Ray cluster.", autocompletion=o.among(names.ENGINES)
        ),
        texts.one_of(names.ENGINES, "--engine"),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Of the Ray cluster: --address 10.0.0.1:6379. By default the one this machine is part of, else this "
            "machine.",
            show_default=False,
        ),
    ] = None,
    gpus_per_worker: Annotated[
        float,
        typer.Option(help="With --engine ray --device cuda: --gpus-per-worker 1, or 0.5 for two workers on a GPU."),
    ] = 0.0,
    workers: Annotated[
        int | None,
        typer.Option(
            help="With --engine ray: --workers 8. By default as many as there is room for.", show_default=False
        ),
    ] = None,
    chunk: Annotated[
        int, typer.Option(help="Samples that are explained together and written as one file: --chunk 20")
    ] = 50,
    threads: Annotated[
        int, typer.Option(help="Of torch, in each worker; the last digits depend on it: --threads 16")
    ] = 1,
    memory: Annotated[
        float,
        typer.Option(help="GiB that a worker may use for bounds; the last digits depend on it: --memory 8"),
        texts.Check(texts.gigabytes),
    ] = 4.0,
    as_json: o.Json = False,
    source: o.Source = o.NOTHING,
    device: o.Device = "cpu",
) -> None:
    """Explain every sample of a data set, and sum up: how many are certified, how the overlaps are spread.

    It may be killed at any moment: started again it goes on, and ends with the same files to the last byte. A sample
    that cannot be read is recorded with its reason. Exit code 1: not one could be explained.

    For instance: proofmap run pictures --model net.onnx --eps 2/255 --groups grid:12 --out results
    """
    if engine == "local" and (address is not None or gpus_per_worker or workers is not None):
        raise InputError("got --address, --gpus-per-worker or --workers without a cluster, expected --engine ray")

    from proofmap.runs import Job, Local, Ray, shape_of
    from proofmap.runs import run as explain_all
    from proofmap.sources import open_samples

    where: Engine = Ray(address, gpus_per_worker, workers) if engine == "ray" else Local()
    more = _settings(method, bounds, settings or [])
    found = source.model(model)
    samples = open_samples(data, found.preparation)
    o.tell(samples.notes)
    job = Job(
        method=method,
        ball=_ball(method, o.ball_of(eps or "auto", norm, domain, found.preparation, shape_of(samples, found)), eps),
        groups=o.groups_of(groups),
        settings=more,
        target=o.class_of(target, found.classes),
        device=device,
        chunk=chunk,
        threads=threads,
        memory=texts.gigabytes(memory),
    )
    cores = os.cpu_count() or 1
    if isinstance(where, Local) and job.device == "cpu" and threads == 1 < cores:
        typer.echo(f"one of {cores} cores is used: --engine ray or --threads {cores} takes all", err=True)
    totals = explain_all(samples, found, job, out, limit=limit, shuffle=shuffle, seed=seed, engine=where)
    typer.echo(json.dumps(totals.json(), indent=1) if as_json else totals.text())
    if not totals.explained:
        raise typer.Exit(1)


def _ball(method: str, ball: Ball, eps: str | None) -> Ball | None:
    """Methods that look for no adversaries have no radius; what they know of the ball is its domain."""
    from proofmap.ball import Ball
    from proofmap.explain import BASELINES, Explainer

    if issubclass(BASELINES[method], Explainer):
        return ball
    if eps is not None:
        raise InputError(f"got --eps {eps} for {method}, which looks at no ball, expected it with eva and its like")
    return Ball(0.0, domain=ball.domain)


def _settings(method: str, bounds: str | None, given: Sequence[str]) -> dict[str, Any]:
    """What the method takes beyond a ball and groups."""
    from proofmap.explain import BASELINES

    found = {name: _value(name, value) for name, value in texts.settings(given).items()}
    return found | o.bounds_of(bounds, method, BASELINES[method])


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
