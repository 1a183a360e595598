"""What the texts of options say, as plain values: a wrong one is refused here, before anything is loaded.

An option carries its `Check`, and no command starts before all of its options have passed theirs.
"""

from __future__ import annotations

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
from proofmap.settings import number_of


@dataclass(frozen=True)
class Check:
    """Stands beside an option in its annotation: `read` raises InputError for a text that says nothing."""

    read: Callable[[Any], object]


def number(text: str, what: str) -> float:
    """0.02, 2/255 or 0.5/255."""
    try:
        return number_of(text)
    except ValueError:
        raise InputError(f"got {what} {text}, expected a number such as 0.02 or 2/255") from None


def radius(text: str) -> float | Literal["auto"]:
    """A number of at least 0, or auto."""
    if text == "auto":
        return "auto"
    eps = number(text, "--eps")
    if not (isfinite(eps) and eps >= 0):
        raise InputError(f"got --eps {text}, expected a radius of at least 0, such as 0.02 or 2/255")
    return eps


def day(text: str) -> date:
    """A day as ISO 8601 has it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"got --date {text}, expected a day such as 2026-03-01") from None


def numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers between commas."""
    return tuple(number(part, what) for part in text.split(","))


def pair(text: str, what: str) -> tuple[float, float]:
    """Two numbers."""
    ends = numbers(text, what)
    if len(ends) != 2:
        raise InputError(f"got {what} {text}, expected two numbers such as 0,1")
    return ends[0], ends[1]


def domain(text: str) -> tuple[float, float] | None:
    """Two numbers, the smaller first, or none."""
    if text == "none":
        return None
    low, high = pair(text, "--domain")
    if not low < high:
        raise InputError(f"got --domain {text}, expected the smaller number first, as in 0,1")
    return low, high


def sides(text: str) -> tuple[int, int]:
    """A height and a width."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})?", text):
        raise InputError(f"got --size {text}, expected a side such as 224, or a height and a width such as 224,160")
    both = [int(side) for side in text.split(",")]
    return both[0], both[-1]


def groups(text: str) -> tuple[str, list[int], dict[str, bool]]:
    """A kind of groups (a name of `pm.groups`), the counts after its colon, and its other settings."""
    kind, colon, count = text.partition(":")
    cells = count.removesuffix(":smooth")
    smooth = {"smooth": True} if kind == "grid" and cells != count else {}
    count = cells if smooth else count
    counts = [int(part) for part in count.split(",")] if re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})?", count) else []
    match kind, counts:
        case (("pixels" | "columns" | "superpixels"), []) if not colon:
            return kind, counts, {}
        case ("grid", [_] | [_, _]) | (("superpixels" | "windows"), [_]):
            return kind, counts, smooth
    raise InputError(
        f"got --groups {text}, expected pixels, grid:12, grid:8,12, grid:12:smooth, superpixels:50, "
        "columns or windows:8"
    )


def bounds(text: str) -> None:
    """Names of bounds between pluses."""
    if not all(name in names.BOUNDS for name in text.split("+")):
        raise InputError(
            f"got bounds {text!r}, expected names among {', '.join(names.BOUNDS)}, joined by + for an intersection"
        )


def device(text: str) -> None:
    """A kind of place to compute at; whether it is there is for torch to say."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", text):
        raise InputError(f"got --device {text}, expected cpu, cuda or cuda:1")


def exported(path: Path) -> None:
    """A name that ends in a format."""
    if path.suffix.lower() not in names.FORMATS:
        raise InputError(f"got the name {path}, expected one that ends in {', '.join(names.FORMATS)}")


def listed(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",")]


def all_among(known: Sequence[str], what: str) -> Check:
    """For names between commas."""

    def read(text: str) -> None:
        for name in listed(text):
            if name not in known:
                raise InputError(f"got the {what} {name!r}, expected one of {', '.join(known)}")

    return Check(read)


def one_of(known: Sequence[str], option: str) -> Check:
    """For a name alone."""

    def read(text: str) -> None:
        if text not in known:
            near = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
            raise InputError(f"got {option} {text}, expected {near}")

    return Check(read)


def settings(given: Sequence[str]) -> dict[str, str]:
    """Names and values on either side of =."""
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"got --set {text}, expected a name and a value such as samples=50")
        values[name] = value
    return values


def gigabytes(memory: float) -> int:
    """Bytes, of GiB."""
    if not 0 < memory < 2**32:
        raise InputError(f"got --memory {memory:g}, expected a number of GiB, such as 4")
    return int(memory * 2**30)


def limit(count: int) -> None:
    """How many samples to take."""
    if count < 1:
        raise InputError(f"got a limit of {count} samples, expected at least one")


def values(option: str) -> Check:
    """For numbers between commas."""
    return Check(partial(numbers, what=option))


def above_zero(option: str, example: str) -> Check:
    """For a number above 0."""

    def read(value: float) -> None:
        if not (isfinite(value) and value > 0):
            raise InputError(f"got {option} {value:g}, expected a number above 0, such as {example}")

    return Check(read)
