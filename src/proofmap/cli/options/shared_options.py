"""Options that several commands share, and functions that turn their texts into objects of the library.

An invalid text raises InputError. Torch is loaded only when a function needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from inspect import signature
from math import isfinite
from operator import and_
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proofmap.cli.options import option_names as names
from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import FileError, InputError
from proofmap.runtime.outward_numbers import NOT_COVERED

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from proofmap.bounds import Method
    from proofmap.inputs.ball import Ball
    from proofmap.inputs.groups import Groups as Grouping
    from proofmap.sources import Preparation

ROUNDING_NOTE = f"{NOT_COVERED}: bounds are of the network over the real numbers, computed in floating point"

Groups = Annotated[
    str | None,
    unset(
        "The groups of values that get one score each: --groups grid:12, grid:8,12, superpixels:50, pixels, columns "
        "for a table, windows:8 for a series, or tokens for a sequence. By default each pixel or column is a group. "
        "grid:12:smooth interpolates maps between cells. With several inputs: --groups image=grid:4,table=columns"
    ),
    texts.Check(texts.groups_of_inputs),
]
Bounds = Annotated[
    str | None,
    unset(
        f"The bounding method: {', '.join(names.BOUND_NAMES)} (another name of backward). --bounds ibp+forward takes "
        "the better of both. By default backward."
    ),
    texts.Check(texts.bounds, names.BOUND_NAMES),
]
_Seconds = Annotated[
    float | None,
    unset("With --bounds exact: the time limit of the search per sample: --seconds 300. By default 60."),
    texts.above_zero("--seconds", "60"),
]
_Gap = Annotated[
    float | None,
    unset(
        "With --bounds exact: stop when the upper and lower bounds differ by at most this: --gap 0.01. By default "
        "0.001."
    ),
    texts.above_zero("--gap", "0.001"),
]
Target = Annotated[
    str | None, unset("The class to explain, by number or name: --target 3. By default the predicted class.")
]
Limit = Annotated[int | None, unset("Use only the first samples: --limit 100"), texts.Check(texts.limit)]
Device = Annotated[
    str,
    typer.Option(help="The device to compute on: --device cuda, or cuda:1."),
    texts.Check(texts.device, ("cpu", "cuda")),
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as one JSON document.")]


@dataclass(frozen=True)
class BallOptions:
    """The ball around every sample."""

    eps: Annotated[
        str | None,
        unset(
            "The radius of the ball: --eps 0.02, 2/255 or 0.5/255. auto uses the largest radius that is proven for "
            "each input. With several inputs, one radius for all or one for each: --eps image=0.02,table=none"
        ),
        texts.Check(texts.radii),
    ] = None
    norm: Annotated[
        str, typer.Option(help="The norm of the ball: 1, 2 or inf: --norm 2"), texts.one_of(names.NORMS, "--norm")
    ] = "inf"
    domain: Annotated[
        str | None,
        unset(
            "The smallest and the largest value of an input: --domain 0,1, or none. By default the range of pictures, "
            "and none for other samples. With several inputs: --domain image=0,1,table=none"
        ),
        texts.Check(texts.domains),
    ] = None

    @property
    def chosen(self) -> bool:
        """True if neither a radius nor a norm is given."""
        return self.eps is None and self.norm == "inf"

    def or_radius(self, default: str | None) -> BallOptions:
        """Set the radius to the default if none is given. Without a default, --eps is required."""
        if self.eps is None and default is None:
            raise InputError("got no --eps, expected the radius of the ball, such as 0.02 or 2/255")
        return self if self.eps is not None else replace(self, eps=default)

    def around(self, shape: tuple[int, ...], preparation: Preparation) -> Ball:
        """Return the ball around samples of a shape. Pictures (C, H, W) have their range as the default domain."""
        from proofmap.inputs.ball import Ball

        assert self.eps is not None
        for option, text in (("--eps", self.eps), ("--domain", self.domain)):
            if text is not None and texts.by_input(text) is not None:
                raise InputError(f"got {option} {text} for a model of one input, expected the value without a name")
        usual = preparation.range if len(shape) == 3 else None
        domain = usual if self.domain is None else texts.domain(self.domain)
        return Ball(texts.radius(self.eps), float(self.norm), domain)

    def refuse_beside_a_box(self) -> None:
        """Refuse ball options beside a VNN-LIB file, which contains its own ball."""
        if self != BallOptions():
            raise InputError("got --eps, --norm or --domain with a VNN-LIB file, expected none: its box is the ball")


@dataclass(frozen=True)
class Bounding:
    """The bounding method, and the limits of its search."""

    bounds: Bounds = None
    seconds: _Seconds = None
    gap: _Gap = None

    def __post_init__(self) -> None:
        """Refuse the limits of a search for a method that does not search."""
        given = [f"--{name} {value:g}" for name, value in self._limits.items()]
        if given and names.SEARCH_BOUNDS not in self._names:
            bounds = "no --bounds" if self.bounds is None else f"--bounds {self.bounds}"
            raise InputError(
                f"got {' and '.join(given)} with {bounds}, expected --bounds {names.SEARCH_BOUNDS} beside it"
            )

    @property
    def _limits(self) -> dict[str, Any]:
        return {name: limit for name in ("seconds", "gap") if (limit := getattr(self, name)) is not None}

    @property
    def _names(self) -> list[str]:
        return [] if self.bounds is None else self.bounds.split("+")

    @property
    def method(self) -> Method | None:
        """Return the bounding method; None if none is named."""
        from proofmap.bounds import Exact, named

        parts = [Exact(**self._limits) if name == names.SEARCH_BOUNDS else named(name) for name in self._names]
        return reduce(and_, parts) if parts else None


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The groups, the bounding method and the class of an explanation."""

    groups: Groups = None
    bounding: Bounding
    target: Target = None


def groups_of(text: str | None) -> Grouping:
    """Return the grouping of a text such as "grid:12"."""
    from proofmap.inputs import groups as grouping

    if text is not None and texts.by_input(text) is not None:
        raise InputError(f"got --groups {text} for a model of one input, expected groups without a name")
    kind, counts, settings = texts.groups(text or "pixels")
    made: Grouping = getattr(grouping, kind)(*counts, **settings)
    return made


def bounds_of(bounding: Bounding, method: str, kind: type[Any]) -> dict[str, Any]:
    """Return the bounding method as a setting of an explainer; empty if none is given."""
    if bounding.bounds is None:
        return {}
    if "bounds" not in signature(kind).parameters:
        raise InputError(f"got --bounds {bounding.bounds} for {method}, which has none, expected it with eva")
    return {"bounds": bounding.method}


def check_proves(method: str, kind: type[Any], rigorous: bool) -> None:
    """Refuse --rigorous or --no-rigorous for a method that proves nothing."""
    if "rigorous" not in signature(kind).parameters:
        option = "--rigorous" if rigorous else "--no-rigorous"
        raise InputError(f"got {option} for {method}, which proves nothing, expected it with eva or targeted")


def class_of(text: str | None, classes: tuple[str, ...] | None, option: str = "--target") -> int | None:
    """Return the number of a class that is given by its number or its name."""
    if text is None:
        return None
    if classes is not None and text in classes:
        if classes.count(text) > 1:
            raise InputError(f"got {option} {text}, the name of {classes.count(text)} classes, expected a number")
        return classes.index(text)
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    known = "a class number" if classes is None else "a class number, or a name from the file of classes"
    raise InputError(f"got {option} {text}, expected {known}")


def device_of(text: str) -> torch.device:
    """Return the device; refuse one that does not exist."""
    import torch

    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has both
        raise InputError(f"got --device {text}, expected cpu, or cuda where there is a GPU ({error!s:.80})") from None
    return device


def make_folder(out: Path) -> None:
    """Create the output folder of a command."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {out}: {error.strerror}; choose another with --out") from error


def tell(notes: Iterable[str]) -> None:
    """Print notes to stderr."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def finite(value: float) -> float | None:
    """Return a number for JSON: None for infinities and NaN."""
    return value if isfinite(value) else None
