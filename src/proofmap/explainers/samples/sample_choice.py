"""The index of an explanation: one sample, a slice, a list of samples, or a mask with one entry per sample."""

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError

SampleChoice: TypeAlias = int | slice | Sequence[int] | Sequence[bool] | Tensor | NDArray[Any]

_Entry = TypeVar("_Entry")
_EXPECTED = "expected a number, a slice, a list of numbers, or a mask with one True or False per sample"


def chosen_samples(which: SampleChoice, count: int) -> slice | Tensor:
    """Return the samples of an index as a slice, or as their positions (n,) int64 on the CPU.

    Raises IndexError for a sample that does not exist, and InputError for an index of another kind.
    """
    if isinstance(which, slice):
        return which
    if isinstance(which, bool | str | tuple):
        raise InputError(f"got the index {which!r}, {_EXPECTED}")
    if isinstance(which, Tensor) and (which.ndim or which.dtype == torch.bool):
        return _positions(which, count)  # torch takes tensor([True]) for the number 1
    try:
        k = operator.index(which)  # type: ignore[arg-type]  # a TypeError is an answer
    except TypeError:
        return _positions(which, count)
    _check_sample(k, count)
    return slice(k, k + 1 or None)


def chosen(entries: Sequence[_Entry], which: slice | Tensor) -> list[_Entry]:
    """Return the entries of these samples."""
    return list(entries[which]) if isinstance(which, slice) else [entries[k] for k in which.tolist()]


def _positions(which: Any, count: int) -> Tensor:
    """Return the positions of a list, a mask, a tensor, an array or a column of a data frame."""
    try:
        entries = which.detach().cpu().numpy() if isinstance(which, Tensor) else np.asarray(which)
    except (TypeError, ValueError):
        raise InputError(f"got an index of type {type(which).__name__}, {_EXPECTED}") from None
    if entries.size == 0 and entries.ndim == 1 and entries.dtype != np.bool_:
        return torch.empty(0, dtype=torch.int64)
    if entries.ndim != 1 or entries.dtype.kind not in "biu":
        raise InputError(f"got an index of {entries.dtype} and shape {entries.shape}, {_EXPECTED}")
    if entries.dtype == np.bool_:
        if len(entries) != count:
            raise InputError(f"got a mask of {len(entries)} entries, expected one for each of {count} samples")
        return torch.from_numpy(np.flatnonzero(entries))
    for k in entries.tolist():
        _check_sample(k, count)
    return torch.from_numpy(entries.astype(np.int64))


def _check_sample(k: int, count: int) -> None:
    if not -count <= k < count:
        raise IndexError(f"got sample {k}, expected one of {count}")
