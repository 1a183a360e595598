"""Resumable work in a folder: finished pieces are stored, and a restart continues from them.

A record describes the work, and only the same work may continue in the folder. Each piece is written atomically, and
existing pieces are not computed again. One process works in the folder at a time, and keeps a log of events.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TextIO, TypeVar

from proofmap.errors import FileError
from proofmap.storage.records import write_atomic

if sys.platform != "win32":
    import fcntl

_LOG_NAME = "log.jsonl"
_MAX_VALUE = 70  # characters of a value in an error; longer ones are cut

T = TypeVar("T")


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


def read_piece(folder: Path, name: str, parse: Callable[[bytes], T], *, delete: str = "it") -> T | None:
    """Return the content of a file; None without a file. The error of a damaged file says what to delete."""
    path = path_inside(folder, name)
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise FileError(f"{path} is damaged: delete {delete}, and run again") from error


def check_same_work(
    folder: Path, earlier: Mapping[str, Any], now: Mapping[str, Any], what: str, *, arguments: tuple[str, ...] = ()
) -> None:
    """Raise FileError if the folder's record describes other work than `now`.

    what: the content of the folder, such as "results of another run". arguments: those that choose the folder.
    """
    different = differences(earlier, json.loads(json.dumps(now)))
    if different:
        raise FileError(
            f"{folder} holds {what} ({'; '.join(different)}): choose another folder, or use the same settings again",
            arguments=arguments,
        )


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences of two records in words, such as "job.ball.eps was 0.01 and is 0.02"."""
    pairs = record_differences(old, new).items()
    return [f"{name} was {shortened(was)} and is {shortened(now)}" for name, (was, now) in pairs]


def shortened(value: Any) -> str:
    """Return the repr of a value, cut at 60 characters."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 10]}..."


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
