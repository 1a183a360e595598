"""Preparation of samples for a model: size, channels, range, mean, standard deviation and layout.

The settings are arguments, or fields of a TOML file beside the model: `net.toml` for `net.onnx`. All are optional:

    size = [224, 224]                  # height and width, or one side
    channels = 3                       # 1 for grey
    range = [0, 1]                     # the values of black and white; the ball uses these units
    mean = [0.485, 0.456, 0.406]       # one number for each channel or one for all, in units of the range
    std = [0.229, 0.224, 0.225]
    layout = "NCHW"                    # or "NHWC": the order of the axes of the model and its arrays
    classes = ["tench", "goldfish"]    # or a text file beside this one, with one name on each line
"""

import sys
from dataclasses import dataclass
from importlib.resources import as_file, files
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from proofmap.errors import FileError, InputError, first_line
from proofmap.sources.limited_reads import read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Layout = Literal["NCHW", "NHWC"]

ZOO = "zoo:"
_MAX_SIDE_PIXELS = 8192  # limits the memory of a scaled picture
_TOML_FIELDS = ("size", "channels", "range", "mean", "std", "layout", "classes")


@dataclass(frozen=True)
class Preparation:
    """The steps from the values in a file to the input of a model.

    Pictures are scaled until they cover `size`, cut to it, and mapped from bytes to `range`. A ball refers to these
    values. Mean, standard deviation and layout come after the ball, as part of the network. If the size or the
    channels are None, those of the model are used, or those of the file if the model takes any.
    """

    size: tuple[int, int] | None = None  # height and width
    channels: int | None = None  # 1 or 3
    mean: tuple[float, ...] | None = None  # one for all, or one for each channel or column
    std: tuple[float, ...] | None = None
    layout: Layout = "NCHW"
    range: tuple[float, float] = (0.0, 1.0)
    shape: tuple[int, ...] | None = None  # one sample as the network takes it, if known

    def __post_init__(self) -> None:
        """Raise InputError for an invalid setting."""
        if self.size is not None and not (
            len(self.size) == 2 and all(1 <= side <= _MAX_SIDE_PIXELS for side in self.size)
        ):
            raise InputError(
                f"got the size {self.size}, expected a height and a width of 1 to {_MAX_SIDE_PIXELS} pixels"
            )
        if self.channels not in (None, 1, 3):
            raise InputError(f"got {self.channels} channels, expected 1 for grey or 3 for colour")
        if self.layout not in get_args(Layout):
            raise InputError(f"got the layout {self.layout!r}, expected NCHW, or NHWC for channels last")
        if not (len(self.range) == 2 and all(map(isfinite, self.range)) and self.range[0] < self.range[1]):
            raise InputError(f"got the range {self.range}, expected the values of black and white, such as 0,1")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is None:
                continue
            if not values or not all(map(isfinite, values)):
                raise InputError(f"got the {name} {values}, expected finite numbers, one a channel or one for all")
            if self.channels is not None and len(values) not in (1, self.channels):
                raise InputError(f"got {len(values)} numbers as {name} for {self.channels} channels, expected as many")
        if self.std is not None and not min(self.std) > 0:
            raise InputError(f"got the std {self.std}, expected numbers above 0")


def preparation_of(model: str) -> Preparation:
    """Return the preparation from the TOML file beside a model, or of a packaged model, or the default."""
    return read_toml_beside(model)[0]


def read_toml_beside(model: str) -> tuple[Preparation, tuple[str, ...] | None]:
    """Return the preparation and the names of the classes from the TOML file beside a model."""
    if model.startswith(ZOO):
        with as_file(files("proofmap.zoo") / f"{Path(model.removeprefix(ZOO)).name}.toml") as path:
            return _read(path)
    path = Path(model if Path(model).suffix == ".onnx" else model.rpartition(":")[0])
    return _read(path.with_suffix(".toml") if path.name else path)


def read_classes(path: Path) -> tuple[str, ...]:
    """Read the names of the classes, one on each line; empty lines at the end are ignored."""
    return _checked([line.strip() for line in read_text(path).rstrip().splitlines()], path)


def _checked(names: list[str], path: Path) -> tuple[str, ...]:
    """Return the names; raise FileError if there is none, or if one cannot be printed."""
    wrong = next((k for k, name in enumerate(names) if not (name and name.isprintable())), None)
    if wrong is not None or not names:
        raise FileError(f"{path} has no name for class {wrong or 0}, expected one that can be printed for each class")
    return tuple(names)


def _read(path: Path) -> tuple[Preparation, tuple[str, ...] | None]:
    """Read a TOML file; return the default if there is none."""
    if not path.is_file():
        return Preparation(), None
    try:
        fields = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(f"{path} is not TOML: {first_line(error)}; correct it, or delete it") from error
    strange = sorted(fields.keys() - set(_TOML_FIELDS))
    if strange:
        raise FileError(f"{path} has the field {strange[0]!r:.80}, expected only {', '.join(_TOML_FIELDS)}")
    try:
        classes = _classes(fields.pop("classes", None), path)
        return Preparation(**{name: _FIELD_PARSERS[name](value) for name, value in fields.items()}), classes
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise FileError(f"{path} has an invalid value: {first_line(error)}") from error


def _classes(value: Any, path: Path) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        if not value or Path(value).name != value:
            raise FileError(f"{path} names the classes in {value!r:.80}, expected a file beside it, without a folder")
        return read_classes(path.parent / value)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return _checked(value, path)
    raise FileError(f"{path} has the classes {value!r:.80}, expected a list of names or a text file's name")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"got {value!r:.80}, expected a number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"got {value!r:.80}, expected a whole number")
    return value


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(_number, value if isinstance(value, list) else [value]))


def _size(value: Any) -> tuple[int, ...]:
    return tuple(map(_whole, value if isinstance(value, list) else [value, value]))


_FIELD_PARSERS: dict[str, Any] = {
    "size": _size,
    "channels": _whole,
    "range": _numbers,
    "mean": _numbers,
    "std": _numbers,
    "layout": lambda value: value,
}
