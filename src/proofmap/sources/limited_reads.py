"""Read files up to a limit, so that an archive bomb or an endless device does not fill the memory."""

from contextlib import closing
from pathlib import Path

from proofmap.data.gzip_files import READ_ERRORS, open_unpacked, read_up_to
from proofmap.errors import FileError

_MAX_TEXT_BYTES = 2**20  # usual limit of a text file


def check_file(path: Path) -> None:
    """Raise FileError unless the path is a plain file, not a folder, a device or a pipe."""
    if not path.is_file():
        gone = "is a link to nothing" if path.is_symlink() else "does not exist"
        what = "is no plain file" if path.exists() else gone
        raise FileError(f"{path} {what}, expected a file: check its name")


def read_limited(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes; a file packed by gzip is unpacked first."""
    check_file(path)
    try:
        with closing(open_unpacked(path)) as stream:
            content = read_up_to(stream, limit + 1)
    except READ_ERRORS as error:
        raise FileError(f"cannot read {path}: {error}; check that it was copied whole") from error
    if len(content) > limit:
        raise FileError(f"{path} holds more than {limit} bytes, expected at most {limit}: is it the right file?")
    return bytes(content)


def read_text(path: Path, limit: int = _MAX_TEXT_BYTES) -> str:
    """Read a file of at most `limit` bytes as text in UTF-8."""
    try:
        return read_limited(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8 ({error.reason}): save it in UTF-8") from error
