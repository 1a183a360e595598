"""Opaque part of a torch module: the module runs up to a value between two submodules, which a hook reads.

The hook ends the call. The module is a copy in evaluation mode and takes batches of any size.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from proofmap.errors import ModelError, first_line
from proofmap.graph.opaque import Missing, OpaqueFunction
from proofmap.graph.torch.compiled import uncompiled

Side = Literal["input", "output"]


@dataclass(frozen=True)
class Site:
    """An input or output of a submodule: the number of the call (from 1), and the index among the tensors there."""

    path: str
    side: Side
    call: int = 1
    leaf: int = 0


@dataclass(frozen=True, eq=False)
class HookedModule(OpaqueFunction):
    """The module's value at a site (None: its output).

    The hash covers the classes of all submodules with their source code, if Python has it, their settings, and every
    parameter and buffer.
    """

    module: nn.Module
    site: Site | None
    code: tuple[str, ...]

    @classmethod
    def of(cls, model: nn.Module, site: Site | None, missing: Missing, x: Tensor) -> HookedModule:
        """Return a copy of the model that is read at the site, for samples like x (1, *shape)."""
        try:
            module = copy.deepcopy(model).eval()
        except Exception as error:  # a module may hold any object
            raise ModelError(f"the model cannot be copied to be run: {first_line(error)}") from error
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        plain = cls(missing, 0, True, module, site, tuple(_describe_code(module)))
        return replace(plain, elements=_count_elements(module, x), gradients=_has_gradients(plain, x))

    def __call__(self, x: Tensor) -> Tensor:
        with uncompiled():
            return self._value(x).to(x.dtype)

    def inside(self, x: Tensor, path: str) -> tuple[Tensor, Tensor]:
        """Return (the last output of the submodule, the value), both in one autograd graph."""
        given: list[Tensor] = []
        with _forward_hooks([self.module.get_submodule(path)], lambda part, out: given.append(out)):
            value = self(x)
        return given[-1], value

    def layers(self, x: Tensor) -> dict[str, nn.Module]:
        """Return the leaf submodules that return a tensor, by name, in the order of their last calls."""
        layers: dict[str, nn.Module] = {}
        names = {module: name for name, module in self.module.named_modules() if _is_leaf(module)}

        def note(part: nn.Module, out: Any) -> None:
            if isinstance(out, Tensor):
                layers.pop(names[part], None)
                layers[names[part]] = part

        with _forward_hooks(names, note), torch.no_grad():
            self(x)
        return layers

    def to(self, device: torch.device, dtype: torch.dtype) -> HookedModule:
        tensors = (*self.module.parameters(), *self.module.buffers())
        there = all(t.device == device and (t.dtype == dtype or not t.is_floating_point()) for t in tensors)
        return self if there else replace(self, module=copy.deepcopy(self.module).to(device, dtype))

    def hash_parts(self) -> Iterator[str | Tensor]:
        yield repr(self.site)
        yield from self.code
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            yield name
            yield tensor

    def _value(self, x: Tensor) -> Tensor:
        site = self.site
        if site is None:
            value: Tensor = self.module(x)
            return value

        def read(call: int, leaves: list[Any]) -> None:
            if call == site.call:
                raise _ReachedError(leaves[site.leaf])

        with hook(self.module, site.path, site.side, read):
            try:
                self.module(x)
            except _ReachedError as reached:
                return reached.value
        raise ModelError(f"the model no longer calls {site.path!r}, expected every sample to take the same way")


class _ReachedError(BaseException):
    """Ends the call of a module. Not an Exception, which a model might catch."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value


@contextmanager
def _forward_hooks(parts: Iterable[nn.Module], note: Callable[[nn.Module, Any], None]) -> Iterator[None]:
    """Call note(submodule, output) after every call of these submodules."""
    with ExitStack() as hooks:
        for part in parts:
            hooks.enter_context(part.register_forward_hook(lambda module, args, out: note(module, out)))
        yield


@contextmanager
def hook(model: nn.Module, path: str, side: Side, read: Callable[[int, list[Any]], None]) -> Iterator[None]:
    """Call read(number of the call from 1, tensors) with the inputs or outputs of a submodule at each of its calls."""
    calls = count(1)
    part = model.get_submodule(path)
    if side == "input":
        handle = part.register_forward_pre_hook(
            lambda module, args, kwargs: read(next(calls), tree_leaves((args, kwargs))), with_kwargs=True
        )
    else:
        handle = part.register_forward_hook(lambda module, args, out: read(next(calls), tree_leaves(out)))
    with handle:
        yield


def find_site(model: nn.Module, x: Tensor, path: str, side: Side, value: Tensor) -> Site | None:
    """Return the site at this submodule where the model, run on x, has this value; None if there is none."""
    sites: list[Site] = []

    def read(call: int, leaves: list[Any]) -> None:
        for k, leaf in enumerate(leaves):
            same = isinstance(leaf, Tensor) and leaf.shape == value.shape and leaf.is_floating_point()
            if same and torch.allclose(leaf, value, rtol=1e-4, atol=1e-6, equal_nan=True):
                sites.append(Site(path, side, call, k))

    with hook(model, path, side, read), torch.no_grad():
        model(x)
    return sites[0] if sites else None


def _is_leaf(part: nn.Module) -> bool:
    """Return whether the module has no submodules and accepts hooks."""
    return not list(part.children()) and not isinstance(part, torch.jit.ScriptModule)


def _count_elements(module: nn.Module, x: Tensor) -> int:
    """Estimate the scalars that one sample takes: all outputs of leaf modules, doubled for operations between them."""
    total = 0

    def add(part: nn.Module, out: Any) -> None:
        nonlocal total
        total += sum(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))

    with _forward_hooks(filter(_is_leaf, module.modules()), add), torch.no_grad():
        module(x[:1])
    return max(2 * total, 8 * x[:1].numel())


def _has_gradients(run: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    try:
        with torch.enable_grad():
            return run(x.clone().requires_grad_()).requires_grad
    except RuntimeError:  # in-place changes and the like
        return False


def _describe_code(model: nn.Module) -> Iterator[str]:
    """Yield the submodules with their settings, and the source code of every class outside torch."""
    seen: set[type] = set()
    for name, module in model.named_modules():
        kind = type(module)
        plain = (bool, int, float, str, type(None), tuple)
        kept = (k for k, v in sorted(vars(module).items()) if isinstance(v, plain) and k != "training")
        settings = {k: vars(module)[k] for k in kept if not k.startswith("_")}
        yield f"{name} {kind.__qualname__} {_without_addresses(module.extra_repr())} {_without_addresses(settings)}"
        for base in kind.__mro__:
            if base in seen or base.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing"):
                continue
            seen.add(base)
            try:
                yield inspect.getsource(base)
            except (OSError, TypeError):  # defined interactively or by a program
                yield base.__qualname__


def _without_addresses(value: object) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(value))
