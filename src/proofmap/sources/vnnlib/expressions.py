"""Parse the text of a VNN-LIB file into nested expressions, and linear terms into exact fractions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch

from proofmap.errors import FileError

_MAX_NESTING = 16  # open parentheses
_MAX_NUMBER_LENGTH = 1000  # characters
_MAX_NUMBER = torch.finfo(torch.float32).max
_TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_VARIABLE = re.compile(r"([XY])_(\d{1,8})", re.ASCII)

Expression = Any  # a token, or a list of expressions
Linear = tuple[dict[int, Fraction], Fraction]  # coefficients of the outputs, and a constant


def commands(text: str, where: str) -> Iterator[list[Expression]]:
    """Yield the parenthesised commands of a text as nested lists of tokens."""
    open_lists: list[list[Expression]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token.startswith(";"):
            continue
        if token == "(":
            if len(open_lists) == _MAX_NESTING:
                raise FileError(f"{where} nests more than {_MAX_NESTING} parentheses, expected a VNN-LIB file")
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


def is_variable(text: str) -> bool:
    """Return whether the text is a variable: X_0, Y_0 and so on."""
    return _VARIABLE.fullmatch(text) is not None


@dataclass
class Terms:
    """Evaluates terms, given the variables that the file has declared so far."""

    where: str
    declared: set[str] = field(default_factory=set)

    def names(self, term: Expression) -> Iterator[str]:
        """Yield the variables in a term."""
        if not isinstance(term, str):
            for part in term[1:]:
                yield from self.names(part)
        elif is_variable(term):
            if term not in self.declared:
                raise FileError(f"{self.where} uses {term}, which it does not declare")
            yield term

    def linear(self, term: Expression) -> Linear:
        """Return a term as a linear form of the outputs: a sum of outputs times numbers."""
        match term:
            case str(name) if is_variable(name):
                return {int(name[2:]): Fraction(1)}, Fraction(0)
            case str():
                return {}, self.number(term)
            case ["-", part]:
                return self._sum([(-1, self.linear(part))])
            case ["-", first, *rest]:
                return self._sum([(1, self.linear(first)), *((-1, self.linear(part)) for part in rest)])
            case ["+", *parts] if parts:
                return self._sum([(1, self.linear(part)) for part in parts])
            case ["*", *parts] if parts:
                product: Linear = {}, Fraction(1)
                for part in parts:
                    multiplied = self.linear(part)
                    if product[0] and multiplied[0]:
                        raise self.strange(term)
                    (_, factor), form = (product, multiplied) if multiplied[0] else (multiplied, product)
                    product = self._sum([(factor, form)])
                return product
            case _:
                raise self.strange(term)

    def _sum(self, parts: list[tuple[Fraction | int, Linear]]) -> Linear:
        """Return the sum of factor · form."""
        coefficients: dict[int, Fraction] = {}
        constant = Fraction(0)
        for factor, (terms, more) in parts:
            constant += factor * more
            for k, value in terms.items():
                coefficients[k] = coefficients.get(k, Fraction(0)) + factor * value
        for value in (*coefficients.values(), constant):
            self._check(value)
        return coefficients, constant

    def number(self, term: Expression) -> Fraction:
        """Parse a number in the range of float32, as an exact fraction."""
        match term:
            case ["-", str(text)] if _is_number(text):
                value = -_exact(text)
            case str(text) if _is_number(text):
                value = _exact(text)
            case _:
                raise self.strange(term)
        self._check(value)
        return value

    def _check(self, value: Fraction) -> None:
        if abs(value) > _MAX_NUMBER:
            raise FileError(f"{self.where} has a number beyond {_MAX_NUMBER:g}, expected one in the range of float32")

    def strange(self, expression: Expression) -> FileError:
        """Return the error for an expression that is not supported."""
        return FileError(
            f"{self.where} contains {_text(expression)}, expected declare-const, or assert with and, or, each input "
            "between two numbers, and <=, >=, < or > between sums of outputs times numbers"
        )


def _is_number(text: str) -> bool:
    return len(text) <= _MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text) is not None


def _exact(text: str) -> Fraction:
    return Fraction(Decimal(text))


def _text(expression: Expression) -> str:
    """Write an expression as in the file, cut to 80 characters."""
    if isinstance(expression, str):
        return expression[:80]
    return f"({' '.join(map(_text, expression[:4]))}{' ...' * (len(expression) > 4)})"[:80]
