"""Adapters to `Attributor` for baseline names, Captum methods, functions and precomputed maps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import ismethod, signature
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.explainers.attribution.attributor import Attributor, checked_maps
from proofmap.explainers.baselines import Baseline
from proofmap.explainers.explainer import Explainer
from proofmap.explainers.factory import build_method
from proofmap.graph import Network
from proofmap.graph.classes import classes_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.torch import logits_module
from proofmap.inputs.array_types import Samples, Target, to_tensor
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups

AnyMethod: TypeAlias = Attributor | Callable[[Tensor, Tensor], Any] | Tensor | NDArray[Any] | str


def as_attributor(
    method: AnyMethod,
    model: Network | None = None,
    *,
    ball: Ball | None = None,
    groups: Groups = None,
    settings: Mapping[str, Any] | None = None,
) -> Attributor:
    """Convert any explanation method to an object whose `attribute(x, target)` returns finite numbers shaped like x.

    One number per pixel is copied to all channels.

    Args:
        method: An explainer or baseline of Proofmap, returned unchanged; a name of `BASELINES`; a Captum attribution
            object, or any other object with `attribute`; a function of x (N, *shape) and the classes (N,); or a
            tensor or array with attributions.
        model: The network; needed for a name, and to predict a class if no target is given.
        ball: The ball, which some names need.
        groups: The groups, for a name.
        settings: Settings, for a name only.

    Returns:
        The attributor.

    >>> pm.explainers.as_attributor("saliency", model).attribute(x, target=3).shape
    torch.Size([2, 1, 28, 28])
    """
    if isinstance(method, str):
        if model is None:
            raise InputError(f"got the method {method!r} without a model, expected the one to explain: give model=...")
        return build_method(method, model, ball, groups, settings)
    if settings:
        raise InputError(f"got settings {sorted(settings)} for a {type(method).__name__}, expected them with a name")
    if isinstance(method, Explainer | Baseline):
        return method
    if isinstance(method, Tensor | np.ndarray):
        return _StoredMaps(to_tensor(method) if isinstance(method, np.ndarray) else method)
    if isinstance(method, type | Network):
        got = "a class" if isinstance(method, type) else "a model"
        raise InputError(f"got {got}, {getattr(method, '__name__', type(method).__name__)}, expected {_EXPECTED}")
    attribute = getattr(method, "attribute", None)
    if callable(attribute):
        _check_object(type(method).__name__, attribute)
        network, name = model or getattr(method, "forward_func", None), type(method).__name__
        return _ExternalCall(lambda x, target: attribute(x.requires_grad_(), target=target), network, name)
    if callable(method):
        _check_function(method)
        return _ExternalCall(method, model, getattr(method, "__name__", type(method).__name__))
    raise InputError(f"got a method of type {type(method).__name__}, expected {_EXPECTED}")


_EXPECTED = (
    "a name such as 'saliency', an object with attribute(x, target=...), a function (x, target) -> attributions, or a "
    "tensor of them"
)


def name_of_method(method: AnyMethod) -> str:
    """Return a default name for a method: the name itself, the class of an object, or the name of a function."""
    if isinstance(method, str):
        return method
    if isinstance(method, Tensor | np.ndarray):
        return "map"
    owner = getattr(method, "__self__", None)  # a bound method such as eva.attribute
    name = type(owner).__name__ if ismethod(method) else getattr(method, "__name__", type(method).__name__)
    return "function" if name == "<lambda>" else str(name)


def _check_function(function: Callable[..., Any]) -> None:
    """Raise InputError for a function that cannot be called with samples and classes."""
    if _call_error(function, None, None) is not None:
        name, takes = getattr(function, "__name__", type(function).__name__), ", ".join(signature(function).parameters)
        raise InputError(
            f"the function {name} takes ({takes}), expected (x, target) -> attributions, where x are the samples "
            "(N, *shape) and target the classes (N,)"
        )


def _check_object(name: str, attribute: Callable[..., Any]) -> None:
    """Raise InputError for an object whose `attribute` needs more than samples and classes."""
    problem = _call_error(attribute, None, target=None)
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


def _call_error(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Return the error of a call with these arguments; None if it is valid or the signature is unknown."""
    try:
        signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None
    return None


@dataclass(frozen=True, eq=False)
class _StoredMaps:
    """Precomputed attributions."""

    maps: Tensor

    def attribute(self, inputs: Samples, target: Target = None) -> Tensor:
        """Return the stored maps, if they have the shape of x. Their target is unknown and not checked."""
        return checked_maps(self.maps, as_samples(inputs, None).detach(), "the tensor")


@dataclass(frozen=True, eq=False)
class _ExternalCall:
    """A user's call (x, classes) -> attributions."""

    call: Callable[[Tensor, Tensor], Any]
    model: Callable[[Tensor], Tensor] | None
    name: str

    def attribute(self, inputs: Samples, target: Target = None) -> Tensor:
        """Return the checked result of the call. The call gets a copy of x, for which it may compute gradients."""
        x = as_samples(inputs, self.model).detach()
        classes = self._predicted(x) if target is None else classes_of(target, len(x), None, x.device)
        with torch.enable_grad():
            return checked_maps(self.call(x.clone(), classes), x, self.name)

    def _predicted(self, x: Tensor) -> Tensor:
        if self.model is None:
            raise InputError(
                f"{self.name} got no target and no model to predict one, expected one of both: give target=... here, "
                "or as_attributor(..., model=...)"
            )
        run = logits_module(self.model, x) if isinstance(self.model, nn.Module) else self.model
        with torch.no_grad():
            return run(x).flatten(1).argmax(1)
