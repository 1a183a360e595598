"""Functions as one kernel on a GPU, where reading and writing is all the work there is, and torch finds a compiler."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ProofmapWarning

__all__ = ["compiled", "pays"]

_FEWEST = 2**22  # entries for which compiling, once a session, pays
_COMPILING = Lock()  # torch compiles, and compiles again for numbers of another type, in one thread at a time


def pays(values: Tensor) -> bool:
    """Whether there is enough to do: on a GPU, and for many values."""
    return values.is_cuda and values.numel() >= _FEWEST


@cache
def compiled(function: Callable[..., Any], trial: Callable[[int], tuple[Any, ...]]) -> Callable[..., Any] | None:
    """The compiled function, tried at trial(size) for two sizes: from there on, sizes are variables of the kernel.

    None, with a warning, where torch cannot compile.
    """
    kernel = torch.compile(function, dynamic=True)

    def alone(*arguments: Any) -> Any:
        with _COMPILING:
            return kernel(*arguments)

    try:
        for size in (3, 4):
            alone(*trial(size))
    except Exception as error:  # whatever is missing: a compiler, headers, Triton itself
        note = f"torch.compile does not work here, work on the GPU takes longer: {error}"
        warnings.warn(note, ProofmapWarning, stacklevel=2)
        return None
    return alone
