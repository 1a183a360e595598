"""numpy arrays where a user may pass them in place of tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Samples", "Target", "tensor_of"]

Samples: TypeAlias = Tensor | NDArray[Any]  # (N, *shape); also attributions of that shape
Target: TypeAlias = int | Tensor | NDArray[Any] | None  # a class, or one for each sample


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A copy: an array may be read-only, run backwards or have its bytes turned round, which torch does not take."""
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
