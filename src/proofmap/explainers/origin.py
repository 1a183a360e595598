"""The origin of an explanation: the files of its model and samples, and the true classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.samples.sample_choice import chosen
from proofmap.storage.hashing import hash_file


@dataclass(frozen=True)
class File:
    """A file: its path as given, and its SHA-256 as `sha256sum` prints it.

    >>> from pathlib import Path
    >>> size = Path("net.onnx").write_bytes(b"")
    >>> pm.explainers.File.of(Path("net.onnx")).sha256[:8]
    'e3b0c442'
    """

    path: str
    sha256: str

    def __post_init__(self) -> None:
        """Raise InputError if the hash is not a SHA-256."""
        if not isinstance(self.path, str) or not re.fullmatch("[0-9a-f]{64}", f"{self.sha256}"):
            raise InputError(f"got the file {self.path!r} with SHA-256 {self.sha256!r}, expected 64 digits in hex")

    @classmethod
    def of(cls, path: Path) -> File:
        """Hash a file now. Raises FileError if it cannot be read."""
        return cls(str(path), hash_file(path))


@dataclass(frozen=True)
class Source:
    """A model or a sample: the name that its user gave it, and its files, if there are any.

    >>> pm.explainers.Source("digits").files
    ()
    """

    name: str
    files: tuple[File, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the source as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, record: Any) -> Source:
        """Read the result of `json`. Invalid content raises TypeError, ValueError, LookupError or AttributeError."""
        return cls(_text(record["name"]), tuple(File(**file) for file in record["files"]))


@dataclass(frozen=True)
class Origin:
    """The origin of N explained samples, as their user described it. None means unknown.

    >>> source = pm.explainers.Source("digits")
    >>> pm.explainers.Origin(source, (source,), labels=(7,)).label(0)
    7
    """

    model: Source
    samples: tuple[Source, ...]  # N
    labels: tuple[int | None, ...] | None = None  # N, the true classes
    classes: tuple[str, ...] | None = None  # their names
    columns: tuple[str, ...] | None = None  # the names of the variables of a flat sample
    made: str | None = None  # the time of creation, ISO 8601 with its time zone

    def __post_init__(self) -> None:
        """Raise InputError if the number of labels differs from the number of samples."""
        if self.labels is not None and len(self.labels) != len(self.samples):
            given = f"{len(self.labels)} label{'s' * (len(self.labels) != 1)}"
            raise InputError(f"got {given}, expected one for each of {len(self.samples)} samples")

    def label(self, k: int) -> int | None:
        """Return the true class of sample k, or None if it is unknown."""
        return None if self.labels is None else self.labels[k]

    def part(self, which: slice | Tensor) -> Origin:
        """Return the origin of some of the samples: a slice, or their positions."""
        labels = None if self.labels is None else tuple(chosen(self.labels, which))
        return replace(self, samples=tuple(chosen(self.samples, which)), labels=labels)

    def json(self) -> dict[str, Any]:
        """Return the origin as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Origin:
        """Read the result of `json`. Invalid content raises TypeError, ValueError, LookupError or AttributeError."""
        return cls(
            Source.read(record["model"]),
            tuple(Source.read(sample) for sample in record["samples"]),
            _entries(record["labels"], lambda label: None if label is None else _number(label)),
            _entries(record["classes"], _text),
            _entries(record["columns"], _text),
            None if record["made"] is None else _text(record["made"]),
        )


def _entries(record: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    return None if record is None else tuple(kind(entry) for entry in record)


def _text(entry: Any) -> str:
    if not isinstance(entry, str):
        raise TypeError(f"{entry!r:.40} is no text")
    return entry


def _number(entry: Any) -> int:
    if type(entry) is not int or entry < 0:
        raise TypeError(f"{entry!r:.40} is no class number")
    return entry
