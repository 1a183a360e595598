"""Adapter to Quantus: its metrics can call an explainer. Quantus itself is not imported."""

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
from proofmap.inputs.array_types import to_tensor

ExplainFunc: TypeAlias = Callable[..., NDArray[Any]]


def explain_func(explainer: Explainer) -> ExplainFunc:
    """Return an `explain_func` for Quantus: (model, inputs, targets, **kwargs) -> attributions, all of them arrays.

    It explains the model that Quantus passes, with the settings of the explainer: randomisation tests pass other
    models. Inputs are converted to the precision of that model. kwargs: `device`, and the arguments of `attribute`
    (feature_mask, perturbations_per_eval, show_progress).

    Metrics that add noise, such as MaxSensitivity, leave a domain such as (0, 1), which raises InputError. For these,
    use an explainer whose ball has no domain or a wide one, or a perturb_func that stays inside.

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
        x = to_tensor(inputs).to(like.device if device is None else device, like.dtype)
        mask = None if feature_mask is None else to_tensor(feature_mask)
        return current.attribute(x, _classes(targets), mask, **kwargs).detach().cpu().numpy()

    return explain


def _classes(targets: Any) -> Tensor:
    """Return class numbers, one for all samples or (N,). Some metrics pass whole numbers as floats."""
    classes = np.asarray(targets)
    if classes.dtype.kind not in "iuf" or not bool((classes == np.floor(classes)).all()):
        raise InputError(f"got targets {targets!r}, expected whole class numbers")
    return to_tensor(classes.astype(np.int64)).squeeze()
