"""Quantus: any of its metrics can call an explainer. The package itself is not needed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer
from proofmap.graph import Network
from proofmap.graph.input_tensor import weight_of
from proofmap.inputs.array_types import tensor_of

__all__ = ["ExplainFunc", "explain_func"]

ExplainFunc: TypeAlias = Callable[..., NDArray[Any]]


def explain_func(explainer: Explainer) -> ExplainFunc:
    """What Quantus takes as `explain_func`: (model, inputs, targets, **kwargs) -> attributions, all of them arrays.

    The model that Quantus passes is the one explained, with the explainer's settings: its randomisation tests pass
    others than the explainer's own. Inputs are taken in that model's precision. kwargs: `device`, and what
    `attribute` takes (feature_mask, perturbations_per_eval, show_progress).

    Metrics that add noise, such as MaxSensitivity, leave a domain such as (0, 1), which is an InputError: give them
    an explainer whose ball has no domain or one wide enough, or a perturb_func that stays inside.

    >>> explain = pm.explainers.explain_func(pm.EVA(model, ball, groups=cells))
    >>> explain(model, x.numpy(), [7, 2]).shape        # as quantus calls it
    (2, 1, 28, 28)
    """
    current = explainer

    def explain(
        model: Network,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        *,
        device: str | torch.device | None = None,
        feature_mask: NDArray[Any] | None = None,
        **kwargs: Any,
    ) -> NDArray[Any]:
        nonlocal current
        if model is not current.model:
            current = replace(explainer, model=model)
        like = weight_of(model)
        x = tensor_of(inputs).to(like.device if device is None else device, like.dtype)
        mask = None if feature_mask is None else tensor_of(feature_mask)
        return current.attribute(x, _classes(targets), mask, **kwargs).detach().cpu().numpy()

    return explain


def _classes(targets: Any) -> Tensor:
    """Class numbers, one for all or (N,), as the metrics hand them over: some as floats, all of them whole."""
    classes = np.asarray(targets)
    if classes.dtype.kind not in "iuf" or not bool((classes == np.floor(classes)).all()):
        raise InputError(f"got targets {targets!r}, expected whole class numbers")
    return tensor_of(classes.astype(np.int64)).squeeze()
