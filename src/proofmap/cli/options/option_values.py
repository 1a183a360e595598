"""Parsers of option texts: each returns plain values, or raises InputError before anything is loaded.

An option has its parser as a `Check` in its annotation, with the names that it accepts. A command starts only after all
checks have passed, and the shell completes these names.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from proofmap.cli.options import option_names as names
from proofmap.errors import InputError
from proofmap.settings import parse_number


@dataclass(frozen=True)
class Check:
    """The parser in the annotation of an option, and the names that the shell completes.

    read: raises InputError for an invalid text.
    """

    read: Callable[[Any], object]
    names: Sequence[str] = ()


def number(text: str, what: str) -> float:
    """Parse a number such as 0.02, 2/255 or 0.5/255."""
    try:
        return parse_number(text)
    except ValueError:
        raise InputError(f"got {what} {text}, expected a number such as 0.02 or 2/255") from None


def by_input(text: str) -> dict[str, str] | None:
    """Split a text such as image=0.02,table=none into the texts of inputs; None for a text without names."""
    if "=" not in text:
        return None
    first, *rest = re.split(r"(?:^|[,;\s]+)([^=,;\s]+)=", text)
    found = dict(zip(rest[::2], rest[1::2], strict=True))
    if first or len(found) < len(rest) / 2 or not all(found.values()):
        raise InputError(f"got {text}, expected a value for each input once, such as image=0.02,table=none")
    return found


def is_automatic(eps: str | None) -> bool:
    """Return whether a radius, or one of several inputs, is auto."""
    named = None if eps is None else by_input(eps)
    return eps == "auto" if named is None else "auto" in named.values()


def radii(text: str) -> None:
    """Check a radius, or the radii of several inputs: image=0.02,table=none."""
    named = by_input(text)
    each = [text] if named is None else [one for one in named.values() if one != "none"]
    for one in each:
        radius(one)
    if not each:
        raise InputError(f"got --eps {text}, expected a radius for at least one input, such as image=0.02,table=none")


def domains(text: str) -> None:
    """Check a range of values, or the ranges of several inputs: image=0,1,table=none."""
    named = by_input(text)
    for one in [text] if named is None else named.values():
        domain(one)


def groups_of_inputs(text: str) -> None:
    """Check groups, or the groups of several inputs: image=grid:4,table=columns."""
    named = by_input(text)
    for one in [text] if named is None else named.values():
        groups(one)


def radius(text: str) -> float | Literal["auto"]:
    """Parse a radius: a number of at least 0, or auto."""
    if text == "auto":
        return "auto"
    eps = number(text, "--eps")
    if not (isfinite(eps) and eps >= 0):
        raise InputError(f"got --eps {text}, expected a radius of at least 0, such as 0.02 or 2/255")
    return eps


def output(text: str) -> None:
    """Check the index of an output: numbers and ranges that commas separate."""
    for part in text.split(","):
        if not re.fullmatch(r"\s*(\d+|(-?\d+)?:(-?\d+)?(:(-?\d+)?)?)\s*", part, re.ASCII):
            raise InputError(f"got --output {text}, expected numbers and ranges such as 0 or 1,10:20,:")


def change(text: str) -> None:
    """Check a largest change: a number of at least 0."""
    value = number(text, "--within")
    if not (isfinite(value) and value >= 0):
        raise InputError(f"got --within {text}, expected a change of at least 0, such as 0.5")


def day(text: str) -> date:
    """Parse an ISO 8601 date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"got --date {text}, expected a day such as 2026-03-01") from None


def numbers(text: str, what: str) -> tuple[float, ...]:
    """Parse numbers that commas separate."""
    return tuple(number(part, what) for part in text.split(","))


def pair(text: str, what: str) -> tuple[float, float]:
    """Parse two numbers that a comma separates."""
    ends = numbers(text, what)
    if len(ends) != 2:
        raise InputError(f"got {what} {text}, expected two numbers such as 0,1")
    return ends[0], ends[1]


def domain(text: str) -> tuple[float, float] | None:
    """Parse two numbers, the smaller first; `none` gives None."""
    if text == "none":
        return None
    low, high = pair(text, "--domain")
    if not low < high:
        raise InputError(f"got --domain {text}, expected the smaller number first, as in 0,1")
    return low, high


def sides(text: str) -> tuple[int, int]:
    """Parse a height and a width."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})?", text):
        raise InputError(f"got --size {text}, expected a side such as 224, or a height and a width such as 224,160")
    both = [int(side) for side in text.split(",")]
    return both[0], both[-1]


def groups(text: str) -> tuple[str, list[int], dict[str, bool]]:
    """Parse groups: the name of a function of `pm.groups`, the counts after its colon, and its other settings."""
    kind, colon, count = text.partition(":")
    cells = count.removesuffix(":smooth")
    smooth = {"smooth": True} if kind == "grid" and cells != count else {}
    count = cells if smooth else count
    counts = [int(part) for part in count.split(",")] if re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})?", count) else []
    match kind, counts:
        case (("pixels" | "columns" | "superpixels" | "tokens"), []) if not colon:
            return kind, counts, {}
        case ("grid", [_] | [_, _]) | (("superpixels" | "windows"), [_]):
            return kind, counts, smooth
    raise InputError(
        f"got --groups {text}, expected pixels, grid:12, grid:8,12, grid:12:smooth, superpixels:50, "
        "columns, windows:8 or tokens"
    )


def bounds(text: str) -> None:
    """Check the names of bounds that pluses join."""
    if not all(name in names.BOUND_NAMES for name in text.split("+")):
        raise InputError(
            f"got bounds {text!r}, expected names among {', '.join(names.BOUND_NAMES)}, joined by + for an intersection"
        )


def device(text: str) -> None:
    """Check the form of a device name. Torch checks later whether the device exists."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", text):
        raise InputError(f"got --device {text}, expected cpu, cuda or cuda:1")


def exported(path: Path) -> None:
    """Check that the name of a file ends in a known format."""
    if path.suffix.lower() not in names.EXPORT_SUFFIXES:
        raise InputError(f"got the name {path}, expected one that ends in {', '.join(names.EXPORT_SUFFIXES)}")


def listed(text: str) -> list[str]:
    """Split names at commas."""
    return [name.strip() for name in text.split(",")]


def all_among(known: Sequence[str], what: str) -> Check:
    """Return the check of an option with names that commas separate."""

    def read(text: str) -> None:
        for name in listed(text):
            if name not in known:
                raise InputError(f"got the {what} {name!r}, expected one of {', '.join(known)}")

    return Check(read)


def one_of(known: Sequence[str], option: str) -> Check:
    """Return the check of an option with one name."""

    def read(text: str) -> None:
        if text not in known:
            near = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
            raise InputError(f"got {option} {text}, expected {near}")

    return Check(read, known)


def settings(given: Sequence[str]) -> dict[str, str]:
    """Parse settings such as samples=50."""
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"got --set {text}, expected a name and a value such as samples=50")
        values[name] = value
    return values


def gigabytes(memory: float) -> int:
    """Convert GiB to bytes."""
    if not 0 < memory < 2**32:
        raise InputError(f"got --memory {memory:g}, expected a number of GiB, such as 4")
    return int(memory * 2**30)


def limit(count: int) -> None:
    """Check a number of samples."""
    if count < 1:
        raise InputError(f"got a limit of {count} samples, expected at least one")


def values(option: str) -> Check:
    """Return the check of an option with numbers that commas separate."""
    return Check(partial(numbers, what=option))


def above_zero(option: str, example: str) -> Check:
    """Return the check of an option with a number above 0."""

    def read(value: float) -> None:
        if not (isfinite(value) and value > 0):
            raise InputError(f"got {option} {value:g}, expected a number above 0, such as {example}")

    return Check(read)
