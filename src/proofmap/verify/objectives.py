"""Objectives beyond the classes: one output of any network, a region of its outputs, and one label of several.

>>> pm.overlap(model, x, ball, objective=pm.objectives.Output(3, "up")).value.shape
torch.Size([2])
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.classes import require_classes
from proofmap.graph.rewrite.output_heads import Reduction, label_logits, output_and_one, shape_of_outputs

__all__ = ["Label", "Output"]

Direction: TypeAlias = Literal["up", "down", "both"]
Place: TypeAlias = int | slice | Sequence[int | slice]
Logits: TypeAlias = Literal["margin", "class", "mean", "apart"]


@dataclass(frozen=True)
class Output:
    """The largest rise or fall of one output in the ball, measured from its value at x.

        "up"    max over δ of f_k(x + δ) - f_k(x)       "down"  max over δ of f_k(x) - f_k(x + δ)
        "both"  the larger of the two, the largest change

    The overlap is this largest change. It is never below 0, and it decides no class. f_k is the output that the model
    itself returns: a final softmax or sigmoid belongs to it. f_k(x) is the number that `Overlap.value` holds.

    Args:
        at: The output: a number for outputs (N, outputs), or a tuple with one number for each axis after the samples.
            Slices in the tuple select a region.
        direction: "up", "down" or "both".
        reduce: The "mean" or the "maximum" of a region. The mean has the weights 1 / n, as the network's precision
            stores them.
        name: What the output is, for figures and reports, such as "blood pressure".
        unit: Its unit, such as "mmHg".

    Raises:
        InputError: `at` is no index, or a word is unknown.

    >>> rise = pm.objectives.Output(3, "up", name="score of class 3")
    >>> pm.EVA(model, ball, groups=cells, objective=rise).explain(x).scores.shape
    torch.Size([2, 16])
    >>> pm.objectives.Output((0, slice(10, 20), slice(None)), "both", reduce="mean").text
    'mean of output (0, 10:20, :)'
    """

    at: Place
    direction: Direction = "both"
    _: KW_ONLY
    reduce: Reduction = "mean"
    name: str | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        """Raise InputError for settings that no network has."""
        given: Any = self.at
        parts = tuple(given) if isinstance(given, tuple | list) else (given,)
        good = bool(parts) and all(isinstance(p, slice) or (type(p) is int and p >= 0) for p in parts)
        if not good or any(type(end) not in (int, type(None)) for p in parts for end in _ends(p)):
            raise InputError(
                f"got output {self.at!r}, expected its number, 0 or more, or a tuple of numbers and slices with one "
                "entry for each axis of the output, such as (0, slice(2, 5))"
            )
        object.__setattr__(self, "at", parts[0] if len(parts) == 1 and type(parts[0]) is int else parts)
        for what, got, words in (("direction", self.direction, Direction), ("reduce", self.reduce, Reduction)):
            if got not in get_args(words):
                raise InputError(f"got {what}={got!r}, expected one of {', '.join(map(repr, get_args(words)))}")
        if not isinstance(self.unit, str) or not isinstance(self.name, str | None):
            raise InputError(f"got name={self.name!r} and unit={self.unit!r}, expected texts")

    @property
    def places(self) -> tuple[int | slice, ...]:
        """The index as a tuple, with one entry for each axis of the output."""
        return (self.at,) if isinstance(self.at, int | slice) else tuple(self.at)

    @property
    def region(self) -> bool:
        """True if the output is a region: the index has slices."""
        return any(isinstance(p, slice) for p in self.places)

    @property
    def text(self) -> str:
        """The output in words: its name, or its position."""
        if self.name is not None:
            return self.name
        where = _place_text(self.places)
        return f"{self.reduce} of output {where}" if self.region else f"output {where}"

    def entries(self, graph: Graph) -> list[int]:
        """Return the positions in the flat output of the model. Raise InputError if the output does not exist."""
        shape = shape_of_outputs(graph)
        sides = ", ".join(map(str, shape))
        if len(self.places) != len(shape):
            given = f"{len(self.places)} number{'s' * (len(self.places) != 1)}"
            raise InputError(
                f"got output {_place_text(self.places)}, {given}, expected {len(shape)}: the model's output has shape "
                f"(N, {sides})"
            )
        for place, side in zip(self.places, shape, strict=True):
            if isinstance(place, int) and place >= side:
                raise InputError(
                    f"got output {_place_text(self.places)}, expected {_numbers(side)} where it has {place}: the "
                    f"model's output has shape (N, {sides})"
                )
        picked = torch.arange(graph.classes if shape != (1,) else 1).reshape(shape)[self.places].flatten()
        if not len(picked):
            raise InputError(
                f"got output {_place_text(self.places)}, a region without entries: the model's output has shape "
                f"(N, {sides})"
            )
        return [int(k) for k in picked]

    def record(self) -> dict[str, Any]:
        """Return the objective as JSON; `read_objective` reads it."""
        stated = {"output": _place_text(self.places).strip("()"), "direction": self.direction}
        region = {"reduce": self.reduce} if self.region else {}
        named = {} if self.name is None else {"name": self.name}
        return {**stated, **region, **named, **({"unit": self.unit} if self.unit else {})}


@dataclass(frozen=True)
class Label:
    """One label of a multi-label network as a decision: class 1 if its output z is above 0, class 0 if it is below.

    The network gets the logits (0, z). If each label has its own sigmoid at the end, z is the input of the sigmoid, so
    that 0 stands for a probability of 1/2. The overlap is that of "margin": below 0 it proves the label.

    Args:
        at: The output: a number for outputs (N, labels), or a tuple with one number for each axis after the samples.

    Raises:
        InputError: `at` is no index of one output.

    >>> over = pm.overlap(model, x, ball, objective=pm.objectives.Label(7))
    >>> over.target          # label 7 is on at the first sample alone
    tensor([1, 0])
    """

    at: int | Sequence[int]

    def __post_init__(self) -> None:
        """Raise InputError for an index of several outputs."""
        one = Output(self.at)
        if one.region:
            raise InputError(f"got label {self.at!r}, a region, expected the index of one output")
        object.__setattr__(self, "at", one.at)

    @property
    def text(self) -> str:
        """The label in words."""
        return f"label {_place_text(Output(self.at).places)}"

    def record(self) -> dict[str, Any]:
        """Return the objective as JSON; `read_objective` reads it."""
        return {"label": _place_text(Output(self.at).places).strip("()")}


_PLACE = re.compile(r"\d+|(-?\d+)?:(-?\d+)?(:(-?\d+)?)?", re.ASCII)

Objective: TypeAlias = Logits | Output | Label


def check_objective(said: str, got: Any) -> None:
    """Raise InputError unless the value is an objective of the logits, an `Output` or a `Label`."""
    if not isinstance(got, Output | Label) and (not isinstance(got, str) or got not in get_args(Logits)):
        known = ", ".join(map(repr, get_args(Logits)))
        raise InputError(f"{said}={got!r}, expected one of {known}, or pm.objectives.Output(0, 'up')")


def read_objective(recorded: object) -> object:
    """Return the objective that a record states: a word, an `Output` or a `Label`."""
    if not isinstance(recorded, Mapping):
        return recorded
    if "label" in recorded:
        return Label(read_places(str(recorded["label"])))  # type: ignore[arg-type]
    settings = {key: value for key, value in recorded.items() if key != "output"}
    return Output(read_places(str(recorded.get("output"))), **settings)


def read_places(text: str) -> tuple[int | slice, ...]:
    """Return an index such as "3" or "0, 10:20, :" as a tuple of numbers and slices."""
    places: list[int | slice] = []
    for part in text.split(","):
        ends = [end.strip() for end in part.split(":")]
        if not _PLACE.fullmatch(part.strip()):
            raise InputError(f"got the output {text!r}, expected numbers and ranges such as 3 or 0,10:20,:")
        places.append(int(ends[0]) if len(ends) == 1 else slice(*(int(end) if end else None for end in ends)))
    return tuple(places)


def objective_graph(graph: Graph, objective: object) -> Graph:
    """Return the network whose outputs the objective's forms read.

    They are logits for an objective of the logits, (0, z) for a label, and (v, 1) for an output v.
    """
    if isinstance(objective, Output):
        return output_and_one(graph, objective.entries(graph), objective.reduce)
    if isinstance(objective, Label):
        return label_logits(graph, Output(objective.at).entries(graph)[0])
    return require_classes(graph)


def refuse_target(objective: object, target: object, what: str = "target") -> None:
    """Raise InputError if a class is given for an objective about one output."""
    if isinstance(objective, Output) and target is not None:
        raise InputError(
            f"got {what} {target!r} with objective={objective.text!r}, expected none: the objective states the output, "
            "and an output has no class"
        )


def _numbers(side: int) -> str:
    return "0" if side == 1 else f"numbers from 0 to {side - 1}"


def _ends(place: int | slice) -> tuple[Any, ...]:
    return (place.start, place.stop, place.step) if isinstance(place, slice) else ()


def _place_text(places: Sequence[int | slice]) -> str:
    """Word an index: "3", "(0, 10:20, :)"."""
    parts = [str(p) if isinstance(p, int) else _slice_text(p) for p in places]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _slice_text(place: slice) -> str:
    ends = _ends(place) if place.step is not None else _ends(place)[:2]
    return ":".join("" if end is None else str(end) for end in ends)
