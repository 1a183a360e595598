"""Memory budgets: how much memory is free, how much work needs, and chunks that fit."""

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
from proofmap.runtime.time_limit import check_time
from proofmap.settings import is_number

_CPU_CHUNK_BYTES = 2**26  # bytes; larger chunks leave the caches: half as fast at 512 MB on 144 balls of a resnet
_CGROUP = Path("/sys/fs/cgroup")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_KEPT_BYTES, _TENSOR_BYTES = 2**28, 2**25  # bytes that the process keeps once used, and bytes of one tensor among them

WorkKind = Literal["walk", "back", "slopes", "curves", "forward", "basis", "box", "value", "gradient"]

# How many copies of the counted numbers are in memory at once, for each kind of work.
_COPIES: dict[WorkKind, int] = {
    "walk": 10,  # all values, for one ball: their intervals and relaxations
    "back": 10,  # the widest layer of coefficients of a back-substituted row
    "slopes": 16,  # all coefficients of a back-substituted row under α-CROWN, since gradients keep them
    "curves": 48,  # the same if lines are found in float64
    "forward": 8,  # a value's affine forms: both sides, input and output, and intermediate results
    "basis": 4,  # the forms of a narrow layer, or some columns of them in wide layers
    "box": 8,  # a value whose box is found from samples: its two endpoints, and the samples
    "value": 4,  # values and rows of one box: its endpoints, its centre, and the network there
    "gradient": 3,  # every value whose gradient is kept: the value, its gradient, and a method's result
}


# Texts of errors that report a lack of memory.
_OUT_OF_MEMORY_TEXTS = ("allocate memory", "not enough memory", "error: out of memory", "ALLOC_FAILED", "bad_alloc")


def bytes_needed(work: WorkKind, elements: int, itemsize: int) -> int:
    """Return the bytes that work with `elements` numbers needs."""
    return _COPIES[work] * elements * itemsize


def check_memory(memory: int | None) -> None:
    """Raise InputError unless `memory` is a positive number of bytes, or None."""
    if memory is not None and not (is_number(memory) and memory >= 1):
        raise InputError(
            f"got memory={memory!r}, expected a positive number of bytes, or None for half of what is free"
        )


def budget(memory: int | None, device: torch.device) -> int:
    """Return the bytes a run may use: the user's number, or half of the free memory of the device."""
    check_memory(memory)
    if memory is not None:
        return int(memory)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's cache
        return (free + kept) // 2
    return int(min(psutil.virtual_memory().available, _container_free())) // 2


def chunk_bytes(budget: int, device: torch.device) -> int:
    """Return the bytes for rows that are processed together: half of the budget; on a CPU, at most what fits the
    caches.

    The other half is for the state of all layers.
    """
    return budget // 2 if device.type == "cuda" else min(budget // 2, _CPU_CHUNK_BYTES)


def run_rows(total: int, row_bytes: int, budget: int, device: torch.device, work: Callable[[int, int], None]) -> None:
    """Call work(start, stop) over `total` rows of coefficients, `row_bytes` each, in chunks that fit the budget.

    On a GPU, large convolutions need up to three times the counted bytes (ResNet-18 on an H200: 32 GiB instead of 11,
    and 11 with a third). So the first chunk takes a third. The chunks grow while twice the memory that torch has
    reserved so far stays within the budget.
    """
    most = chunk_bytes(budget, device) // row_bytes
    if device.type != "cuda":
        run_in_chunks(total, most, work)
        return

    def grown(size: int) -> int:
        return min(2 * size, most) if 2 * torch.cuda.max_memory_reserved(device) <= budget else size

    run_in_chunks(total, most // 3, work, grown)


def _container_free() -> int:
    """Return the free bytes under a container's memory limit, if there is one (cgroup v2)."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return 2**62
    return 2**62 if limit == "max" else max(int(limit) - used, 2**20)


@cache
def keep_freed() -> bool:
    """Let glibc keep freed memory for later work, unless the user has configured malloc.

    By default glibc returns large blocks to the system, and the next pass gets them page by page: up to a third of its
    time.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _TENSOR_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def run_in_chunks(
    total: int, size: int, work: Callable[[int, int], None], grown: Callable[[int], int] | None = None
) -> None:
    """Call work(start, stop) over range(total) in chunks of `size`; halve the chunks when memory runs out.

    grown: gives the size of the next chunk from that of the last one. Chunks that were halved do not grow again.

    Each chunk is a part of the work whose progress is reported. TimeoutError ends the work between two chunks if a
    `time_limit` is over.
    """
    start, size = 0, max(1, min(size, total))
    while start < total:
        check_time()
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
            size, grown = (size + 1) // 2, None
            continue
        start, size = stop, size if grown is None else grown(size)
        report(start / total)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports a lack of memory. torch, CUDA and onnxruntime mostly raise a plain
    RuntimeError.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in _OUT_OF_MEMORY_TEXTS)
