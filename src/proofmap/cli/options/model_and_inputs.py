"""Options for a model (weights, class names, preparation of inputs) and for the inputs of a command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.options.shared_options import Device
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.sources import Model

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
class ModelOptions:
    """Options of a model: its weights, the names of its classes, and the preparation of its inputs."""

    weights: Annotated[
        Path | None, unset("A file with the state dict of a torch module: --weights net.safetensors, or net.pt.")
    ] = None
    classes: Annotated[
        Path | None, unset("A text file with one class name per line, class 0 first: --classes names.txt")
    ] = None
    size: Annotated[
        str | None,
        unset("Scale and crop pictures to this height and width: --size 224, or 224,160. By default the model's size."),
        texts.Check(texts.sides),
    ] = None
    channels: Annotated[
        int | None, unset("Read pictures in grey (--channels 1) or in colour (3). By default as the model expects.")
    ] = None
    mean: Annotated[
        str | None,
        unset("Subtract these means from the channels before the model: --mean 0.485,0.456,0.406, or one number."),
        texts.values("--mean"),
    ] = None
    std: Annotated[
        str | None,
        unset("Then divide the channels by these numbers: --std 0.229,0.224,0.225, or one number."),
        texts.values("--std"),
    ] = None
    layout: Annotated[
        str | None,
        unset("The order of axes in the model and in arrays: NCHW, or --layout NHWC if the channels come last."),
        texts.one_of(names.LAYOUTS, "--layout"),
    ] = None
    values: Annotated[
        str | None,
        unset(
            "The values of black and white: --range 0,255. By default 0,1. --eps and --domain use the same scale.",
            "--range",
        ),
        texts.Check(partial(texts.pair, what="--range")),
    ] = None

    def model(self, name: str, *, bare: bool = False) -> Model:
        """Read the model. Options have priority over the TOML file beside it. bare: without mean and std."""
        given: dict[str, Any] = {
            "size": None if self.size is None else texts.sides(self.size),
            "channels": self.channels,
            "mean": None if self.mean is None else texts.numbers(self.mean, "--mean"),
            "std": None if self.std is None else texts.numbers(self.std, "--std"),
            "layout": self.layout,
            "range": None if self.values is None else texts.pair(self.values, "--range"),
        }
        from proofmap.sources import preparation_of, read_model

        preparation = replace(preparation_of(name), **{key: value for key, value in given.items() if value is not None})
        if bare:
            preparation = replace(preparation, mean=None, std=None)
        return read_model(name, weights=self.weights, preparation=preparation, classes=self.classes)


@dataclass(frozen=True)
class Subject:
    """Options of a command that reads a model and inputs, and computes on a device."""

    model: ModelName
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="Pictures (png, jpeg, webp, bmp, gif, tiff), arrays (npy, npz), tables (csv), the official files of "
            "MNIST and CIFAR-10, or folders of these. VNN-LIB files contain their own box. For instance: digit.png. A "
            "model of several inputs takes npz files with one array for each, or image=xray.png table=row.csv.",
            show_default=False,
        ),
    ]
    source: ModelOptions
    device: Device = "cpu"

    @property
    def boxed(self) -> bool:
        """True if the inputs are VNN-LIB files, which contain their own balls. A mixture is refused."""
        boxed = [path.name.lower().endswith((".vnnlib", ".vnnlib.gz")) for path in self.inputs]
        if any(boxed) and not all(boxed):
            raise InputError("got VNN-LIB files together with other inputs, expected one kind: run the command twice")
        return any(boxed)

    def load(self, *, bare: bool = False) -> Model:
        """Read the model; bare: without mean and std."""
        return self.source.model(self.model, bare=bare)
