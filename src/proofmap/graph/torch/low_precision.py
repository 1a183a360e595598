"""Modules in float16 or bfloat16: Proofmap analyses the float32 network with the same weights.

A float16 or bfloat16 number is also a float32 number, so the weights do not change. The arithmetic does: float16
rounds every operation, and no result of Proofmap covers these errors.
"""

import copy

import torch
from torch import nn

from proofmap.errors import ModelError, first_line
from proofmap.runtime.user_warning import warn_user

LOW_PRECISIONS = (torch.float16, torch.bfloat16)


def in_single_precision(model: nn.Module) -> nn.Module:
    """Return a float32 copy of a module with float16 or bfloat16 tensors, and warn. Return other modules unchanged."""
    tensors = (*model.parameters(), *model.buffers())
    kinds = list(dict.fromkeys(tensor.dtype for tensor in tensors if tensor.dtype in LOW_PRECISIONS))
    if not kinds or any(tensor.dtype == torch.float64 for tensor in tensors):
        return model  # the check of the tensors names the mixture
    try:
        single = copy.deepcopy(model).float()
    except Exception as error:  # a module may hold any object
        raise ModelError(
            f"the model has {_names(kinds)} weights and cannot be copied to float32 ({first_line(error)}): convert it "
            "with model.float()"
        ) from error
    warn_user(
        f"the model has {_names(kinds)} weights: Proofmap analyses the float32 network with the same weights, and "
        f"states nothing about {_names(kinds)} arithmetic. Pass model.float() to state this yourself"
    )
    return single


def _names(kinds: list[torch.dtype]) -> str:
    return " and ".join(str(kind).removeprefix("torch.") for kind in kinds)
