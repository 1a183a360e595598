"""What a torch module computes by, as a hash: tensors, settings, code, hooks and modes, of it and of all its parts.

Objects are followed as far as they can be read whole: numbers, texts, containers, tensors, modules, functions with what
they refer to, and objects of the user's own classes. Code of what is installed (torch, the standard library) counts
by which object it is: it does not change, but may be replaced. Whatever else a module holds leaves it in doubt.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from proofmap.digest import digest

__all__ = ["Fingerprint"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), slice, range)
_PLAIN_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_TENSORS = (Tensor, nn.Parameter)
_CONTAINERS = (list, tuple, dict, OrderedDict, torch.Size)
_HOOKS = [name for name in vars(torch_module) if name.startswith("_global_forward")]  # of all modules
_ENDS = (nn.Module, object)  # classes that no model adds anything to


class _DoubtError(Exception):
    """Something cannot be read whole."""


@dataclass(frozen=True)
class Fingerprint:
    """Equal where a module computes the same function by the same means."""

    digest: str
    held: tuple[object, ...] = field(compare=False, repr=False)  # what counts by its identity, which stays its own

    @classmethod
    def of(cls, model: nn.Module, like: str) -> Fingerprint | None:
        """That of a module on inputs of which `like` says enough; None where it holds what cannot be read."""
        reader = _Reader()
        hooks = [vars(torch_module)[name] for name in _HOOKS]
        try:
            name = digest([like, *reader.read([getattr(model, "_orig_mod", model), hooks])])
        except Exception:  # an object may do anything when it is read
            return None
        return cls(name, tuple(reader.held))


class _Reader:
    """Spells objects out as texts and tensors, each once."""

    def __init__(self) -> None:
        self.held: list[object] = []
        self._places: dict[int, int] = {}  # of what was spelled already, by its identity

    def read(self, value: Any) -> Iterator[str | Tensor]:
        kind = type(value)
        if kind in _PLAIN or kind in _PLAIN_OF_TORCH:
            yield f"{kind.__name__} {value!r}"
        elif isinstance(value, Enum):
            yield f"{kind.__qualname__}.{value.name}"
        elif kind is ModuleType or kind is BuiltinFunctionType:
            yield from self._identity(value)
        elif kind is set or kind is frozenset:
            if not all(type(entry) in _PLAIN for entry in value):
                raise _DoubtError
            yield f"set {sorted(map(repr, value))}"
        elif id(value) in self._places:
            yield f"again {self._places[id(value)]}"
        else:
            self._places[id(value)] = len(self._places)
            yield kind.__qualname__
            yield from self._whole(value, kind)

    def _whole(self, value: Any, kind: type) -> Iterator[str | Tensor]:
        if kind in _TENSORS:
            yield value.detach()
        elif kind in _CONTAINERS:
            yield str(len(value))
            yield from self._all(*(value.keys() if isinstance(value, dict) else ()))
            yield from self._all(*(value.values() if isinstance(value, dict) else value))
        elif kind is FunctionType:
            yield from self._function(value)
        elif kind is MethodType:
            yield from self._all(value.__func__, value.__self__)
        elif kind is partial:
            yield from self._all(value.func, value.args, value.keywords)
        elif kind in (property, staticmethod, classmethod):
            parts = (value.fget, value.fset) if isinstance(value, property) else (value.__func__,)
            yield from self._all(*parts)
        elif kind is CodeType:
            yield from self._all(value.co_code, value.co_consts, value.co_names)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, nn.Module) and not isinstance(value, torch.jit.ScriptModule):
            yield from self._all(kind, vars(value))
        elif not any(_installed(base.__module__) for base in kind.__mro__[:-1]) and hasattr(value, "__dict__"):
            if any("__slots__" in vars(base) for base in kind.__mro__[:-1]):
                raise _DoubtError
            yield from self._all(kind, vars(value))
        else:
            raise _DoubtError

    def _all(self, *values: Any) -> Iterator[str | Tensor]:
        for value in values:
            yield from self.read(value)

    def _identity(self, value: object) -> Iterator[str]:
        self.held.append(value)
        yield f"{type(value).__name__} {id(value)}"

    def _function(self, function: FunctionType) -> Iterator[str | Tensor]:
        """Its code, and whatever the code refers to."""
        if _installed(function.__module__):
            yield from self._identity(function)
            return
        yield from self._all(function.__code__, function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            yield from self.read(cell.cell_contents)
        names = set(_names(function.__code__))
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            yield name
            yield from self.read(value)
            if isinstance(value, ModuleType) and not _installed(value.__name__):
                for attribute in sorted(names & vars(value).keys()):
                    yield attribute
                    yield from self.read(vars(value)[attribute])

    def _class(self, kind: type) -> Iterator[str | Tensor]:
        """What objects of it do, beside what all modules and objects do."""
        for base in kind.__mro__:
            if base in _ENDS:
                continue
            yield from self._identity(base)
            for name, value in list(vars(base).items()):
                if _installed(base.__module__):
                    yield name
                    yield from self.read(value) if type(value) in _PLAIN else self._identity(value)
                elif isinstance(value, FunctionType) or not name.startswith(("__", "_abc_")):
                    yield name
                    yield from self.read(value) if name != "__init__" else ()


def _names(code: CodeType) -> Iterator[str]:
    """The names that code looks up, and code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _installed(module: str | None) -> bool:
    """Whether a module is no code of the user's."""
    top = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    folders: Iterable[str] = ("site-packages", "dist-packages")
    return top in {*sys.stdlib_module_names, "proofmap"} or any(folder in Path(file).parts for folder in folders)
