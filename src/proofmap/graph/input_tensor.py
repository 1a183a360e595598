"""Conversion of a user's samples (tensor, array or frame) to a checked tensor."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from proofmap.errors import InputError
from proofmap.graph.embedding_positions import check_no_positions
from proofmap.graph.ir import Graph
from proofmap.inputs.array_types import Inputs, frame_numbers, is_frame, to_tensor
from proofmap.inputs.ball import check_input
from proofmap.inputs.loader_samples import samples_of_loader


def as_samples(x: Inputs, model: Any) -> Tensor:
    """Return x (N, *shape) as a checked tensor.

    A tensor stays as it is. A numpy array of floats or a frame takes the model's precision and device: numpy arrays are
    float64 by default, so their precision is not a deliberate choice, while that of a float64 tensor is. A float16 or
    bfloat16 tensor becomes float32, which holds the same numbers. The batches of a DataLoader are joined and moved to
    the model's device.
    """
    if isinstance(x, DataLoader):
        x = samples_of_loader(x).to(weight_of(model).device)
    if is_frame(x):
        x = frame_numbers(x)
    if isinstance(x, np.ndarray):
        if x.dtype.kind != "f":
            raise InputError(
                f"x is an array of {x.dtype}, expected floats, in the range that the model was trained on: for "
                "instance x.astype('float32') / 255"
            )
        like = weight_of(model)
        x = to_tensor(x).to(like.device, torch.float64 if like.dtype == torch.float64 else torch.float32)
    given: object = x
    parts = list(given.values()) if isinstance(given, Mapping) else given
    if isinstance(parts, list | tuple) and any(isinstance(part, Tensor | np.ndarray) for part in parts):
        advice = "stack samples with torch.stack(x), or give several inputs as a tuple or dictionary"
        if not isinstance(given, list):
            advice = (
                "this call takes one input, so join them with torch.cat([a.flatten(1), b.flatten(1)], 1), and wrap the "
                "model in a module that splits them again"
            )
        raise InputError(
            f"x is a {type(given).__name__} of {len(parts)} parts, expected one tensor (N, *shape): {advice}"
        )
    if isinstance(given, Dataset):
        raise InputError(
            f"x is a {type(given).__name__}, expected samples or their DataLoader: use "
            "torch.utils.data.DataLoader(x, batch_size=64)"
        )
    if not isinstance(x, Tensor):
        raise InputError(
            f"x is {type(x).__name__}, expected a float32 or float64 tensor, or a numpy array of floats: use "
            "torch.as_tensor(x).float()"
        )
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    if isinstance(model, nn.Module):
        check_no_positions(model, x)
    check_input(x)
    return x


def weight_of(model: Any) -> Tensor:
    """Return the first weight of the model, which has its precision and device; an empty tensor if it has none."""
    weights: Any = ()
    if isinstance(model, Graph):
        weights = (node.weight for node in model.nodes if node.weight is not None)
    elif isinstance(model, nn.Module):
        weights = (weight for weight in model.parameters() if weight.is_floating_point())
    return next(iter(weights), torch.empty(0))
