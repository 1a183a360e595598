"""Work that goes on where it stopped, in a folder of its own.

A record says what the work is about, and nothing else goes on there. Its pieces lie inside the folder, whole or not at
all, and what is there is not computed again. One process works in it at a time, and writes down what happened when.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from proofmap.errors import FileError
from proofmap.records import write

if sys.platform != "win32":
    import fcntl

__all__ = ["Log", "changes", "flat", "inside", "keep", "locked"]

_LOG = "log.jsonl"


def inside(folder: Path, name: str) -> Path:
    """The file of a name that a record says; one that leads out of the folder is refused."""
    parts = PurePosixPath(name).parts
    plain = bool(parts) and not {"..", "/"} & set(parts) and not set("\\:\0") & set(name)
    if not plain or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{folder} names {name!r} as a file of its own, expected one inside it: somebody changed it")
    return folder / name


def keep(folder: Path, name: str, piece: bytes | Mapping[str, Any]) -> None:
    """Put a file into the folder, the whole of it or nothing; what is no bytes yet as JSON."""
    content = piece if isinstance(piece, bytes) else (json.dumps(piece, indent=1) + "\n").encode()
    write(inside(folder, name), content, ours=True)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where two records differ: {"job.ball.eps": (0.01, 0.02)}; what one of them has not is None there."""
    before, after = flat(old), flat(new)
    pairs = {name: (before.get(name), after.get(name)) for name in [*after, *before]}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flat(tree: Mapping[str, Any], between: str = ".") -> dict[str, Any]:
    """Every entry of a record under its name, after those of the records it is in."""
    entries: dict[str, Any] = {}
    for key, value in tree.items():
        inner = flat(value, between) if isinstance(value, Mapping) else None
        entries |= {key: value} if inner is None else {f"{key}{between}{name}": one for name, one in inner.items()}
    return entries


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
