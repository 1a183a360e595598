"""Robust standard streams: output that cannot be written is dropped, and the work goes on."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD_STREAMS = 3  # stdin, stdout and stderr have the file descriptors 0, 1 and 2


class _Forgiving(io.FileIO):
    """An open file whose writes never fail: output for a full disk or a closed pipe is dropped."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def settle() -> None:
    """Open closed standard streams as /dev/null, and let no failed write to stderr end the program.

    A new file takes the first free descriptor. With stderr closed, messages would go into a file of results.
    """
    for _ in range(_STANDARD_STREAMS):
        number = os.open(os.devnull, os.O_RDWR)
        if number >= _STANDARD_STREAMS:
            os.close(number)
            break
        os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the program ends)
    if sys.stderr is None or (sys.stderr is sys.__stderr__ and sys.platform != "win32"):
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        buffer = io.BufferedWriter(_Forgiving(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)
