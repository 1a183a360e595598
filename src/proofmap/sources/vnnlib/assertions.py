"""The assertions of a VNN-LIB file in disjunctive normal form: each case is a box of inputs and rows of the outputs.

An `or` adds cases. The `and` of two of them multiplies the cases, up to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any

from proofmap.errors import FileError
from proofmap.sources.vnnlib.expressions import Expression, Terms, commands, is_variable

_MAX_CASES = 10_000  # cases of a file: an `and` of several `or` multiplies them


@dataclass(frozen=True)
class Row:
    """Σ coefficient_k · Y_k + constant <= 0, or < 0 if strict."""

    coefficients: Mapping[int, Fraction]
    constant: Fraction
    strict: bool


@dataclass(frozen=True)
class _End:
    """An upper or a lower limit of one input."""

    index: int
    value: float
    upper: bool


@dataclass
class _Case:
    """A conjunction: limits of inputs and rows of outputs. `add` changes it."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def add(self, atom: Row | _End) -> None:
        if isinstance(atom, Row):
            self.rows.append(atom)
        elif atom.upper:
            self.upper[atom.index] = min(atom.value, self.upper.get(atom.index, inf))
        else:
            self.lower[atom.index] = max(atom.value, self.lower.get(atom.index, -inf))

    def copy(self) -> _Case:
        return _Case(dict(self.lower), dict(self.upper), list(self.rows))


@dataclass(frozen=True)
class Stated:
    """A box of inputs with its cases of outputs."""

    lower: list[float]
    upper: list[float]
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
        assertions = cls(Terms(where))
        for command in commands(text, where):
            assertions._add(command)
        return assertions

    @property
    def where(self) -> str:
        """The file's name."""
        return self.terms.where

    @property
    def outputs(self) -> int:
        """The number of declared outputs."""
        return self._count("Y", "outputs")

    def boxes(self) -> list[Stated]:
        """Return the boxes that are not empty, with the cases of each; raise FileError if all are empty."""
        count = self._count("X", "inputs")
        alike: dict[Any, list[_Case]] = {}
        for case in self.cases:
            alike.setdefault((*sorted(case.lower.items()), None, *sorted(case.upper.items())), []).append(case)
        boxes, empty = [], None
        for cases in alike.values():
            lower, upper = self._ends(cases[0], count)
            wrong = next((k for k in range(count) if lower[k] > upper[k]), None)
            if wrong is None:
                boxes.append(Stated(lower, upper, [[*self.common.rows, *case.rows] for case in cases]))
            else:
                empty = f"{self.where} keeps X_{wrong} between {lower[wrong]:g} and {upper[wrong]:g}: it is empty"
        if not boxes:
            raise FileError(str(empty))
        return boxes

    def _ends(self, case: _Case, count: int) -> tuple[list[float], list[float]]:
        """Return the lower and the upper limits of all inputs."""
        whole = self.common.copy()
        for index, value in case.lower.items():
            whole.add(_End(index, value, upper=False))
        for index, value in case.upper.items():
            whole.add(_End(index, value, upper=True))
        for k in range(count):
            if k not in whole.lower or k not in whole.upper:
                raise FileError(f"{self.where} gives X_{k} no limit on one side, expected a box")
        return [whole.lower[k] for k in range(count)], [whole.upper[k] for k in range(count)]

    def _count(self, letter: str, what: str) -> int:
        numbers = {int(name[2:]) for name in self.terms.declared if name.startswith(letter)}
        if not numbers or max(numbers) != len(numbers) - 1:
            expected = f"{letter}_0, {letter}_1 and so on without a gap"
            raise FileError(f"{self.where} declares {len(numbers)} {what}, expected {expected}")
        return len(numbers)

    def _add(self, command: list[Expression]) -> None:
        match command:
            case ["declare-const", str(name), "Real"] if is_variable(name):
                if name in self.terms.declared:
                    raise FileError(f"{self.where} declares {name} twice, expected it once")
                self.terms.declared.add(name)
            case ["assert", expression]:
                self._state(expression)
            case _:
                raise self.terms.strange(command)

    def _state(self, expression: Expression) -> None:
        """Add an assertion; one without `or` is kept apart from the cases, so that there are fewer."""
        match expression:
            case ["and", *parts] if parts:
                for part in parts:
                    self._state(part)
            case ["or", part]:
                self._state(part)
            case ["or", *_]:
                self.cases = self._meet(self.cases, expression)
            case _:
                self.common.add(self._atom(expression))

    def _meet(self, cases: list[_Case], expression: Expression) -> list[_Case]:
        """Return the cases, each combined with the expression."""
        match expression:
            case ["and", *parts] if parts:
                for part in parts:
                    cases = self._meet(cases, part)
                return cases
            case ["or", *parts] if parts:
                met: list[_Case] = []
                for part in parts:
                    met += self._meet([case.copy() for case in cases], part)
                    if len(met) > _MAX_CASES:
                        many = f"{self.where} has more than {_MAX_CASES} cases of or"
                        raise FileError(f"{many}, expected fewer: split the file")
                return met
            case _:
                atom = self._atom(expression)
                for case in cases:
                    case.add(atom)
                return cases

    def _atom(self, expression: Expression) -> Row | _End:
        match expression:
            case ["<=" | "<" as sign, low, high] | [">=" | ">" as sign, high, low]:
                strict = sign in ("<", ">")
            case _:
                raise self.terms.strange(expression)
        names = [*self.terms.names(low), *self.terms.names(high)]
        if not names:
            raise FileError(f"{self.where} compares two numbers, expected a variable")
        if any(name.startswith("X") for name in names):
            return self._end(expression, low, high, names, strict)
        (below, less), (above, more) = self.terms.linear(low), self.terms.linear(high)
        coefficients = {k: below.get(k, Fraction(0)) - above.get(k, Fraction(0)) for k in below.keys() | above.keys()}
        return Row(coefficients, less - more, strict)

    def _end(self, expression: Expression, low: Expression, high: Expression, names: list[str], strict: bool) -> _End:
        """Return the limit that low <= high sets for its only input."""
        if len(names) > 1:
            raise FileError(f"{self.where} relates {names[0]} to {names[1]}, expected each input between two numbers")
        index = int(names[0][2:])
        if strict or names[0] not in (low, high):
            raise self.terms.strange(expression)
        if low == names[0]:
            return _End(index, float(self.terms.number(high)), upper=True)
        return _End(index, float(self.terms.number(low)), upper=False)
