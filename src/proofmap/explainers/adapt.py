"""Anything that explains, in one form: our explainers, baselines by name, Captum's methods, functions, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import ismethod, signature
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.attributor import Attributor, fitted
from proofmap.explainers.baselines import Baseline, make
from proofmap.explainers.explainer import Explainer
from proofmap.graph import Network
from proofmap.graph.classes import classes_of
from proofmap.graph.input_tensor import as_samples
from proofmap.inputs.array_types import Samples, Target, tensor_of
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups

__all__ = ["as_attributor"]

Method: TypeAlias = Attributor | Callable[[Tensor, Tensor], Any] | Tensor | NDArray[Any] | str


def as_attributor(
    method: Method,
    model: Network | None = None,
    *,
    ball: Ball | None = None,
    groups: Groups = None,
    settings: Mapping[str, Any] | None = None,
) -> Attributor:
    """Whatever explains, as something with `attribute(x, target)` that gives finite numbers shaped like x.

    method: an explainer or baseline of ours, taken as it is; a name of `BASELINES`, which needs the model, and some
    names the ball; Captum's attribution object, or anything else with an `attribute`; a function of x (N, *shape) and
    the classes (N,); or attributions that exist already. One number a pixel counts for all channels.
    model: says what is predicted where no target is given. settings: for a name alone.

    >>> pm.explainers.as_attributor("saliency", model).attribute(x, target=3).shape
    torch.Size([2, 1, 28, 28])
    """
    if isinstance(method, str):
        if model is None:
            raise InputError(f"got the method {method!r} without a model, expected the one to explain: give model=...")
        return make(method, model, ball, groups, settings)
    if settings:
        raise InputError(f"got settings {sorted(settings)} for a {type(method).__name__}, expected them with a name")
    if isinstance(method, Explainer | Baseline):
        return method
    if isinstance(method, Tensor | np.ndarray):
        return _Stored(tensor_of(method) if isinstance(method, np.ndarray) else method)
    if isinstance(method, type | Network):
        got = "a class" if isinstance(method, type) else "a model"
        raise InputError(f"got {got}, {getattr(method, '__name__', type(method).__name__)}, expected {_EXPECTED}")
    attribute = getattr(method, "attribute", None)
    if callable(attribute):
        _check_object(type(method).__name__, attribute)
        runs = model or getattr(method, "forward_func", None)
        return _Called(lambda x, target: attribute(x.requires_grad_(), target=target), runs, type(method).__name__)
    if callable(method):
        _check_function(method)
        return _Called(method, model, getattr(method, "__name__", type(method).__name__))
    raise InputError(f"got a method of type {type(method).__name__}, expected {_EXPECTED}")


_EXPECTED = (
    "a name such as 'saliency', an object with attribute(x, target=...), a function (x, target) -> attributions, or a "
    "tensor of them"
)


def name_of(method: Method) -> str:
    """What a method is called where nobody named it: a name itself, an object's class, a function's name."""
    if isinstance(method, str):
        return method
    if isinstance(method, Tensor | np.ndarray):
        return "map"
    owner = getattr(method, "__self__", None)  # of eva.attribute, for one
    name = type(owner).__name__ if ismethod(method) else getattr(method, "__name__", type(method).__name__)
    return "function" if name == "<lambda>" else str(name)


def _check_function(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with samples and classes."""
    if _misfit(function, None, None) is not None:
        name, takes = getattr(function, "__name__", type(function).__name__), ", ".join(signature(function).parameters)
        raise InputError(
            f"the function {name} takes ({takes}), expected (x, target) -> attributions, where x are the samples "
            "(N, *shape) and target the classes (N,)"
        )


def _check_object(name: str, attribute: Callable[..., Any]) -> None:
    """Refuse an object whose call needs more than samples and classes."""
    problem = _misfit(attribute, None, target=None)
    if problem is None:
        return
    first, *others = signature(attribute).parameters.values()
    takes = ["target=target"] if any(p.name == "target" or p.kind is p.VAR_KEYWORD for p in (first, *others)) else []
    needs = [p.name for p in others if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    words = ", ".join(["x", *takes, *(f"{need}=..." for need in needs if need != "target")])
    variable = name[0].lower() + name[1:]
    raise InputError(
        f"got {name}, and cannot call {name}.attribute(x, target=...): {problem}; give a function, "
        f"lambda x, target: {variable}.attribute({words})"
    )


def _misfit(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Why a call cannot have these arguments; None where it can, or does not say what it takes."""
    try:
        signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None
    return None


@dataclass(frozen=True, eq=False)
class _Stored:
    """Attributions that exist already."""

    maps: Tensor

    def attribute(self, inputs: Samples, target: Target = None) -> Tensor:
        """They, if they fit x; the target they were made for is not known here."""
        return fitted(self.maps, as_samples(inputs, None).detach(), "the tensor")


@dataclass(frozen=True, eq=False)
class _Called:
    """A call (x, classes) -> attributions, by somebody else."""

    call: Callable[[Tensor, Tensor], Any]
    model: Callable[[Tensor], Tensor] | None
    name: str

    def attribute(self, inputs: Samples, target: Target = None) -> Tensor:
        """What the call gives, checked. It gets a tensor of its own, of which it may take gradients."""
        x = as_samples(inputs, self.model).detach()
        classes = self._predicted(x) if target is None else classes_of(target, len(x), None, x.device)
        with torch.enable_grad():
            return fitted(self.call(x.clone(), classes), x, self.name)

    def _predicted(self, x: Tensor) -> Tensor:
        if self.model is None:
            raise InputError(
                f"{self.name} got no target and no model to predict one, expected one of both: give target=... here, "
                "or as_attributor(..., model=...)"
            )
        with torch.no_grad():
            return self.model(x).flatten(1).argmax(1)
