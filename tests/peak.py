"""How much memory a piece of work takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.profiler import ProfilerActivity, profile

T = TypeVar("T")


def with_peak(call: Callable[[], T]) -> tuple[T, int]:
    """What the call gives, and the most bytes of tensors it held at once.

    torch's own allocator is asked, not the system: what the C library keeps of freed memory depends on the machine
    and on the tests before.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        found = call()
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    assert most, "torch's profiler recorded no allocation"
    return found, most
