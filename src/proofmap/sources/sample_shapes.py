"""Files with samples: how many each has, and the numbers of one as a sample that the network takes."""

from __future__ import annotations

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
    """A file with samples."""

    count: int
    read: Callable[[int], Tensor]  # one sample, (*shape) float32
    single: bool = False  # the file is one sample, and no list of some
    labels: Sequence[int] | None = None  # the class of each, where the file says it; `UNKNOWN` where it cannot be read
    columns: tuple[str, ...] | None = None  # the names of the variables, where the file says them

    def __len__(self) -> int:
        return self.count


def scaled(pixels: Tensor, preparation: Preparation) -> Tensor:
    """Bytes as values of the range: 0 is its lower end, 255 its upper, and rounding leads to nothing outside."""
    low, high = preparation.range
    return (pixels.float() / 255 * (high - low) + low).clamp(low, high)


def fits(shape: tuple[int, ...], preparation: Preparation) -> bool:
    """Whether an array of this shape is one sample: up to axes of size 1, or as a flat list of its numbers."""
    if preparation.shape is None:
        return False
    expected = _arranged(preparation.shape, preparation)
    flat = len(_long(shape)) <= 1 or len(_long(expected)) <= 1
    return _long(shape) == _long(expected) or (flat and prod(shape) == prod(expected))


def fit(values: Array, preparation: Preparation, where: str) -> Tensor:
    """An array as a sample, (*shape) float32.

    uint8 are bytes of a picture, spread over the range; other numbers stand for themselves. The axes are in the
    order of the model's layout.
    """
    if values.dtype.kind not in "fiu":
        raise InputError(f"{where} holds {values.dtype}, expected numbers")
    values = arrange(values, preparation, where)
    with np.errstate(over="ignore"):  # what is too large for a float is found below
        numbers = torch.from_numpy(np.array(values, dtype=np.float32 if values.dtype != np.uint8 else np.uint8))
    sample = scaled(numbers, preparation) if numbers.dtype == torch.uint8 else numbers
    if not sample.numel() or not bool(sample.isfinite().all()):
        raise InputError(f"{where} has no values, or NaN or infinite ones, expected finite numbers")
    return sample.contiguous()


def arrange(values: Array, preparation: Preparation, where: str) -> Array:
    """An array whose axes are in the order of the model's layout, channels first and in the shape of a sample."""
    if preparation.shape is not None:
        expected = _arranged(preparation.shape, preparation)
        if not fits(values.shape, preparation):
            raise InputError(f"{where} has shape {values.shape}, expected {expected} for this model")
        values = values.reshape(expected)
    return np.moveaxis(values, -1, 0) if preparation.layout == "NHWC" and values.ndim == 3 else values


def planes(values: Array, preparation: Preparation) -> Array:
    """A picture (C, H, W) in the order of the model's layout."""
    return np.moveaxis(values, 0, -1) if preparation.layout == "NHWC" and values.ndim == 3 else values


def _arranged(shape: tuple[int, ...], preparation: Preparation) -> tuple[int, ...]:
    """A sample's shape as the model and its arrays have it."""
    return (*shape[1:], shape[0]) if preparation.layout == "NHWC" and len(shape) == 3 else shape


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)
