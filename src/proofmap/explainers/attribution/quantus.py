"""Adapter to Quantus: its metrics can call an explainer. Quantus itself is not imported."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.attribution.adapt import name_of_method
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.explainers.attribution.clamped_inputs import ClampedInputs
from proofmap.explainers.baselines import Baseline
from proofmap.explainers.explainer import Explainer
from proofmap.graph import Network
from proofmap.graph.input_tensor import weight_of
from proofmap.inputs.array_types import to_tensor

ExplainFunc: TypeAlias = Callable[..., NDArray[Any]]
_Rebuilt: TypeAlias = Explainer | Baseline | ClampedInputs  # they can explain other models


def explain_func(explainer: Attributor) -> ExplainFunc:
    """Return an `explain_func` for Quantus: (model, inputs, targets, **kwargs) -> attributions, all of them arrays.

    It explains the model that Quantus passes, with the settings of the explainer: randomisation tests pass other
    models. Inputs are converted to the precision of that model. kwargs: `device`, and the arguments of `attribute`
    (feature_mask, perturbations_per_eval, show_progress).

    explainer: an explainer, or a baseline by `as_attributor("saliency", model)`. Functions, maps and objects of other
    libraries raise InputError, because they cannot explain the other models that Quantus passes.

    Metrics that add noise, such as MaxSensitivity, leave a domain such as (0, 1), which raises InputError. For these,
    wrap the explainer in `pm.explainers.ClampedInputs`.

    >>> explain = pm.explainers.explain_func(pm.EVA(model, ball, groups=cells))
    >>> explain(model, x.numpy(), [7, 2]).shape        # as quantus calls it
    (2, 1, 28, 28)
    """
    if not isinstance(explainer, Explainer | Baseline | ClampedInputs):
        got = getattr(explainer, "name", None) or name_of_method(explainer)
        raise InputError(
            f"explain_func got {got}, expected an explainer such as pm.EVA(model, ball), or a "
            "baseline by its name such as pm.explainers.as_attributor('saliency', model): Quantus passes other models, "
            "which nothing else can explain; give Quantus your own function directly"
        )
    stated: _Rebuilt = explainer
    current = stated

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
        if model is not _model(current):
            current = _for_model(stated, model)
        like = weight_of(model)
        x = to_tensor(inputs).to(like.device if device is None else device, like.dtype)
        if feature_mask is not None:
            kwargs["feature_mask"] = to_tensor(feature_mask)
        maps = current.attribute(x, _classes(targets), **kwargs)
        return maps.detach().cpu().numpy()

    return explain


def _model(explainer: _Rebuilt) -> Network:
    return explainer.explainer.model if isinstance(explainer, ClampedInputs) else explainer.model


def _for_model(explainer: _Rebuilt, model: Network) -> _Rebuilt:
    """Return the explainer with its settings for another model."""
    if isinstance(explainer, ClampedInputs):
        return replace(explainer, explainer=replace(explainer.explainer, model=model))
    return replace(explainer, model=model)


def _classes(targets: Any) -> Tensor:
    """Return class numbers, one for all samples or (N,). Some metrics pass whole numbers as floats."""
    classes = np.asarray(targets)
    if classes.dtype.kind not in "iuf" or not bool((classes == np.floor(classes)).all()):
        raise InputError(f"got targets {targets!r}, expected whole class numbers")
    return to_tensor(classes.astype(np.int64)).squeeze()
