"""Checks of the arguments of metrics: groups, samples, models, attributions, explainers and overlaps."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph import Network
from proofmap.graph.input_tensor import as_samples
from proofmap.inputs.array_types import Inputs, to_tensor
from proofmap.inputs.groups import SampleGrouping
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.verify.overlap import Overlap


def check_groups(said: str, groups: Any) -> None:
    """Refuse objects that are not a grouping or a mask."""
    if not callable(groups) and not isinstance(groups, SampleGrouping | Tensor | np.ndarray):
        raise InputError(f"{said}={groups!r}, expected a grouping such as pm.groups.grid(12), or an integer mask")


def check_call(model: Network, x: Inputs) -> Tensor:
    """Return the samples. Refuse invalid samples and models that do not fit them."""
    x = as_samples(x, model)
    if not isinstance(model, Network):
        raise InputError(f"got a model of type {type(model).__name__}, expected a torch.nn.Module or a pm.Graph")
    if isinstance(model, nn.Module):
        for name, weight in model.named_parameters():
            low = weight.dtype in (torch.float16, torch.bfloat16)  # read as float32 when the model is traced
            precision = torch.float32 if low else weight.dtype
            if weight.is_floating_point() and (precision, weight.device) != (x.dtype, x.device):
                raise InputError(
                    f"the model's {name!r} is {weight.dtype} on {weight.device} and x is {x.dtype} on {x.device}, "
                    "expected both alike: move one with .to(...)"
                )
    return x


def check_attributions(metric: str, attributions: Any, x: Tensor) -> Tensor:
    """Return the attributions (N, *shape) in float64. The channels of images may share one map."""
    if isinstance(attributions, np.ndarray) and attributions.dtype.kind == "f":
        attributions = to_tensor(attributions)
    if not isinstance(attributions, Tensor) or not attributions.is_floating_point():
        got = attributions.dtype if isinstance(attributions, Tensor | np.ndarray) else type(attributions).__name__
        raise InputError(f"the attributions are {got}, expected a tensor of floats: use torch.as_tensor(...).float()")
    shapes = {tuple(x.shape)} if x.ndim != 4 else {tuple(x.shape), (len(x), 1, *x.shape[2:])}
    if tuple(attributions.shape) not in shapes:
        expected = " or ".join(map(str, sorted(shapes, reverse=True)))
        raise InputError(f"the attributions have shape {tuple(attributions.shape)}, expected {expected}, like x")
    if not bool(attributions.isfinite().all()):
        raise InputError("the attributions have NaN or infinite entries, expected numbers: check how they were made")
    return attributions.detach().to(x.device, torch.float64).expand(x.shape)


def check_explainer(metric: str, explainer: Any, x: Tensor) -> Any:
    """Return the explainer, a function of (x, target)."""
    return _check_callable(f"{metric} got an explainer", explainer, "(x, target)", "eva.attribute")


def check_method(metric: str, method: Any, x: Tensor) -> Any:
    """Return the method, a function of (network, x, target)."""
    example = "lambda net, x, c: dataclasses.replace(eva, model=net).attribute(x, c)"
    return _check_callable(f"{metric} got a method", method, "(network, x, target)", example)


def _check_callable(said: str, got: Any, arguments: str, example: str) -> Any:
    if not callable(got):
        raise InputError(
            f"{said} of type {type(got).__name__}, expected a function of {arguments} that returns attributions, such "
            f"as {example}"
        )
    return got


def check_overlap(metric: str, overlap: Any, x: Tensor) -> Overlap:
    """Return the certified overlap; refuse one with another number of samples."""
    if not isinstance(overlap, Overlap) or not overlap.certified:
        got = "a sampled overlap" if isinstance(overlap, Overlap) else f"an overlap of type {type(overlap).__name__}"
        raise InputError(f"{metric} got {got}, expected a certified one, such as pm.overlap(model, x, ball)")
    if len(overlap.full) != len(x):
        raise InputError(f"{metric} got an overlap of {len(overlap.full)} samples, expected one of the {len(x)} in x")
    return overlap


def check_reason(metric: str, reason: Any, x: Tensor) -> Reason:
    """Return the sufficient sets; refuse those of another number of samples."""
    if not isinstance(reason, Reason):
        raise _other_sets(metric, "sufficient", reason, "pm.Sufficient(model, ball).explain(x).reason")
    _check_count(metric, len(reason.free), x)
    return reason


def check_contrast(metric: str, contrast: Any, x: Tensor) -> Contrast:
    """Return the contrastive sets; refuse those of another number of samples."""
    if not isinstance(contrast, Contrast):
        raise _other_sets(metric, "contrastive", contrast, "pm.Contrastive(model, ball).explain(x).contrast")
    _check_count(metric, len(contrast.least), x)
    return contrast


def _other_sets(metric: str, kind: str, got: Any, expected: str) -> InputError:
    return InputError(f"{metric} got {kind} sets of type {type(got).__name__}, expected {expected}")


def _check_count(metric: str, count: int, x: Tensor) -> None:
    if count != len(x):
        raise InputError(f"{metric} got the sets of {count} samples, expected those of the {len(x)} in x")
