"""Anything that explains, in one form: our explainers, baselines by name, Captum's methods, functions, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proofmap.arrays import Samples, Target, tensor_of
from proofmap.ball import Ball
from proofmap.errors import InputError
from proofmap.explain.attributor import Attributor, fitted
from proofmap.explain.baselines import Baseline, make
from proofmap.explain.explainer import Explainer
from proofmap.graph import Graph
from proofmap.graph.samples import as_samples
from proofmap.groups import Groups
from proofmap.overlap import classes_of

__all__ = ["as_attributor"]

Method: TypeAlias = Attributor | Callable[[Tensor, Tensor], Any] | Tensor | NDArray[Any] | str


def as_attributor(
    method: Method,
    model: nn.Module | Graph | None = None,
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
    if isinstance(method, type | nn.Module | Graph):
        got = "a class" if isinstance(method, type) else "a model"
        raise InputError(f"got {got}, {getattr(method, '__name__', type(method).__name__)}, expected {_EXPECTED}")
    attribute = getattr(method, "attribute", None)
    if callable(attribute):
        runs = model or getattr(method, "forward_func", None)
        return _Called(lambda x, target: attribute(x.requires_grad_(), target=target), runs, type(method).__name__)
    if callable(method):
        return _Called(method, model, getattr(method, "__name__", type(method).__name__))
    raise InputError(f"got a method of type {type(method).__name__}, expected {_EXPECTED}")


_EXPECTED = (
    "a name such as 'saliency', an object with attribute(x, target=...), a function (x, target) -> attributions, or a "
    "tensor of them"
)


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
