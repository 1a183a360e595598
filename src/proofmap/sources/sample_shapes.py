"""Shapes of samples: turn the numbers in a file into the tensor that a network takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.sources.preparation import Preparation

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Part:
    """The samples of one file."""

    count: int
    read: Callable[[int], Tensor]  # one sample, (*shape) float32
    single: bool = False  # True if the file is one sample, not a list of samples
    labels: Sequence[int] | None = None  # the classes, if the file has them; `UNKNOWN` for one that cannot be read
    columns: tuple[str, ...] | None = None  # the names of the variables, if the file has them

    def __len__(self) -> int:
        return self.count


def scaled(pixels: Tensor, preparation: Preparation) -> Tensor:
    """Map bytes to the range: 0 to its lower end, 255 to its upper end. Rounded values are clamped to the range."""
    low, high = preparation.range
    return (pixels.float() / 255 * (high - low) + low).clamp(low, high)


def fits(shape: tuple[int, ...], preparation: Preparation) -> bool:
    """Return whether an array of this shape is one sample, apart from axes of size 1 and from flattening."""
    if preparation.shape is None:
        return False
    expected = in_layout(preparation.shape, preparation)
    flat = len(_long(shape)) <= 1 or len(_long(expected)) <= 1
    return _long(shape) == _long(expected) or (flat and prod(shape) == prod(expected))


def fit(values: Array, preparation: Preparation, where: str) -> Tensor:
    """Convert an array to a sample, (*shape) float32.

    The axes of the array are in the order of the model's layout. Values of type uint8 are bytes of a picture and are
    mapped to the range. Other numbers are kept.
    """
    if values.dtype.kind not in "fiu":
        raise InputError(f"{where} holds {values.dtype}, expected numbers")
    values = arrange(values, preparation, where)
    with np.errstate(over="ignore"):  # an overflow gives inf, which is refused below
        numbers = torch.from_numpy(np.array(values, dtype=np.float32 if values.dtype != np.uint8 else np.uint8))
    sample = scaled(numbers, preparation) if numbers.dtype == torch.uint8 else numbers
    if not sample.numel() or not bool(sample.isfinite().all()):
        raise InputError(f"{where} has no values, or NaN or infinite ones, expected finite numbers")
    return sample.contiguous()


def arrange(values: Array, preparation: Preparation, where: str) -> Array:
    """Bring an array with the axes of the model's layout into the shape of a sample, channels first."""
    if preparation.shape is not None:
        expected = in_layout(preparation.shape, preparation)
        if not fits(values.shape, preparation):
            raise InputError(f"{where} has shape {values.shape}, expected {expected} for this model")
        values = values.reshape(expected)
    return np.moveaxis(values, -1, 0) if preparation.layout == "NHWC" and values.ndim == 3 else values


def planes(values: Array, preparation: Preparation) -> Array:
    """Bring a picture (C, H, W) into the order of the model's layout."""
    return np.moveaxis(values, 0, -1) if preparation.layout == "NHWC" and values.ndim == 3 else values


def in_layout(shape: tuple[int, ...], preparation: Preparation) -> tuple[int, ...]:
    """Return a sample's shape in the model's layout."""
    return (*shape[1:], shape[0]) if preparation.layout == "NHWC" and len(shape) == 3 else shape


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)
