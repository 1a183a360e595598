"""Read the TOML file of a benchmark: data, model, methods, metrics, and the numbers of the paper.

title, data ("mnist", "cifar10" or "imagenet"), count, model (of the zoo), metrics = [...]
split: "test", or "validation" for the last training images, on which settings may be chosen
start: the first sample of the test set, 0 by default
against: labels of methods that EVA is compared with, sample by sample
ranks: the metrics of the mean rank, which is the last column; none by default
[[method]]  label, name; for methods with a ball: eps, bounds, groups ("pixels", "grid:12" or "grid:12:smooth")
            settings = {...}; count: explain fewer samples; paper = {metric = number, ...}
            dear = true: the method needs a GPU or hours; a quick run leaves it out
            eps = [...]: one method for each radius, and a curve through them
            eps = "auto": for each sample, the largest proven radius
            relative = true: eps is a fraction of the distance from x to either end of the domain
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from math import inf
from pathlib import Path
from typing import Any, Literal

import torch

from proofmap.bounds import named
from proofmap.errors import FileError, InputError
from proofmap.inputs import groups as grouping
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups
from proofmap.metrics import METRICS
from proofmap.registry import COMPARED, METRIC_ENTRIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Metrics of the overlap use the ball of the method. Other metrics with a radius would differ between methods.
_ALLOWED_METRICS = [name for name, kind in METRICS.items() if kind.subject == "overlap" or not kind.needs_radius]


@dataclass(frozen=True)
class MethodEntry:
    """A method with its settings."""

    label: str
    name: str
    eps: float | Literal["auto"] | None = None
    relative: bool = False
    bounds: str | None = None
    groups: str = "pixels"
    count: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)
    dear: bool = False
    curve: str | None = None  # label of the curve that contains this point

    def __post_init__(self) -> None:
        """Refuse invalid settings before any work starts."""
        whose = f"the method {self.label!r}"
        _check(whose, self, label=_text, name=_text, groups=_text, count=_whole, eps=_radius, relative=_flag)
        _check(whose, self, settings=_table, paper=_numbers, dear=_flag)
        _check(whose, self, bounds=lambda value: value is None or _text(value))
        if self.name not in COMPARED:
            raise InputError(f"{whose} is named {self.name!r}, expected one of {', '.join(COMPARED)}")
        self.arguments()
        self.grouping()

    def method(self) -> dict[str, Any]:
        """Return the settings that determine the maps."""
        parts = ("name", "eps", *(["relative"] if self.relative else []), "bounds", "groups", "settings")
        return {name: getattr(self, name) for name in parts}

    def arguments(self) -> dict[str, Any]:
        """Return the settings in the form that the method accepts."""
        arguments = dict(self.settings)
        if "precision" in arguments:
            arguments["precision"] = getattr(torch, arguments["precision"], None)
        return arguments if self.bounds is None else {**arguments, "bounds": named(self.bounds)}

    def ball(self, domain: tuple[float, float]) -> Ball | None:
        """Return the ball within the domain; None for methods without a radius."""
        return None if self.eps is None else Ball(self.eps, domain=domain, relative=self.relative)

    def grouping(self) -> Groups:
        """Return the groups: pixels, or a grid with smooth or constant cells."""
        kind, _, cells = self.groups.removesuffix(":smooth").partition(":")
        if kind == "grid" and cells.isdecimal() and int(cells) > 0:
            return grouping.grid(int(cells), smooth=self.groups.endswith(":smooth"))
        if self.groups != "pixels":
            raise InputError(
                f"the method {self.label!r} has groups {self.groups!r}, expected 'pixels' or 'grid:12', or "
                "'grid:12:smooth'"
            )
        return grouping.pixels()


@dataclass(frozen=True)
class Spec:
    """The settings of a benchmark."""

    name: str
    title: str
    data: str
    count: int
    model: str
    metrics: tuple[str, ...]
    entries: tuple[MethodEntry, ...]
    split: str = "test"
    start: int = 0
    against: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown metrics, duplicate labels and an empty list of methods."""
        _check(self.name, self, title=_text, data=_text, model=_text, split=_text)
        _check(self.name, self, count=lambda value: value is not None and _whole(value), metrics=_texts)
        _check(self.name, self, against=_perhaps_texts, ranks=_perhaps_texts)
        _check(self.name, self, start=lambda value: value == 0 or _whole(value))
        if self.split not in ("test", "validation"):
            raise InputError(f"{self.name} asks for the split {self.split!r}, expected 'test' or 'validation'")
        for metric in self.metrics:
            if metric not in _ALLOWED_METRICS:
                raise InputError(
                    f"{self.name} asks for the metric {metric!r}, expected one of {', '.join(_ALLOWED_METRICS)}"
                )
            if self.metrics.count(metric) > 1:
                raise InputError(f"{self.name} asks for the metric {metric!r} twice, expected it once")
        for metric in self.ranks:
            if metric not in self.metrics or not METRIC_ENTRIES[metric].maps:
                raise InputError(f"{self.name} ranks methods by {metric!r}, expected one of its metrics of maps")
        if not self.entries:
            raise InputError(f"{self.name} has no method, expected at least one [[method]]")
        labels = [slug(entry.label) for entry in self.entries]
        twice = [label for label in labels if labels.count(label) > 1]
        for rival in self.against:
            if rival not in [entry.label for entry in self.entries]:
                raise InputError(f"{self.name} compares EVA with {rival!r}, expected the label of one of its methods")
        if twice:
            raise InputError(f"{self.name} has two methods with the label {twice[0]!r}, expected one for each")


def _check(whose: str, checked: MethodEntry | Spec, **kinds: Callable[[Any], bool]) -> None:
    """Check the types of the fields."""
    for name, is_kind in kinds.items():
        value = getattr(checked, name)
        if not is_kind(value):
            raise InputError(f"{whose} has {name} = {value!r:.40}, expected one as in proofmap's own benchmarks")


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(map(_text, value))


def _perhaps_texts(value: Any) -> bool:
    return value == () or _texts(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _radius(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or value == "auto" or (number and 0 <= value < inf)


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _numbers(value: Any) -> bool:
    return _table(value) and all(isinstance(one, (int, float)) for one in value.values())


def slug(label: str) -> str:
    """Return a label in a form for file names."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower().replace("+", " plus ")).strip("-")


def names() -> list[str]:
    """Return the names of the packaged benchmarks."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def read(name: str | Path) -> Spec:
    """Read a packaged benchmark by its name, or the user's TOML file."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"cannot read {path}: {error}; give a TOML file, or one of {', '.join(names())}") from error
    elif str(name) in names():
        text = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise InputError(f"got the benchmark {str(name)!r}, expected one of {', '.join(names())}, or a .toml file")
    try:
        table = tomllib.loads(text)
        methods = [entry for method in table.pop("method") for entry in _entries(method, str(name))]
        table = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        return Spec(name=path.stem, entries=tuple(methods), **table)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise FileError(
            f"{name} is no benchmark: {error}; expected title, data, count, model, metrics, [[method]]"
        ) from error


def _entries(method: Mapping[str, Any], where: str) -> list[MethodEntry]:
    if not isinstance(method, Mapping):
        raise FileError(f"{where} has the method {method!r:.40}, expected [[method]] with a label and a name")
    known = {f.name for f in fields(MethodEntry)} - {"curve"}
    strange = sorted(set(method) - known)
    if strange:
        raise FileError(f"{where} has a method with {strange[0]!r}, expected only {', '.join(sorted(known))}")
    radii, label = method.get("eps"), method.get("label")
    if not isinstance(radii, list):
        return [MethodEntry(**method)]
    wrong = [eps for eps in radii if eps in (None, "auto") or not _radius(eps)]
    if wrong:
        raise InputError(f"the method {label!r} has the radius {wrong[0]!r:.40}, expected numbers of at least 0")
    return [MethodEntry(**{**method, "label": f"{label}, ε = {eps:g}", "eps": eps}, curve=label) for eps in radii]


def _folder() -> Any:
    return resources.files("proofmap.bench") / "specs"
