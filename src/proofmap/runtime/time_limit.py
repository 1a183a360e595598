"""A time limit for work in chunks: `run_in_chunks` raises TimeoutError between two chunks once the time is over.

    try:
        with time_limit(until):
            bounds = solve(...)
    except TimeoutError:
        ...

The limit is a context variable: each thread has its own. Without a limit, a check costs nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

_UNTIL: ContextVar[float] = ContextVar("until", default=inf)


@contextmanager
def time_limit(until: float) -> Iterator[None]:
    """Inside, chunks of work end with TimeoutError after `until`, a time of `time.monotonic`."""
    token = _UNTIL.set(min(until, _UNTIL.get()))
    try:
        yield
    finally:
        _UNTIL.reset(token)


def check_time() -> None:
    """Raise TimeoutError if the time is over."""
    until = _UNTIL.get()
    if until < inf and time.monotonic() > until:
        raise TimeoutError
