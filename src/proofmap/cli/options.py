"""Options that several commands share, and what their texts mean.

A command takes them as parameters, those of a model together as a `Source`, and gives them to `ball_of`, `groups_of`,
`bounds_of` and `class_of`, which raise InputError in one sentence. Nothing here loads torch before it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli import names, texts
from proofmap.cli.names import among
from proofmap.errors import InputError

if TYPE_CHECKING:
    import torch

    from proofmap.ball import Ball
    from proofmap.groups import Groups as Grouping
    from proofmap.sources import Model, Preparation


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="net.onnx; module.py:function, a function that returns a torch module; or zoo:mnist_mlp.",
        show_default=False,
        autocompletion=names.models,
    ),
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="--model net.onnx; module.py:function, a function that returns a torch module; or zoo:mnist_mlp.",
        show_default=False,
        autocompletion=names.models,
    ),
]
Inputs = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT",
        help="Pictures (png, jpeg, webp, bmp, gif, tiff), arrays (npy, npz), tables (csv), MNIST's and CIFAR-10's own "
        "files, folders of these, or VNN-LIB files, whose box is the ball. For instance: digit.png",
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="The state dict of a torch module: --weights net.safetensors, or net.pt.", show_default=False),
]
Classes = Annotated[
    Path | None,
    typer.Option(
        help="A text file with the names of the classes, one a line, 0 first: --classes names.txt", show_default=False
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="Pictures are scaled and cut to this height and width, by default the model's: --size 224, or 224,160.",
        show_default=False,
    ),
    texts.Check(texts.sides),
]
Channels = Annotated[
    int | None,
    typer.Option(
        help="--channels 1: pictures are read as grey; 3: in colour. By default as the model says.", show_default=False
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="Subtracted from each channel before the model: --mean 0.485,0.456,0.406, or one number.",
        show_default=False,
    ),
    texts.values("--mean"),
]
Std = Annotated[
    str | None,
    typer.Option(
        help="Each channel is divided by it, after the mean: --std 0.229,0.224,0.225, or one number.",
        show_default=False,
    ),
    texts.values("--std"),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="NCHW, or --layout NHWC for a model that takes the channels last; arrays follow it.",
        show_default=False,
        autocompletion=among(names.LAYOUTS),
    ),
    texts.one_of(names.LAYOUTS, "--layout"),
]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        help="The values of black and white, in which eps and domain are stated: 0,1 by default, or --range 0,255.",
        show_default=False,
    ),
    texts.Check(partial(texts.pair, what="--range")),
]
Eps = Annotated[
    str | None,
    typer.Option(
        help="The radius of the ball: --eps 0.02, 2/255, 0.5/255, or auto, the radius that is proven for each input.",
        show_default=False,
    ),
    texts.Check(texts.radius),
]
Norm = Annotated[
    str,
    typer.Option(help="The norm of the ball, 1, 2 or inf: --norm 2", autocompletion=among(names.NORMS)),
    texts.one_of(names.NORMS, "--norm"),
]
Domain = Annotated[
    str | None,
    typer.Option(
        help="The values that inputs can have: --domain 0,1, or none. By default the range of pictures; none for a "
        "table.",
        show_default=False,
    ),
    texts.Check(texts.domain),
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="What is scored together: --groups grid:12, grid:8,12, superpixels:50, pixels, or columns for a table. By "
        "default every pixel or column.",
        show_default=False,
    ),
    texts.Check(texts.groups),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        help=f"How worst cases are bounded: {', '.join(names.BOUNDS)} (another name of backward); --bounds ibp+forward "
        "for the better of both. By default backward.",
        show_default=False,
        autocompletion=among(names.BOUNDS),
    ),
    texts.Check(texts.bounds),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="The class to explain, by number or name: --target 3. By default the predicted one.", show_default=False
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(help="The first so many samples: --limit 100", show_default=False),
    texts.Check(texts.limit),
]
Device = Annotated[
    str,
    typer.Option(help="Where to compute: cpu, or --device cuda, or cuda:1.", autocompletion=among(("cpu", "cuda"))),
    texts.Check(texts.device),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for a program to read.")]


@dataclass(frozen=True)
class Source:
    """What belongs to a model beside its name: its weights, the names of its classes, how values become its input."""

    weights: Weights = None
    classes: Classes = None
    size: Size = None
    channels: Channels = None
    mean: Mean = None
    std: Std = None
    layout: Layout = None
    values: Range = None

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


NOTHING = Source()  # a model by its name alone


def needs(kind: type[Any]) -> bool:
    """Whether a method needs more than a model and a ball."""
    return any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in signature(kind).parameters.values())


def ball_of(eps: str, norm: str, domain: str | None, preparation: Preparation, shape: tuple[int, ...]) -> Ball:
    """The ball around samples of a shape: pictures (C, H, W) lie in their range, unless another domain is given."""
    from proofmap.ball import Ball

    own = preparation.range if len(shape) == 3 else None
    return Ball(texts.radius(eps), float(norm), own if domain is None else texts.domain(domain))


def groups_of(text: str | None) -> Grouping:
    """The grouping of a text such as "grid:12"."""
    from proofmap import groups as grouping

    kind, counts = texts.groups(text or "pixels")
    match kind:
        case "grid":
            return grouping.grid(*counts)
        case "superpixels":
            return grouping.superpixels(*counts)
    return grouping.columns() if kind == "columns" else grouping.pixels()


def bounds_of(text: str | None, method: str, kind: type[Any]) -> dict[str, Any]:
    """The bounds as a setting of a method; none where none are given."""
    from proofmap.bounds import named

    if text is None:
        return {}
    if "bounds" not in signature(kind).parameters:
        raise InputError(f"got --bounds {text} for {method}, which has none, expected it with eva")
    return {"bounds": named(text)}


def class_of(text: str | None, classes: tuple[str, ...] | None) -> int | None:
    """The number of a class that is given by its number or its name."""
    if text is None:
        return None
    if classes is not None and text in classes:
        if classes.count(text) > 1:
            raise InputError(f"got --target {text}, the name of {classes.count(text)} classes, expected a number")
        return classes.index(text)
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    known = "a class number" if classes is None else "a class number, or a name from the file of classes"
    raise InputError(f"got --target {text}, expected {known}")


def device_of(text: str) -> torch.device:
    """A place to compute at that is there."""
    import torch

    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has both
        raise InputError(f"got --device {text}, expected cpu, or cuda where there is a GPU ({error!s:.80})") from None
    return device


def tell(notes: Iterable[str]) -> None:
    """Say what a reader of the output should know of the inputs, beside the output."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def finite(value: float) -> float | None:
    """A number as JSON can have it: null where it is infinite or unknown."""
    return value if isfinite(value) else None
