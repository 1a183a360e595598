"""Parse the text of a VNN-LIB file into nested expressions, and linear terms into exact fractions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch

from proofmap.errors import FileError
from proofmap.sources.vnnlib.declared_variables import DeclaredVariables, TensorPlace, TensorVariables

_MAX_NESTING = 16  # open parentheses
MAX_NUMBER_LENGTH = 1000  # characters
MAX_NUMBER = torch.finfo(torch.float32).max
_NUMBER_PATTERN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NUMBER = re.compile(_NUMBER_PATTERN, re.ASCII)
# Version 2 writes indices in brackets, and names of ONNX nodes in quotes.
_ELEMENT_PATTERN = r"[A-Za-z]\w*\s*\[[\s\d,]*\]"


def _token_pattern(variable: str, *more: str) -> re.Pattern[str]:
    """Return the pattern of a comment, of a whole limit of a variable (in three groups), or of one token.

    Most of a large file are limits, so one match reads each of them.
    """
    limit = rf"\(\s*(<=|>=)\s+({variable})\s+({_NUMBER_PATTERN})\s*\)"
    return re.compile("|".join([r";[^\n]*", limit, r"[()]", *more, r"[^\s();]+"]), re.ASCII)


_AROUND_INDICES = re.compile(r"\s*([\[\],])\s*")
_TOKENS = {
    1: _token_pattern(r"X_\d{1,8}"),
    2: _token_pattern(r"[A-Za-z]\w*\[[\d,]*\]", _ELEMENT_PATTERN, r'"[^"\n]*"'),
}
_VERSION = re.compile(r"(?:\s|;[^\n]*\n)*\(\s*vnnlib-version\s+<(\d+)\.(\d+)>\s*\)", re.ASCII)

Expression = Any  # a token, or a sequence of expressions: a tuple for a limit, else a list
Linear = tuple[dict[TensorPlace, Fraction], Fraction]  # coefficients of inputs and outputs, and a constant


def split_version(text: str, where: str) -> tuple[int, int]:
    """Return the version of the language, 1 or 2, and where the text goes on after its declaration."""
    found = _VERSION.match(text)
    if found is None:
        return 1, 0
    if found[1] != "2":
        raise FileError(f"{where} has version {found[1]}.{found[2]} of VNN-LIB, expected 2.0, or 1.0 without a version")
    return 2, found.end()


def commands(text: str, where: str, version: int = 1, start: int = 0) -> Iterator[list[Expression]]:
    """Yield the parenthesised commands of a text as nested lists of tokens. A limit (<= X_0 0.5) is a tuple."""
    open_lists: list[list[Expression]] = []
    for match in _TOKENS[version].finditer(text, start):
        if match.lastindex is not None:
            done: Expression = match.groups()
            if open_lists:
                open_lists[-1].append(done)
            else:
                yield list(done)
            continue
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
            open_lists[-1].append(_AROUND_INDICES.sub(r"\1", token) if token.endswith("]") else token)
        else:
            done = open_lists.pop()
            if open_lists:
                open_lists[-1].append(done)
            else:
                yield done
    if open_lists:
        raise FileError(f"{where} ends inside parentheses: check that it was copied whole")


@dataclass
class Terms:
    """Evaluates terms, given the variables that the file has declared so far."""

    variables: DeclaredVariables

    @property
    def where(self) -> str:
        """The file's name."""
        return self.variables.where

    def names(self, term: Expression) -> Iterator[str]:
        """Yield the variables in a term."""
        if not isinstance(term, str):
            for part in term[1:]:
                yield from self.names(part)
        elif self.variables.find(term) is not None:
            yield term

    def linear(self, term: Expression) -> Linear:
        """Return a term as a linear form of the variables: a sum of variables times numbers."""
        match term:
            case str(name) if (place := self.variables.find(name)) is not None:
                return {place: Fraction(1)}, Fraction(0)
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
                        raise self._product_of_variables(term)
                    (_, factor), form = (product, multiplied) if multiplied[0] else (multiplied, product)
                    product = self._sum([(factor, form)])
                return product
            case _:
                raise self.strange(term)

    def _product_of_variables(self, term: Expression) -> FileError:
        if isinstance(self.variables, TensorVariables):
            return FileError(
                f"{self.where} uses {text_of(term)}, a product of variables, which is not supported, expected sums of "
                "variables times numbers"
            )
        return self.strange(term)

    def _sum(self, parts: list[tuple[Fraction | int, Linear]]) -> Linear:
        """Return the sum of factor · form."""
        coefficients: dict[TensorPlace, Fraction] = {}
        constant = Fraction(0)
        for factor, (terms, more) in parts:
            constant += factor * more
            for k, value in terms.items():
                coefficients[k] = coefficients.get(k, Fraction(0)) + factor * value
        for value in (*coefficients.values(), constant):
            self.check(value)
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
        self.check(value)
        return value

    def check(self, value: Fraction) -> None:
        """Raise FileError for a number beyond the range of float32."""
        if abs(value) > MAX_NUMBER:
            raise FileError(f"{self.where} has a number beyond {MAX_NUMBER:g}, expected one in the range of float32")

    def strange(self, expression: Expression) -> FileError:
        """Return the error for an expression that is not supported."""
        declaration, inputs, signs = "declare-const", "each input between two numbers", "<=, >=, < or >"
        if isinstance(self.variables, TensorVariables):
            declaration, signs = "declare-network", "<=, >=, ==, < or >"
        return FileError(
            f"{self.where} contains {text_of(expression)}, expected {declaration}, or assert with and, or, {inputs}, "
            f"and {signs} between sums of outputs times numbers"
        )


def _is_number(text: str) -> bool:
    """Return whether the text is a number, of a length that a file may have."""
    return len(text) <= MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text) is not None


def _exact(text: str) -> Fraction:
    return Fraction(Decimal(text))


def text_of(expression: Expression) -> str:
    """Write an expression as in the file, cut to 80 characters."""
    if isinstance(expression, str):
        return expression[:80]
    return f"({' '.join(map(text_of, expression[:4]))}{' ...' * (len(expression) > 4)})"[:80]
