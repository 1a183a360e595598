"""Progress reports: work reports the share that is done, and a listener receives it.

    with listening(print):                      # 0.35 'layer 3 of 9'
        with part(0.2, 0.5, "layer 3 of 9"):    # 0 to 1 inside is 0.2 to 0.5 of the whole
            report(0.5)

The listener is a context variable: each thread has its own, and a report without a listener costs nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[float, str], object]  # the share that is done, and the current step

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(call: Listener) -> Iterator[None]:
    """Inside, `call` receives all progress reports."""
    token = _LISTENER.set(call)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def part(start: float, stop: float, place: str = "") -> Iterator[None]:
    """Inside, 0 to 1 is `start` to `stop` of the surrounding work, and the current step is `place`."""
    around = _LISTENER.get()
    if around is None:
        yield
        return

    def scaled(share: float, within: str) -> None:
        around(start + share * (stop - start), ", ".join(filter(None, (place, within))))

    with listening(scaled):
        report(0.0)
        yield


@contextmanager
def unreported() -> Iterator[None]:
    """Inside, no progress is reported."""
    token = _LISTENER.set(None)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report(share: float, place: str = "") -> None:
    """Report that this share of the work is done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(share, place)
