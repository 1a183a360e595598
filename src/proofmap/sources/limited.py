"""Files read up to a limit: what unpacks to more, or never ends, is refused before it fills the memory."""

from __future__ import annotations

import gzip
import zlib
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, cast

from proofmap.errors import FileError

__all__ = ["check_file", "first_line", "read_limited", "read_text"]

_GZIP_MAGIC = b"\x1f\x8b"
_TEXT = 2**20
_CHUNK = 2**20


def check_file(path: Path) -> None:
    """Refuse what is missing, and what is a folder, a device or a pipe."""
    if not path.is_file():
        what = "is no plain file" if path.exists() else "does not exist"
        raise FileError(f"{path} {what}, expected a file: check its name")


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a file, unpacked if it is gzip's, which may be at most `limit` bytes."""
    check_file(path)
    content = bytearray()
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            with closing(cast(BinaryIO, gzip.open(file)) if packed else file) as stream:
                while len(content) <= limit and (piece := stream.read(_CHUNK)):
                    content += piece
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"cannot read {path}: {error}; check that it was copied whole") from error
    if len(content) > limit:
        raise FileError(f"{path} holds more than {limit} bytes, expected at most so many: is it the right file?")
    return bytes(content)


def read_text(path: Path, limit: int = _TEXT) -> str:
    """The same as text in UTF-8."""
    try:
        return read_limited(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8 ({error.reason}): save it as such") from error


def first_line(error: Exception) -> str:
    """What an error of somebody else's says, short enough for a sentence of ours."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
