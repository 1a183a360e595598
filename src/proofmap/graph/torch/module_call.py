"""Calls of a module: the argument that takes the samples, and the output that holds the logits.

Models of Hugging Face return objects with a field `logits`, and some take floats by keyword alone (`inputs_embeds`).
The graph reader sees a module of one tensor in and one tensor out: a shallow copy of the user's, of a class with
another `forward`. The copy shares all weights and submodules, and their names.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from proofmap.errors import ModelError
from proofmap.graph.embedding_positions import float_keyword
from proofmap.inputs.several_inputs import InputPart, split_tensor

_LOGITS = "logits"
_PROBES = 2  # samples in the trial run


@dataclass(frozen=True)
class ModuleCall:
    """One way to call a module.

    keyword: the argument that takes the samples (None: the first). output: the key, field or position of the logits
    (None: the output itself). parts: several inputs, whose joined vector x is, as arguments in this order, or by
    keyword.
    """

    keyword: str | None = None
    output: str | int | None = None
    parts: tuple[InputPart, ...] = ()
    by_keyword: bool = False

    def run(self, forward: Callable[..., Any], x: Tensor) -> Any:
        """Call the module at x, and return the logits."""
        if self.parts:
            value = self._run_parts(forward, x)
        else:
            value = forward(x) if self.keyword is None else forward(**{self.keyword: x})
        return value if self.output is None else _part(value, self.output)

    def _run_parts(self, forward: Callable[..., Any], x: Tensor) -> Any:
        pieces = iter(split_tensor(x, self.parts))
        values = [
            next(pieces)
            if part.constant is None
            else part.constant.to(x.device).expand(len(x), *part.constant.shape[1:])
            for part in self.parts
        ]
        if self.by_keyword:
            return forward(**{part.name: value for part, value in zip(self.parts, values, strict=True)})
        return forward(*values)

    def text(self) -> str:
        """Return everything that the call depends on, for a hash."""
        constants = [None if part.constant is None else part.constant.tolist() for part in self.parts]
        return repr((self.keyword, self.output, [part.shape for part in self.parts], constants, self.by_keyword))


def one_tensor_in_and_out(model: nn.Module, x: Tensor) -> nn.Module:
    """Return a module that maps x (1, *shape) to one tensor: the model itself, or a shallow copy that shares its parts.

    The model is run once on two copies of x, in evaluation mode; the caller restores what this changes. (A list with
    one entry for each sample has two entries then.) A model that fails is returned as it is: later checks explain the
    failure.
    """
    x = x.repeat(_PROBES, *(1,) * (x.ndim - 1))
    call = call_of(model) or ModuleCall(float_keyword(model, x.ndim))
    model.eval()
    for module in model.modules():  # forward may change a buffer in place
        module._buffers.update({name: buffer.clone() for name, buffer in module._buffers.items() if buffer is not None})
    with torch.no_grad():
        try:
            value = model(x) if call_of(model) else call.run(model, x)
        except Exception:  # a module may raise anything
            return model
    output = None if isinstance(value, Tensor) else _logits_of(value)
    known = output is None and (call_of(model) is not None or call.keyword is None)
    return model if known else called_by(model, replace(call, output=output))


def call_of(model: nn.Module) -> ModuleCall | None:
    """Return the call of a module that `called_by` made; None for others."""
    return model.call if isinstance(model, _Called | _CallingModule) else None


def called_by(model: nn.Module, call: ModuleCall) -> nn.Module:
    """Return a shallow copy of the model that is called in this way."""
    if isinstance(model, _CallingModule):
        return _CallingModule(model.model, call)
    own = "forward" in vars(model) or isinstance(model, fx.GraphModule)  # export reads these in its own way
    if own or model._forward_hooks or model._forward_pre_hooks:  # hooks see the user's arguments
        return _CallingModule(model, call)
    kind = type(model)
    called: nn.Module = copy.copy(model)
    if not isinstance(model, _Called):
        called.__class__ = type(kind.__name__, (_Called, kind), {"__module__": kind.__module__})
    called.call = call  # type: ignore[assignment]
    called.call_text = call.text()  # type: ignore[assignment]  # a part of the hash
    return called


class _Called(nn.Module):
    """The first base of the copy's class: calls the `forward` of the user's class."""

    call: ModuleCall

    def forward(self, x: Tensor) -> Any:
        return self.call.run(super().forward, x)


class _CallingModule(nn.Module):
    """A module around the user's, whose submodules get longer names."""

    def __init__(self, model: nn.Module, call: ModuleCall) -> None:
        super().__init__()
        self.model = model
        self.call = call
        self.call_text = call.text()

    def forward(self, x: Tensor) -> Any:
        return self.call.run(self.model, x)


def _logits_of(value: Any) -> str | int:
    """Return the key of the logits in an output that is no tensor: `logits`, or the only tensor."""
    entries = _entries(value)
    tensors = {key: entry for key, entry in entries.items() if isinstance(entry, Tensor)}
    if _LOGITS in tensors:
        return _LOGITS
    others = [entry for entry in entries.values() if isinstance(entry, list | tuple | Mapping) and len(entry)]
    if len(tensors) == 1 and not others:
        return next(iter(tensors))
    name = type(value).__name__
    if not tensors:
        raise ModelError(
            f"got a model whose output is a {name} without tensors, expected one tensor of logits: wrap it in a module "
            "whose forward returns them"
        )
    listed = ", ".join(f"{key!r} {_shape_in_words(entry)}" for key, entry in tensors.items())
    key = next(iter(tensors))
    access = f".{key}" if not isinstance(value, Mapping | list | tuple) else f"[{key!r}]"
    raise ModelError(
        f"got a model whose output is a {name} with the tensors {listed}, expected one tensor, or one that is named "
        f"'logits': wrap the model in a module whose forward returns one of them, such as model(x){access}"
    )


def _shape_in_words(value: Tensor) -> str:
    """Return the shape of an output, with N for the number of samples."""
    sizes = ["N" if k == 0 and size == _PROBES else str(size) for k, size in enumerate(value.shape)]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def _entries(value: Any) -> dict[str | int, Any]:
    """Return the entries of a dictionary, a dataclass, a tuple or an object with `logits`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        return dict(zip(names, value, strict=True))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {_LOGITS: value.logits} if isinstance(getattr(value, _LOGITS, None), Tensor) else {}


def _part(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping) or isinstance(key, int):
        return value[key]
    return getattr(value, key)
