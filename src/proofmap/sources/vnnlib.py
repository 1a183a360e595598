"""VNN-LIB 1.0: what a specification says of a network's inputs, as a box.

    (declare-const X_0 Real) ... (declare-const Y_0 Real) ...
    (assert (<= X_0 0.5)) (assert (>= X_0 0.25)) (assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))

with `and`, `or`, <= and >= between variables and numbers. The inputs have to be one box: a union of boxes, or a
relation between inputs, is refused. What is said of the outputs is checked for its form alone.
(Guidotti et al. 2020, "The VNN-LIB standard", https://www.vnnlib.org)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import FileError
from proofmap.sources.fit import arrange
from proofmap.sources.limited import read_text
from proofmap.sources.preparation import Preparation

__all__ = ["Box", "read_box"]

_LIMIT = 2**26  # bytes of text: half a million inputs
_DEPTH = 16
_TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_VARIABLE = re.compile(r"([XY])_(\d{1,8})", re.ASCII)

Expression = Any  # a token, or a list of expressions


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between two: its middle, and the distance to its faces, for a ball of the norm inf."""

    lower: Tensor  # (*shape) float64
    upper: Tensor

    @property
    def centre(self) -> Tensor:
        """(*shape) float32."""
        return ((self.lower + self.upper) / 2).float()

    @property
    def radius(self) -> Tensor:
        """(*shape) float32, rounded up: what is within it of the centre holds the box."""
        exact = torch.maximum(self.upper - self.centre.double(), self.centre.double() - self.lower)
        up = torch.nextafter(exact.float(), torch.tensor(inf))
        return torch.where(exact > 0, up, 0.0)


def read_box(path: Path, preparation: Preparation) -> Box:
    """The box of a VNN-LIB file, plain or packed by gzip, in the shape of the samples of a network."""
    found = _Specification(str(path))
    for command in _commands(read_text(path, _LIMIT), str(path)):
        found.add(command)
    ends = [arrange(np.array(end), preparation, str(path)) for end in found.ends()]
    lower, upper = (torch.from_numpy(np.ascontiguousarray(end)) for end in ends)
    return Box(lower, upper)


def _commands(text: str, where: str) -> Iterator[list[Expression]]:
    """The parenthesised commands of a text, as nested lists of tokens."""
    open_lists: list[list[Expression]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token.startswith(";"):
            continue
        if token == "(":
            if len(open_lists) == _DEPTH:
                raise FileError(f"{where} nests more than {_DEPTH} parentheses, expected a VNN-LIB file")
            open_lists.append([])
        elif not open_lists:
            raise FileError(f"{where} has {token!r:.80} outside of parentheses, expected a VNN-LIB file")
        elif token != ")":
            open_lists[-1].append(token)
        else:
            done = open_lists.pop()
            if open_lists:
                open_lists[-1].append(done)
            else:
                yield done
    if open_lists:
        raise FileError(f"{where} ends inside parentheses: check that it was copied whole")


@dataclass
class _Specification:
    """What has been said so far."""

    where: str
    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)

    def add(self, command: list[Expression]) -> None:
        match command:
            case ["declare-const", str(name), "Real"] if _VARIABLE.fullmatch(name):
                if name in self.declared:
                    raise FileError(f"{self.where} declares {name} twice, expected it once")
                self.declared.add(name)
            case ["assert", expression]:
                self.state(expression)
            case _:
                raise self.strange(command)

    def state(self, expression: Expression) -> None:
        """Take up what holds of the inputs."""
        match expression:
            case ["and", *parts] if parts:
                for part in parts:
                    self.state(part)
            case ["or", part]:
                self.state(part)
            case ["or", *parts] if parts:
                if any(name.startswith("X") for part in parts for name in self.variables(part)):
                    raise FileError(f"{self.where} allows one box of inputs or another, expected one: split the file")
            case ["<=", low, high] | [">=", high, low]:
                self.order(low, high)
            case _:
                raise self.strange(expression)

    def order(self, low: Expression, high: Expression) -> None:
        """Take up low <= high."""
        names = [self.variable(side) for side in (low, high)]
        inputs = [name for name in names if name is not None and name.startswith("X")]
        if not any(names):
            raise FileError(f"{self.where} compares two numbers, expected a variable")
        if not inputs:
            return
        if all(names):
            raise FileError(f"{self.where} relates {names[0]} to {names[1]}, expected each input between two numbers")
        index = int(inputs[0][2:])
        if names[0]:
            self.upper[index] = min(self.number(high), self.upper.get(index, inf))
        else:
            self.lower[index] = max(self.number(low), self.lower.get(index, -inf))

    def variables(self, expression: Expression) -> Iterator[str]:
        """The names in an expression, whose form is checked on the way."""
        match expression:
            case ["and" | "or", *parts] if parts:
                for part in parts:
                    yield from self.variables(part)
            case ["<=" | ">=", left, right]:
                yield from filter(None, map(self.variable, (left, right)))
            case _:
                raise self.strange(expression)

    def variable(self, term: Expression) -> str | None:
        """A term's name, None where it is a number."""
        if isinstance(term, str) and _VARIABLE.fullmatch(term):
            if term not in self.declared:
                raise FileError(f"{self.where} speaks of {term}, which it does not declare")
            return term
        self.number(term)
        return None

    def number(self, term: Expression) -> float:
        match term:
            case ["-", str(text)] if _NUMBER.fullmatch(text):
                value = -float(text)
            case str(text) if _NUMBER.fullmatch(text):
                value = float(text)
            case _:
                raise self.strange(term)
        if abs(value) > torch.finfo(torch.float32).max:
            raise FileError(f"{self.where} has the number {value:g}, expected one that a float32 holds")
        return value

    def ends(self) -> tuple[list[float], list[float]]:
        """The lower and the upper ends of all inputs."""
        inputs = {int(name[2:]) for name in self.declared if name.startswith("X")}
        if not inputs or max(inputs) != len(inputs) - 1:
            raise FileError(f"{self.where} declares {len(inputs)} inputs, expected X_0, X_1 and so on without a gap")
        for k in range(len(inputs)):
            if k not in self.lower or k not in self.upper:
                raise FileError(f"{self.where} gives X_{k} no end on one side, expected a box")
            if self.lower[k] > self.upper[k]:
                raise FileError(
                    f"{self.where} keeps X_{k} between {self.lower[k]:g} and {self.upper[k]:g}: it is empty"
                )
        return [self.lower[k] for k in range(len(inputs))], [self.upper[k] for k in range(len(inputs))]

    def strange(self, expression: Expression) -> FileError:
        return FileError(
            f"{self.where} says {_text(expression)}, expected declare-const, or assert with and, or, <= and >= between "
            "variables and numbers"
        )


def _text(expression: Expression) -> str:
    """An expression as it stood, cut to the length of a sentence."""
    if isinstance(expression, str):
        return expression[:80]
    return f"({' '.join(map(_text, expression[:4]))}{' ...' * (len(expression) > 4)})"[:80]
