"""Functions compiled into one GPU kernel by torch.compile, for memory-bound work."""

import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ProofmapWarning

_MIN_ENTRIES = 2**22  # entries from which on compiling once per session saves time
_COMPILE_LOCK = Lock()  # torch must compile, and recompile for another type, in one thread at a time


def pays(values: Tensor) -> bool:
    """Return whether compiling saves time: on a GPU, for many values."""
    return values.is_cuda and values.numel() >= _MIN_ENTRIES


@cache
def compiled(function: Callable[..., Any], trial: Callable[[int], tuple[Any, ...]]) -> Callable[..., Any] | None:
    """Compile a function, and run it at trial(size) for two sizes, so that sizes become variables of the kernel.

    Returns None, with a warning, if torch cannot compile.
    """
    kernel = torch.compile(function, dynamic=True)

    def alone(*arguments: Any) -> Any:
        with _COMPILE_LOCK:
            return kernel(*arguments)

    try:
        for size in (3, 4):
            alone(*trial(size))
    except Exception as error:  # a compiler, headers or Triton may be missing
        note = f"torch.compile does not work here, work on the GPU takes longer: {error}"
        warnings.warn(note, ProofmapWarning, stacklevel=2)
        return None
    return alone
