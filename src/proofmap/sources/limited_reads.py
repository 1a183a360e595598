"""Files read up to a limit: what unpacks to more, or never ends, is refused before it fills the memory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from proofmap.data.gzip_files import BROKEN, open_unpacked, read_up_to
from proofmap.errors import FileError

_TEXT = 2**20


def check_file(path: Path) -> None:
    """Refuse what is missing, and what is a folder, a device or a pipe."""
    if not path.is_file():
        gone = "is a link to nothing" if path.is_symlink() else "does not exist"
        what = "is no plain file" if path.exists() else gone
        raise FileError(f"{path} {what}, expected a file: check its name")


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a file, unpacked if it is gzip's, which may be at most `limit` bytes."""
    check_file(path)
    try:
        with closing(open_unpacked(path)) as stream:
            content = read_up_to(stream, limit + 1)
    except BROKEN as error:
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
