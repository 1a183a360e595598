"""Variables of VNN-LIB files: X_0, X_1 and so on in version 1, and elements of declared tensors in version 2."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple

from proofmap.errors import FileError

Shape = tuple[int, ...]

_FLAT = re.compile(r"([XY])_(\d{1,8})", re.ASCII)
_ELEMENT = re.compile(r"([A-Za-z]\w*)(?:\[([\s\d,]*)\])?", re.ASCII)
_TENSOR_TYPE = re.compile(r"([A-Za-z]\w*)\[((?:\d{1,9}(?:,\d{1,9})*)?)\]", re.ASCII)
_TYPES = ("real", "float32", "float64")  # in lower case; both float types are read as the network's own numbers
_MAX_ELEMENTS = 2**27  # a tensor with more of them is damage


class TensorPlace(NamedTuple):
    """One number of the network: an input or an output, and its position in the flat tensor."""

    letter: Literal["X", "Y"]
    position: int


@dataclass
class DeclaredVariables(ABC):
    """The declared variables of a file."""

    where: str  # the file's name

    def find(self, token: str) -> TensorPlace | None:
        """Return the place of a variable; None if the token is no variable. Raise FileError if it is undeclared."""
        place = self._find(token)
        if place is None and self._looks_like_one(token):
            raise FileError(f"{self.where} uses {token:.80}, which it does not declare")
        return place

    @abstractmethod
    def declare(self, command: list[Any]) -> bool:
        """Read a declaration; return False if the command is none."""

    @abstractmethod
    def count(self, letter: Literal["X", "Y"]) -> int:
        """Return the number of inputs (X) or outputs (Y). Raise FileError if the declarations have gaps."""

    @abstractmethod
    def shape(self, letter: Literal["X", "Y"]) -> Shape | None:
        """Return the declared shape of the inputs or outputs; None in version 1."""

    @abstractmethod
    def name(self, place: TensorPlace) -> str:
        """Return the variable at a place, as the file writes it."""

    @abstractmethod
    def _find(self, token: str) -> TensorPlace | None: ...

    @abstractmethod
    def _looks_like_one(self, token: str) -> bool: ...


@dataclass
class FlatVariables(DeclaredVariables):
    """Version 1: (declare-const X_0 Real) for each number."""

    places: dict[str, TensorPlace] = field(default_factory=dict)

    def declare(self, command: list[Any]) -> bool:
        match command:
            case ["declare-const", str(name), "Real"] if (found := _FLAT.fullmatch(name)) is not None:
                if name in self.places:
                    raise FileError(f"{self.where} declares {name} twice, expected it once")
                self.places[name] = TensorPlace("X" if found[1] == "X" else "Y", int(found[2]))
                return True
        return False

    def count(self, letter: Literal["X", "Y"]) -> int:
        numbers = {place.position for place in self.places.values() if place.letter == letter}
        if not numbers or max(numbers) != len(numbers) - 1:
            what, expected = _WHAT[letter], f"{letter}_0, {letter}_1 and so on without a gap"
            raise FileError(f"{self.where} declares {len(numbers)} {what}s, expected {expected}")
        return len(numbers)

    def shape(self, letter: Literal["X", "Y"]) -> Shape | None:
        return None

    def name(self, place: TensorPlace) -> str:
        return f"{place.letter}_{place.position}"

    def _find(self, token: str) -> TensorPlace | None:
        return self.places.get(token)

    def _looks_like_one(self, token: str) -> bool:
        return _FLAT.fullmatch(token) is not None


@dataclass
class TensorVariables(DeclaredVariables):
    """Version 2: one network with one input and one output tensor, whose elements are X[0,2] or, of a scalar, X."""

    network: str | None = None
    tensors: dict[str, tuple[Literal["X", "Y"], Shape]] = field(default_factory=dict)
    places: dict[str, TensorPlace] = field(default_factory=dict)  # tokens that were found before

    def declare(self, command: list[Any]) -> bool:
        if command[:1] != ["declare-network"]:
            return False
        match command:
            case [_, str(name), *parts]:
                if self.network is not None:
                    raise self._refused(f"the networks {self.network} and {name:.80}", "one network")
                self.network = name
            case _:
                raise FileError(f"{self.where} declares a network without a name, expected (declare-network f ...)")
        for part in parts:
            self._declare_tensor(part)
        for letter, what in _WHAT.items():
            if not any(one == letter for one, _ in self.tensors.values()):
                raise FileError(f"{self.where} declares a network without {what}, expected one tensor")
        return True

    def _declare_tensor(self, part: Any) -> None:
        match part:
            case [("equal-to" | "isomorphic-to") as relation, *_]:
                raise self._refused(relation, "one network")
            case ["declare-hidden", *_]:
                raise self._refused("declare-hidden", "conditions on the input and the output")
            case ["declare-input" | "declare-output" as kind, str(name), str(tensor_type), *more]:
                shaped = _TENSOR_TYPE.fullmatch(tensor_type)
            case _:
                shaped = None
        if shaped is None or _ELEMENT.fullmatch(name) is None or "[" in name:
            raise FileError(f"{self.where} declares {part!s:.80}, expected (declare-input X float32 [1,5])")
        if more and not (len(more) == 1 and more[0].startswith('"') and more[0].endswith('"')):
            raise self._refused(f"{kind} with {more[0]!s:.80}", "a name, a type and a shape")
        letter: Literal["X", "Y"] = "X" if kind == "declare-input" else "Y"
        if shaped[1].lower() not in _TYPES:
            raise self._refused(f"the type {shaped[1]:.80}", f"one of {', '.join(_TYPES)}")
        if name in self.tensors:
            raise FileError(f"{self.where} declares {name:.80} twice, expected it once")
        if any(one == letter for one, _ in self.tensors.values()):
            raise self._refused(f"several {_WHAT[letter]}s", f"one {_WHAT[letter]} tensor")
        shape = tuple(int(n) for n in shaped[2].split(",") if n)
        if not 0 < prod(shape) <= _MAX_ELEMENTS:
            raise FileError(f"{self.where} declares {name:.80} with shape {list(shape)}, expected sizes above 0")
        self.tensors[name] = letter, shape

    def _refused(self, what: str, expected: str) -> FileError:
        return FileError(f"{self.where} uses {what}, which is not supported, expected {expected}")

    def count(self, letter: Literal["X", "Y"]) -> int:
        return prod(self._shape(letter))

    def shape(self, letter: Literal["X", "Y"]) -> Shape | None:
        return self._shape(letter)

    def _shape(self, letter: Literal["X", "Y"]) -> Shape:
        for one, shape in self.tensors.values():
            if one == letter:
                return shape
        raise FileError(f"{self.where} declares no network, expected (declare-network f ...)")

    def name(self, place: TensorPlace) -> str:
        (name, shape), rest, indices = (
            next((n, shape) for n, (letter, shape) in self.tensors.items() if letter == place.letter),
            place.position,
            list[int](),
        )
        for size in reversed(shape):
            indices.insert(0, rest % size)
            rest //= size
        return f"{name}[{','.join(map(str, indices))}]" if shape else name

    def _find(self, token: str) -> TensorPlace | None:
        if token in self.places:
            return self.places[token]
        found = _ELEMENT.fullmatch(token)
        if found is None or found[1] not in self.tensors:
            return None
        letter, shape = self.tensors[found[1]]
        parts = found[2].split(",") if found[2] else []
        indices = [int(n) if n.isdigit() else -1 for n in parts]
        if len(indices) != len(shape) or any(not 0 <= k < n for k, n in zip(indices, shape, strict=True)):
            raise FileError(f"{self.where} uses {token:.80} of a tensor of shape {list(shape)}, expected its indices")
        index = 0
        for k, n in zip(indices, shape, strict=True):
            index = index * n + k
        self.places[token] = TensorPlace(letter, index)
        return self.places[token]

    def _looks_like_one(self, token: str) -> bool:
        return _ELEMENT.fullmatch(token) is not None


_WHAT: dict[Literal["X", "Y"], str] = {"X": "input", "Y": "output"}
