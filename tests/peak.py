"""Peak memory of tensors."""

from collections.abc import Callable
from typing import TypeVar

from torch.profiler import ProfilerActivity, profile

T = TypeVar("T")


def with_peak(call: Callable[[], T]) -> tuple[T, int]:
    """Return the result of the call and the peak bytes of tensors during it.

    torch's own allocator is asked: the memory of the process depends on the machine and on earlier tests.
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
