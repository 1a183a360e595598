"""Work that threads of a CPU share, each with operations of its own: these are too small to be shared themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

P = TypeVar("P")
R = TypeVar("R")

_LEAST = 32  # parts of a share


def shared(work: Callable[[Mapping[str, Tensor]], R], parts: Mapping[str, Tensor]) -> Iterable[R]:
    """What work makes of parts, (B, ...) by name: of a share of them for every thread that torch may use, in order."""
    one = next(iter(parts.values()))
    size = max(_LEAST, -(-len(one) // torch.get_num_threads())) if one.device.type == "cpu" else len(one)
    starts = range(0, len(one), max(1, size))
    shares = [{name: column[start : start + size] for name, column in parts.items()} for start in starts]
    return each(work, shares, one.device)


def each(work: Callable[[P], R], pieces: Sequence[P], device: torch.device) -> Iterable[R]:
    """What work makes of every piece, in order: on a CPU at the same time, by as many threads as torch may use."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or min(threads, len(pieces)) < 2:
        return map(work, pieces)

    def alone(piece: P) -> R:
        torch.set_num_threads(1)  # here, and in all later threads
        with torch.no_grad():
            return work(piece)

    try:
        return list(_pool(os.getpid(), threads).map(alone, pieces))
    finally:
        torch.set_num_threads(threads)  # which later threads begin with


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """So many threads; a process that was forked has none of its parent's."""
    return ThreadPoolExecutor(threads, f"proofmap-{process}")
