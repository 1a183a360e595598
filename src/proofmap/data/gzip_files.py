"""Read files that may be packed by gzip, which their first bytes show, and unpack only as much as is needed."""

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

READ_ERRORS = (OSError, EOFError, zlib.error)  # raised for damaged or unreadable files
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 2**20  # read at once, so that a false size in a header fills no memory


def is_packed(path: Path) -> bool:
    """Return whether a file is packed by gzip."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file; one that is packed by gzip is unpacked while it is read."""
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else path.open("rb")


def read_up_to(stream: BinaryIO, size: int) -> bytearray:
    """Read at most `size` bytes in pieces, so that a wrong size in a header reserves no memory."""
    content = bytearray()
    while len(content) < size and (piece := stream.read(min(_PIECE_BYTES, size - len(content)))):
        content += piece
    return content
