"""What a torch module computes by, as a hash: tensors, settings, code, hooks and modes, of it and of all its parts.

Objects are followed as far as they can be read whole: numbers, texts, containers, tensors, modules, functions with what
they refer to, and objects of the user's own classes. Code of what is installed (torch, the standard library) counts
by which object it is: it does not change, but may be replaced. Whatever else a module holds leaves it in doubt.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
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

_PLAIN = {
    *(bool, int, float, complex, str, bytes, type(None), type(...), range),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
}
_TENSORS = (Tensor, nn.Parameter)
_CONTAINERS = (list, tuple, dict, OrderedDict, torch.Size)
_PARTS: dict[type, tuple[str, ...]] = {  # that an object consists of
    MethodType: ("__func__", "__self__"),
    CodeType: ("co_code", "co_consts", "co_names"),
    partial: ("func", "args", "keywords"),
    slice: ("start", "stop", "step"),
    property: ("fget", "fset"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
_HOOKS = [name for name in vars(torch_module) if name.startswith("_global_forward")]  # of all modules


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
            reader.read(like, getattr(model, "_orig_mod", model), *hooks)
            return cls(digest(reader.parts), tuple(reader.held))
        except Exception:  # an object may do anything when it is read
            return None


class _Reader:
    """Spells objects out as texts and tensors, each object once."""

    def __init__(self) -> None:
        self.parts: list[str | Tensor] = []
        self.held: list[object] = []
        self._seen: dict[int, tuple[int, object]] = {}  # by identity, which stays an object's own while it is held

    def read(self, *values: Any) -> None:
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                self.parts.append(f"{kind.__name__} {value!r}")
            elif isinstance(value, Enum):
                self.parts.append(f"{kind.__qualname__}.{value.name}")
            elif kind is ModuleType or kind is BuiltinFunctionType:
                self._identity(value)
            elif id(value) in self._seen:
                self.parts.append(f"again {self._seen[id(value)][0]}")
            else:
                self._seen[id(value)] = len(self._seen), value
                self.parts.append(kind.__qualname__)
                self._whole(value, kind)

    def _whole(self, value: Any, kind: type) -> None:
        if kind in _CONTAINERS:
            self.parts.append(str(len(value)))
            if isinstance(value, dict):
                self.read(*value.keys(), *value.values())
            else:
                self.read(*value)
        elif kind in _TENSORS:
            self.parts.append(value.detach())
        elif kind in (set, frozenset) and all(type(entry) in _PLAIN for entry in value):
            self.parts.append(str(sorted(map(repr, value))))
        elif kind is FunctionType:
            self._function(value)
        elif kind in _PARTS:
            self.read(*(getattr(value, part) for part in _PARTS[kind]))
        elif isinstance(value, type):
            self._class(value)
        elif (isinstance(value, nn.Module) and not isinstance(value, torch.jit.ScriptModule)) or _is_open(kind):
            self.read(kind, vars(value))
        else:
            raise TypeError(f"a {kind.__qualname__} cannot be read whole")

    def _identity(self, value: object) -> None:
        self.held.append(value)
        self.parts.append(f"{type(value).__name__} {id(value)}")

    def _function(self, function: FunctionType) -> None:
        """Its code, and whatever the code refers to."""
        if _installed(function.__module__):
            self._identity(function)
            return
        self.read(function.__code__, function.__defaults__, function.__kwdefaults__)
        self.read(*(cell.cell_contents for cell in function.__closure__ or ()))
        names = set(_names(function.__code__))
        for name in sorted(names):
            value = function.__globals__.get(name, sys.modules.get(name))  # some are imported inside
            if value is not None:
                self.read(name, value)
            if isinstance(value, ModuleType):
                self._module(value, names)

    def _module(self, module: ModuleType, names: set[str]) -> None:
        """What code with these names may look up in a module."""
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            self.parts.append(name)
            if not _installed(module.__name__):
                self.read(value)
            elif isinstance(value, ModuleType) and value is not module:
                self._module(value, names - {name})
            else:
                self._identity(value)

    def _class(self, kind: type) -> None:
        """What objects of it do, beside what all objects do."""
        for base in kind.__mro__[:-1]:
            self._identity(base)
            installed = _installed(base.__module__)
            for name, value in list(vars(base).items()):
                if installed and type(value) not in _PLAIN:
                    self.parts.append(name)
                    self._identity(value)
                elif installed or isinstance(value, FunctionType) or not name.startswith(("__", "_abc_")):
                    self.read(name, *(() if name == "__init__" else (value,)))


def _is_open(kind: type) -> bool:
    """Whether all that an object of the class holds is in its attributes."""
    bases = kind.__mro__[:-1]
    return not any(_installed(base.__module__) or "__slots__" in vars(base) for base in bases) and bool(bases)


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
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return top in sys.stdlib_module_names or top == "proofmap" or bool(installed)
