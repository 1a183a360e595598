"""What a command is asked about: a model with all that belongs to it, and the inputs it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.option_names import among
from proofmap.cli.options.shared_options import Device
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.sources import Model

__all__ = ["ModelName", "Source", "Subject"]

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="net.onnx; module.py:function, a function that returns a torch module; or zoo:mnist_mlp.",
        show_default=False,
        autocompletion=names.models,
    ),
]


@dataclass(frozen=True)
class Source:
    """What belongs to a model beside its name: its weights, the names of its classes, how values become its input."""

    weights: Annotated[
        Path | None, unset("The state dict of a torch module: --weights net.safetensors, or net.pt.")
    ] = None
    classes: Annotated[
        Path | None, unset("A text file with the names of the classes, one a line, 0 first: --classes names.txt")
    ] = None
    size: Annotated[
        str | None,
        unset("Pictures are scaled and cut to this height and width, by default the model's: --size 224, or 224,160."),
        texts.Check(texts.sides),
    ] = None
    channels: Annotated[
        int | None, unset("--channels 1: pictures are read as grey; 3: in colour. By default as the model says.")
    ] = None
    mean: Annotated[
        str | None,
        unset("Subtracted from each channel before the model: --mean 0.485,0.456,0.406, or one number."),
        texts.values("--mean"),
    ] = None
    std: Annotated[
        str | None,
        unset("Each channel is divided by it, after the mean: --std 0.229,0.224,0.225, or one number."),
        texts.values("--std"),
    ] = None
    layout: Annotated[
        str | None,
        unset(
            "NCHW, or --layout NHWC for a model that takes the channels last; arrays follow it.",
            autocompletion=among(names.LAYOUTS),
        ),
        texts.one_of(names.LAYOUTS, "--layout"),
    ] = None
    values: Annotated[
        str | None,
        unset(
            "The values of black and white, in which eps and domain are stated: 0,1 by default, or --range 0,255.",
            "--range",
        ),
        texts.Check(partial(texts.pair, what="--range")),
    ] = None

    def model(self, name: str, *, bare: bool = False) -> Model:
        """The model of a name; flags come before what the TOML beside it says. bare: without mean and std."""
        given: dict[str, Any] = {
            "size": None if self.size is None else texts.sides(self.size),
            "channels": self.channels,
            "mean": None if self.mean is None else texts.numbers(self.mean, "--mean"),
            "std": None if self.std is None else texts.numbers(self.std, "--std"),
            "layout": self.layout,
            "range": None if self.values is None else texts.pair(self.values, "--range"),
        }
        from proofmap.sources import read_model, stated

        preparation = replace(stated(name), **{field: value for field, value in given.items() if value is not None})
        if bare:
            preparation = replace(preparation, mean=None, std=None)
        return read_model(name, weights=self.weights, preparation=preparation, classes=self.classes)


@dataclass(frozen=True)
class Subject:
    """What a command is asked about: a model, its inputs, and where both are computed with."""

    model: ModelName
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="Pictures (png, jpeg, webp, bmp, gif, tiff), arrays (npy, npz), tables (csv), MNIST's and CIFAR-10's "
            "own files, folders of these, or VNN-LIB files, which bring their own box. For instance: digit.png",
            show_default=False,
        ),
    ]
    source: Source
    device: Device = "cpu"

    @property
    def boxed(self) -> bool:
        """Whether the inputs are VNN-LIB files, which bring their own balls: all of them or none."""
        boxed = [path.name.lower().endswith((".vnnlib", ".vnnlib.gz")) for path in self.inputs]
        if any(boxed) and not all(boxed):
            raise InputError("got VNN-LIB files together with other inputs, expected one kind: run the command twice")
        return any(boxed)

    def load(self, *, bare: bool = False) -> Model:
        """The model; bare: without mean and std."""
        return self.source.model(self.model, bare=bare)
