"""Without what libraries print and log about errors that they raise anyway."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is written to the screen inside."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
