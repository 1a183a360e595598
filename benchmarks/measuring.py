"""Measurements that the benchmarks share: seconds, peak memory, operations, agreement, and the machine."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from unittest import mock

import psutil
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")


def machine(device: str | torch.device) -> str:
    """Return the name of the device, and the version of torch."""
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{names[0] if names else 'CPU'}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}"


def alone(work: Callable[..., T], *args: object) -> T:
    """Run work(*args) in a new process with its own memory, and return the result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, args)


def clocked(call: Callable[[], T], device: str | torch.device) -> tuple[T, float]:
    """Return the result of the call, and its seconds between two idle states of the device."""
    settle(device)
    start = time.perf_counter()
    found = call()
    settle(device)
    return found, time.perf_counter() - start


def spent(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of the call, and the process time in seconds, which other processes do not influence."""
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


@contextmanager
def parts() -> Iterator[list[int]]:
    """Record the number of parts of the ball that each search in the block bounds."""
    overlaps = import_module("proofmap.verify.searched_overlap")
    counts: list[int] = []

    def counting(*args: Any, **settings: Any) -> Any:
        closing = close(*args, **settings)
        counts.extend(one.parts for one in closing.results)
        return closing

    close = overlaps.exact_bounds
    with mock.patch.object(overlaps, "exact_bounds", counting):
        yield counts


def settle(device: str | torch.device) -> None:
    """Wait until the device is idle."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


class Memory:
    """Measures peak memory in the block: from torch for a GPU, by polling every two milliseconds for the process."""

    def __init__(self, device: str | torch.device) -> None:
        self.device = torch.device(device)
        self.start = self.most = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @property
    def beyond(self) -> int:
        """The peak minus the memory at the start."""
        return self.most - self.start

    def __enter__(self) -> Memory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.start = self.most = torch.cuda.memory_allocated(self.device)
        else:
            _give_back()
            self.start = self.most = psutil.Process().memory_info().rss
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.device.type == "cuda":
            self.most = torch.cuda.max_memory_allocated(self.device)
        else:
            self._stop.set()
            self._watcher.join()

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._stop.wait(0.002):
            self.most = max(self.most, process.memory_info().rss)


def _give_back() -> None:
    """Return freed memory of the C library to the system; otherwise the next measurement would reuse it unnoticed."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only the GNU library has it
        if trim is not None:
            trim(0)


def operations(call: Callable[[], object]) -> int:
    """Count the operations of convolutions and matrix products in the call: two for each product of two numbers."""
    counter = FlopCounterMode(display=False)
    with counter:
        call()
    return counter.get_total_flops()


def rank_correlation(found: Tensor, truth: Tensor) -> float:
    """Return Spearman's correlation of the scores (N, G) of each image, averaged over the images."""
    ranks = [float(spearmanr(a, b).statistic) for a, b in zip(found.cpu(), truth.cpu(), strict=True)]
    return sum(ranks) / len(ranks)


def largest_difference(found: tuple[Tensor, ...], truth: tuple[Tensor, ...]) -> float:
    """Return the largest difference of two lists of tensors, relative to the largest true value."""
    scale = max(float(value.abs().max()) for value in truth)
    return max(float((a.to(b) - b).abs().max()) for a, b in zip(found, truth, strict=True)) / scale
