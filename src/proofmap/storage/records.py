"""Settings as JSON, and atomic writing of files and folders."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from math import isinf
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from proofmap.errors import FileError
from proofmap.inputs.ball import Ball
from proofmap.storage.hashing import hash_tensor

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"


def to_json(value: Any, listed: int = 0) -> JSON:
    """Return a setting as JSON: a tensor as its hash, any other unsupported value as its repr.

    listed: tensors with at most this many entries are written out.
    """
    match value:
        case Tensor() if value.numel() <= listed:
            return to_json(value.tolist())
        case Tensor():
            return f"tensor {tuple(value.shape)} sha256 {hash_tensor(value)}"
        case dict():
            return {str(key): to_json(entry, listed) for key, entry in value.items()}
        case tuple() | list():
            return [to_json(entry, listed) for entry in value]
        case float() if isinf(value):
            return str(value)
        case bool() | int() | float() | str() | None:
            return value
    if hasattr(value, "record"):  # an objective about one output
        return to_json(value.record(), listed)
    return repr(value)


def settings_to_json(settings: Mapping[str, Any], listed: int = 0) -> dict[str, JSON]:
    """Return settings as JSON, with the fields of a ball as separate entries."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        values |= _ball_fields(value) if isinstance(value, Ball) else {name: value}
    return {name: to_json(value, listed) for name, value in values.items()}


def _ball_fields(ball: Ball) -> dict[str, Any]:
    """Return the ball's fields; one-hot blocks only if there are any."""
    parts = {field.name: getattr(ball, field.name) for field in fields(ball)}
    return parts if ball.one_hot else {name: part for name, part in parts.items() if name != "one_hot"}


def write_atomic(path: Path, content: bytes, *, ours: bool = False) -> None:
    """Write a file atomically and flush it to the disk: a reader sees the old file or the new one.

    ours: only Proofmap writes into the folder. The folder is created if missing, and the remains of a killed process
        are overwritten.
    """
    with atomic_path(path, ours=ours) as beside, beside.open("wb" if ours else "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def atomic_path(path: Path, *, ours: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside `path`; the file or folder written there replaces `path` at the end.

    ours: see `write_atomic`.
    """
    beside = path.with_name(f".{path.name}.part" if ours else f".proofmap-{secrets.token_hex(8)}")
    try:
        if ours:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        os.replace(beside, path)
        if sys.platform != "win32":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
