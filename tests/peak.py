"""How much memory a piece of work takes."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def with_peak(call: Callable[[], T]) -> tuple[T, int]:
    """What the call gives, and the most bytes held beyond those at the start, looked at every millisecond."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # what the C library kept of earlier work would hide this one's
    process = psutil.Process()
    before = process.memory_info().rss
    seen, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = call()
    finally:
        done.set()
        watcher.join()
    return found, max(seen)
