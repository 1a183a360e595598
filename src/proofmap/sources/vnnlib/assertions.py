"""The assertions of a VNN-LIB file in disjunctive normal form: each case is a box of inputs and rows of the outputs.

An `or` adds cases. The `and` of two of them multiplies the cases, up to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofmap.errors import FileError
from proofmap.sources.vnnlib.declared_variables import (
    DeclaredVariables,
    FlatVariables,
    Shape,
    TensorPlace,
    TensorVariables,
)
from proofmap.sources.vnnlib.expressions import (
    MAX_NUMBER,
    MAX_NUMBER_LENGTH,
    Expression,
    Terms,
    commands,
    split_version,
)

_MAX_CASES = 2**17  # cases of a file: an `and` of several `or` multiplies them
_MAX_ATOMS = 2**24  # limits and rows of all cases together
_SIGNS = ("<=", ">=", "<", ">", "==", "=", "!=")


@dataclass(frozen=True)
class Row:
    """Σ coefficient_k · Y_k + constant <= 0, or < 0 if strict."""

    coefficients: Mapping[int, Fraction]
    constant: Fraction
    strict: bool


@dataclass
class _Case:
    """A conjunction: limits of inputs and rows of outputs."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def limit(self, index: int, value: float, upper: bool) -> None:
        """Add an upper or a lower limit of one input."""
        if upper:
            self.upper[index] = min(value, self.upper.get(index, inf))
        else:
            self.lower[index] = max(value, self.lower.get(index, -inf))

    def copy(self) -> _Case:
        return _Case(dict(self.lower), dict(self.upper), list(self.rows))

    @property
    def size(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.rows)


@dataclass(frozen=True, eq=False)
class Stated:
    """A box of inputs with its cases of outputs."""

    lower: NDArray[Any]  # float64
    upper: NDArray[Any]
    cases: list[list[Row]]


@dataclass
class Assertions:
    """The assertions of the commands so far: common and cases[0], or common and cases[1], and so on."""

    terms: Terms
    common: _Case = field(default_factory=_Case)  # true in every case
    cases: list[_Case] = field(default_factory=lambda: [_Case()])

    @classmethod
    def read(cls, text: str, where: str) -> Assertions:
        """Parse the whole text of a file."""
        version, start = split_version(text, where)
        variables: DeclaredVariables = FlatVariables(where) if version == 1 else TensorVariables(where)
        assertions = cls(Terms(variables))
        for command in commands(text, where, version, start):
            assertions._add(command)
        return assertions

    @property
    def where(self) -> str:
        """The file's name."""
        return self.terms.where

    @property
    def outputs(self) -> int:
        """The number of declared outputs."""
        return self.terms.variables.count("Y")

    @property
    def shapes(self) -> tuple[Shape | None, Shape | None]:
        """The declared shapes of the input and of the output; None in version 1."""
        return self.terms.variables.shape("X"), self.terms.variables.shape("Y")

    def boxes(self) -> list[Stated]:
        """Return the boxes that are not empty, with the cases of each; raise FileError if all are empty."""
        variables, count = self.terms.variables, self.terms.variables.count("X")
        alike: dict[Any, list[_Case]] = {}
        for case in self.cases:
            key = tuple(sorted(case.lower.items())), tuple(sorted(case.upper.items()))
            alike.setdefault(key, []).append(case)
        least, most = (
            _corner(np.full(count, far), limits, join)
            for far, limits, join in ((-inf, self.common.lower, np.maximum), (inf, self.common.upper, np.minimum))
        )
        boxes, empty = [], None
        for cases in alike.values():
            lower, upper = _corner(least, cases[0].lower, np.maximum), _corner(most, cases[0].upper, np.minimum)
            for k in np.flatnonzero(np.isinf(lower) | np.isinf(upper))[:1]:
                name = variables.name(TensorPlace("X", int(k)))
                raise FileError(f"{self.where} gives {name} no limit on one side, expected a box")
            wrong = np.flatnonzero(lower > upper)
            if len(wrong) == 0:
                boxes.append(Stated(lower, upper, [[*self.common.rows, *case.rows] for case in cases]))
            else:
                k, name = wrong[0], variables.name(TensorPlace("X", int(wrong[0])))
                empty = f"{self.where} keeps {name} between {lower[k]:g} and {upper[k]:g}: it is empty"
        if not boxes:
            raise FileError(str(empty))
        return boxes

    def _add(self, command: list[Expression]) -> None:
        match command:
            case ["assert", expression]:
                self._state(expression)
            case _:
                if not self.terms.variables.declare(command):
                    raise self.terms.strange(command)

    def _state(self, expression: Expression) -> None:
        """Add an assertion; one without `or` is kept apart from the cases, so that there are fewer."""
        match self._as_prefix(expression):
            case ["and", *parts] if parts:
                for part in parts:
                    self._state(part)
            case ["or", part]:
                self._state(part)
            case ["or", *_] as either:
                self.cases = self._meet(self.cases, either)
            case atom:
                self._add_atom([self.common], atom)

    def _meet(self, cases: list[_Case], expression: Expression) -> list[_Case]:
        """Return the cases, each combined with the expression."""
        match self._as_prefix(expression):
            case ["and", *parts] if parts:
                for part in parts:
                    limit = self._plain_limit(part) if type(part) is tuple else None  # most of a large file
                    if limit is None:
                        cases = self._meet(cases, part)
                        continue
                    for case in cases:
                        case.limit(*limit)
                return cases
            case ["or", *parts] if parts:
                met: list[_Case] = []
                atoms = 0
                for part in parts:
                    added = self._meet([case.copy() for case in cases], part)
                    atoms += sum(case.size for case in added)
                    met += added
                    if len(met) > _MAX_CASES or atoms > _MAX_ATOMS:
                        many = f"more than {_MAX_CASES} cases of or" if len(met) > _MAX_CASES else "too many conditions"
                        raise FileError(f"{self.where} has {many}, expected fewer: split the file")
                return met
            case atom:
                self._add_atom(cases, atom)
                return cases

    def _as_prefix(self, expression: Expression) -> Expression:
        """Return a comparison of version 2 in the prefix form of <=, >=, < and >; any other expression unchanged."""
        typed = isinstance(self.terms.variables, TensorVariables)
        if not typed or isinstance(expression, str) or len(expression) != 3:
            return expression
        first, second, third = expression
        if second in _SIGNS and first not in _SIGNS:  # (a < b)
            first, second = second, first
        match first:
            case "==" | "=":
                return ["and", ["<=", second, third], [">=", second, third]]
            case "!=":
                return ["or", ["<", second, third], [">", second, third]]
            case _:
                return (first, second, third) if isinstance(expression, tuple) else [first, second, third]

    def _add_atom(self, cases: list[_Case], expression: Expression) -> None:
        """Add a limit of an input or a row of outputs to every case."""
        limit = self._plain_limit(expression) if type(expression) is tuple else None
        found = self._atom(expression) if limit is None else limit
        if isinstance(found, Row):
            for case in cases:
                case.rows.append(found)
        else:
            for case in cases:
                case.limit(*found)

    def _plain_limit(self, expression: Expression) -> tuple[int, float, bool] | None:
        """Return the limit of an input by a number; None for an output or a number that is not in range."""
        sign, name, number = expression
        place = self.terms.variables.find(name)
        if place is None or place[0] != "X" or len(number) > MAX_NUMBER_LENGTH:
            return None
        value = float(number)  # the nearest float64, as of the exact fraction
        return (place[1], value, sign == "<=") if abs(value) <= MAX_NUMBER else None

    def _atom(self, expression: Expression) -> Row | tuple[int, float, bool]:
        match expression:
            case ["<=" | "<" as sign, low, high] | [">=" | ">" as sign, high, low]:
                strict = sign in ("<", ">")
            case _:
                raise self.terms.strange(expression)
        names = [*self.terms.names(low), *self.terms.names(high)]
        if not names:
            raise FileError(f"{self.where} compares two numbers, expected a variable")
        if any(_is_input(self.terms.variables.find(name)) for name in names):
            return self._end(expression, low, high, names, strict)
        coefficients, constant = self._difference(low, high)
        return Row({place.position: value for place, value in coefficients.items()}, constant, strict)

    def _difference(self, low: Expression, high: Expression) -> tuple[dict[TensorPlace, Fraction], Fraction]:
        """Return low - high."""
        (below, less), (above, more) = self.terms.linear(low), self.terms.linear(high)
        keys = below.keys() | above.keys()
        return {k: below.get(k, Fraction(0)) - above.get(k, Fraction(0)) for k in keys}, less - more

    def _end(
        self, expression: Expression, low: Expression, high: Expression, names: list[str], strict: bool
    ) -> tuple[int, float, bool]:
        """Return the limit that low <= high sets for its only input: (index, value, whether it is an upper limit)."""
        typed = isinstance(self.terms.variables, TensorVariables)
        others = [name for name in names if name != names[0]]
        if others or (len(names) > 1 and not typed):
            other = (others or names[1:])[0]
            raise FileError(f"{self.where} relates {names[0]} to {other}, expected each input between two numbers")
        if strict and typed:
            raise FileError(
                f"{self.where} limits the input {names[0]} by < or >, which is not supported, expected <= or >="
            )
        if strict or (names[0] not in (low, high) and not typed):
            raise self.terms.strange(expression)
        if not typed:  # the other side is a number
            self.terms.number(high if low == names[0] else low)
        coefficients, constant = self._difference(low, high)
        ((place, factor),) = coefficients.items()
        if factor == 0:
            raise FileError(f"{self.where} compares two numbers, expected a variable")
        limit = -constant / factor
        self.terms.check(limit)
        return place.position, float(limit), factor > 0


def _is_input(place: TensorPlace | None) -> bool:
    return place is not None and place.letter == "X"


def _corner(base: NDArray[Any], limits: Mapping[int, float], join: np.ufunc) -> NDArray[Any]:
    """Return a corner of a box with more limits; `join` chooses the tighter of two."""
    corner: NDArray[Any] = base.copy()
    if limits:
        index, values = np.fromiter(limits, np.int64), np.fromiter(limits.values(), np.float64)
        corner[index] = join(corner[index], values)
    return corner
