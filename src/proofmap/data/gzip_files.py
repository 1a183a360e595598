"""Files that gzip may have packed, which is seen by their content; no more of them is unpacked than is asked for."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

BROKEN = (OSError, EOFError, zlib.error)  # what reading may raise
_MAGIC = b"\x1f\x8b"
_PIECE = 2**20


def is_packed(path: Path) -> bool:
    """Whether a file is gzip's."""
    with path.open("rb") as file:
        return file.read(2) == _MAGIC


def open_unpacked(path: Path) -> BinaryIO:
    """A file as it was before gzip packed it, if it did."""
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else path.open("rb")


def read_up_to(stream: BinaryIO, size: int) -> bytearray:
    """At most `size` bytes, in pieces: who asks for more than there is gets no memory for it."""
    content = bytearray()
    while len(content) < size and (piece := stream.read(min(_PIECE, size - len(content)))):
        content += piece
    return content
