"""Working inside a memory budget: how much there is, what work takes, and pieces that fit."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import psutil
import torch

from proofmap.errors import InputError, RoomError
from proofmap.runtime.progress import part, report
from proofmap.settings import is_number

_CPU_PIECE = 2**26  # larger pieces of rows only leave the caches: half as fast at 512 MB on 144 balls of a small resnet
_CGROUP = Path("/sys/fs/cgroup")

_TRIM, _MAP = -1, -3  # as mallopt numbers what it sets
_KEPT, _SINGLE = 2**28, 2**25  # bytes that stay with the process once they were used, and of one tensor among them

Work = Literal["walk", "back", "slopes", "curves", "forward", "basis", "box", "value", "gradient"]

# How many copies of the numbers that work is about live at once.
_COPIES: dict[Work, int] = {
    "walk": 10,  # of all values, for one ball: their intervals and relaxations
    "back": 10,  # of the widest layer of coefficients that a row meets on its way back
    "slopes": 16,  # of all coefficients that a row meets on its way back where slopes are chosen: gradients keep them
    "curves": 48,  # the same where lines are found in float64
    "forward": 8,  # of a value's forms: both sides, in and out, and what computing them takes
    "basis": 4,  # of the forms of a narrow layer, or of columns of them on their way through wide ones
    "box": 8,  # of a value whose box is found from samples: its two ends, and what they are found from
    "value": 4,  # of values and rows of one box: its ends, its middle, and the network there
    "gradient": 3,  # of every value where gradients are kept: itself, its gradient, what a method makes of both
}


_LACKS = ("allocate memory", "not enough memory", "error: out of memory", "ALLOC_FAILED", "bad_alloc")


def bytes_of(work: Work, elements: int, itemsize: int) -> int:
    """What work about so many numbers takes."""
    return _COPIES[work] * elements * itemsize


def check_memory(memory: int | None) -> None:
    """Refuse what is no number of bytes."""
    if memory is not None and not (is_number(memory) and memory >= 1):
        raise InputError(
            f"got memory={memory!r}, expected a positive number of bytes, or None for half of what is free"
        )


def budget(memory: int | None, device: torch.device) -> int:
    """The bytes a run may use: what the user said, or half of what is free on the device."""
    check_memory(memory)
    if memory is not None:
        return int(memory)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for the next to ask
        return (free + kept) // 2
    return int(min(psutil.virtual_memory().available, _container_free())) // 2


def piece_of(budget: int, device: torch.device) -> int:
    """The bytes to spend on rows that are worked on together: half of the budget, on a CPU at most a cacheful.

    The other half is for what is kept of all layers meanwhile.
    """
    return budget // 2 if device.type == "cuda" else min(budget // 2, _CPU_PIECE)


def rows_of(budget: int, device: torch.device) -> int:
    """The same for rows of coefficients. On a GPU large convolutions take up to three times what is counted of them
    (ResNet-18 on an H200: 32 GiB where 11 were for rows; 11 with a third).
    """
    piece = piece_of(budget, device)
    return piece // 3 if device.type == "cuda" else piece


def _container_free() -> int:
    """What a container's limit leaves, where there is one (cgroup v2)."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return 2**62
    return 2**62 if limit == "max" else max(int(limit) - used, 2**20)


@cache
def keep_freed() -> bool:
    """Let the C library keep what one walk freed for the next, where it is GNU's and nobody has set it otherwise.

    By itself it gives large blocks back, and the next walk takes them page by page: up to a third of its time.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    return bool(mallopt(_MAP, _SINGLE)) and bool(mallopt(_TRIM, _KEPT))


def in_pieces(total: int, size: int, work: Callable[[int, int], None]) -> None:
    """work(start, stop) over range(total) in pieces of `size`; where the memory does not suffice, halve and go on.

    Each piece is a part of the work whose progress is reported.
    """
    start, size = 0, max(1, min(size, total))
    while start < total:
        stop = min(total, start + size)
        try:
            with part(start / total, stop / total):
                work(start, stop)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise RoomError(
                    "out of memory with the smallest piece of work: free some, or take bounds that need less (CrownIBP)"
                ) from error
            size = (size + 1) // 2
            continue
        start = stop
        report(start / total)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. torch and CUDA's libraries mostly say so in a plain RuntimeError, onnxruntime too."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in _LACKS)
