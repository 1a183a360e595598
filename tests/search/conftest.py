"""Fixtures that interrupt the threads of searches."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt in the main thread, in every environment."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
