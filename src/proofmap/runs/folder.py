"""Files of a run: they get there whole or not at all, they stay inside its folder, and one process writes them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from proofmap.errors import FileError

if sys.platform != "win32":
    import fcntl

__all__ = ["Log", "inside", "locked", "write"]

_LOG = "log.jsonl"


def inside(folder: Path, name: str) -> Path:
    """The file of a name that a manifest says; one that leads out of the folder is refused."""
    parts = PurePosixPath(name).parts
    plain = bool(parts) and not {"..", "/"} & set(parts) and not set("\\:\0") & set(name)
    if not plain or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{folder} names {name!r} as a file of its own, expected one inside it: somebody changed it")
    return folder / name


def write(path: Path, content: bytes) -> None:
    """The whole file or none of it, on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if sys.platform != "win32":
            entry = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(entry)
            finally:
                os.close(entry)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


class Log:
    """What happened when, one JSON object a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def add(self, event: str, **about: Any) -> None:
        """Write one line."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._file.write(json.dumps({"time": now, "event": event, **about}) + "\n")
        self._file.flush()


@contextmanager
def locked(folder: Path) -> Iterator[Log]:
    """The log of a folder in which nobody else is at work; a process that is killed leaves no lock behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOG).open("a", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write into {folder}: {error.strerror or error}") from error
    with file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileError(f"another run is at work in {folder}: wait for it, or choose another folder") from None
            except OSError:  # a file system without locks
                pass
        yield Log(file)
