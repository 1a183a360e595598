"""Resumable work in a folder: finished pieces are stored, and a restart continues from them.

A record describes the work, and only the same work may continue in the folder. Each piece is written atomically, and
existing pieces are not computed again. One process works in the folder at a time, and keeps a log of events.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from proofmap.errors import FileError
from proofmap.storage.records import write_atomic

if sys.platform != "win32":
    import fcntl

_LOG_NAME = "log.jsonl"


def path_inside(folder: Path, name: str) -> Path:
    """Return the path of a file named in a record; refuse a name that leads out of the folder."""
    parts = PurePosixPath(name).parts
    plain = bool(parts) and not {"..", "/"} & set(parts) and not set("\\:\0") & set(name)
    if not plain or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{folder} names {name!r} as a file of its own, expected one inside it: somebody changed it")
    return folder / name


def write_piece(folder: Path, name: str, piece: bytes | Mapping[str, Any]) -> None:
    """Write a file into the folder atomically; a mapping is written as JSON."""
    content = piece if isinstance(piece, bytes) else (json.dumps(piece, indent=1) + "\n").encode()
    write_atomic(path_inside(folder, name), content, ours=True)


def write_piece_once(folder: Path, name: str, content: bytes) -> None:
    """Write a file into the folder unless it already has exactly this content."""
    path = path_inside(folder, name)
    if not path.is_file() or path.read_bytes() != content:
        write_piece(folder, name, content)


def record_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences of two records: {"job.ball.eps": (0.01, 0.02)}; None if one of them lacks the entry."""
    before, after = flatten_record(old), flatten_record(new)
    pairs = {name: (before.get(name), after.get(name)) for name in [*after, *before]}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flatten_record(tree: Mapping[str, Any], between: str = ".") -> dict[str, Any]:
    """Flatten a nested record: every entry under its name, preceded by the names of its parents."""
    entries: dict[str, Any] = {}
    for key, value in tree.items():
        inner = flatten_record(value, between) if isinstance(value, Mapping) else None
        entries |= {key: value} if inner is None else {f"{key}{between}{name}": one for name, one in inner.items()}
    return entries


class EventLog:
    """A log of events, one JSON object per line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def add(self, event: str, **about: Any) -> None:
        """Write one event."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._file.write(json.dumps({"time": now, "event": event, **about}) + "\n")
        self._file.flush()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of a folder's log, without a last line that was cut when its writer was killed."""
    try:
        lines = path_inside(folder, _LOG_NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("event"), str) else None


@contextmanager
def locked(folder: Path) -> Iterator[EventLog]:
    """Lock the folder for one process, and yield its log. A killed process leaves no lock behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOG_NAME).open("a", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write into {folder}: {error.strerror or error}") from error
    with file, _open_folder(folder) as itself:
        for one in (itself, file.fileno()):  # the log may be deleted; some file systems lock only files
            _lock(one, folder)
        yield EventLog(file)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int | None]:
    """Open the folder itself; None on systems that open files only."""
    if sys.platform == "win32":
        yield None
        return
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FileError(f"cannot open {folder}: {error.strerror or error}") from error
    try:
        yield number
    finally:
        os.close(number)


def _lock(number: int | None, folder: Path) -> None:
    """Lock an open file or folder until it is closed, if the file system supports locks."""
    if sys.platform == "win32" or number is None:
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileError(f"another run is at work in {folder}: wait for it, or choose another folder") from None
    except OSError:  # a file system without locks
        pass
