"""Numpy arrays and data frames, which users may pass instead of tensors."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from proofmap.errors import InputError

Samples: TypeAlias = Tensor | NDArray[Any]  # (N, *shape); also attributions of that shape
SampleSource: TypeAlias = Samples | DataLoader[Any]  # the samples of all batches, in their order
Inputs: TypeAlias = SampleSource | tuple[Samples, ...] | Mapping[str, Samples]  # one input, or one for each argument
Maps: TypeAlias = Samples | tuple[Samples, ...] | Mapping[str, Samples]  # attributions of one input, or of each
Target: TypeAlias = int | Tensor | NDArray[Any] | None  # a class, or one for each sample


def to_tensor(array: NDArray[Any]) -> Tensor:
    """Copy an array into a tensor. The array may be read-only, have negative strides or a foreign byte order."""
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def is_frame(x: Any) -> bool:
    """Return whether x is a data frame: a table with named columns, of pandas or another library."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def frame_numbers(frame: Any) -> NDArray[np.float64]:
    """Return the columns of a data frame as numbers (N, d)."""
    return np.stack([_column(frame, name) for name in frame.columns], axis=1)


def _column(frame: Any, name: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(frame[name].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"the column {name!r} holds {frame[name].dtype}, expected numbers: encode it, for instance by "
            "pandas.get_dummies(frame)"
        ) from None
