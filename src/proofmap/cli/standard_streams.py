"""The standard streams of a command: what nobody can read is lost, and the work goes on."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["settle"]

_STANDARD = 3  # numbers of files: input, output, error output


class _Forgiving(io.FileIO):
    """An open file that takes everything: what does not fit on a full disk, or that nobody reads, is lost."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def settle() -> None:
    """Open what was closed as /dev/null, and let no message about the work end it.

    A file that a program opens takes the first number that is free: messages would go into a file of results.
    """
    for _ in range(_STANDARD):
        number = os.open(os.devnull, os.O_RDWR)
        if number >= _STANDARD:
            os.close(number)
            break
        os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the program ends)
    if sys.stderr is None or (sys.stderr is sys.__stderr__ and sys.platform != "win32"):
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        buffer = io.BufferedWriter(_Forgiving(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)
