"""numpy's files: an array in npy, several in npz. Only numbers are read: what numpy would unpickle is refused.

An npy file is mapped, and may be of any size; a member of an npz file has to be unpacked into memory, and may not.
"""

from __future__ import annotations

import warnings
import zipfile
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from proofmap.errors import FileError, ProofmapError, first_line
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import Array, Part, fit, fits

LIMIT = 2**31  # bytes of one array that is unpacked into memory
_AXES = 32  # that every numpy can have
_LABELS = ("labels", "label", "y")
_READ: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Stored:
    """Where an array lies and what its header says of it."""

    path: Path
    member: str | None  # of an npz file
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def where(self) -> str:
        """What to call it."""
        return _where(self.path, self.member)

    def mapped(self) -> Array:
        """The array of an npy file, of which only what is looked at is read."""
        order = "F" if self.fortran else "C"
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload,no-any-return]
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {self.path}: {error}; has it changed?") from error

    def unpacked(self) -> Array:
        """The array of a member of an npz file."""
        assert self.member is not None
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                stream.read(self.offset)
                content = stream.read(self.size)
        except MemoryError:
            raise
        except Exception as error:  # zipfile and what it unpacks with have many
            raise FileError(f"cannot read {self.where}: {first_line(error)}") from error
        if len(content) != self.size:
            raise FileError(f"{self.where} is cut short: fetch the file again")
        return np.frombuffer(content, self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def open_npy(path: Path, preparation: Preparation) -> Part:
    """An array of samples, or one sample where its shape is that of one."""
    try:
        with path.open("rb") as stream:
            stored = _header(stream, path, None)
            size = path.stat().st_size - stored.offset
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}; check that the file may be read") from error
    if size < stored.size:
        raise FileError(f"{path} is cut short: it has {size} bytes of an array of {stored.size}")
    return _arrays(stored, preparation, None)


def open_npz(path: Path, preparation: Preparation) -> Part:
    """The one array of samples in an archive; another, `labels` or `y`, may give their classes."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                entry.filename.removesuffix(".npy"): _member(archive, entry, path) for entry in archive.infolist()
            }
    except (ProofmapError, MemoryError):
        raise
    except Exception as error:  # zipfile and what it unpacks with have many
        raise FileError(f"{path} is not an npz file: {first_line(error)}; check that it was copied whole") from error
    label = next((name for name in _LABELS if name in members), None)
    others = sorted(members.keys() - {label})
    if len(others) != 1:
        raise FileError(
            f"{path} holds the arrays {others!s:.200}, expected one of samples, and perhaps one named 'labels'"
        )
    return _arrays(members[others[0]], preparation, None if label is None else members[label])


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> Stored:
    where = _where(path, entry.filename)
    if not entry.filename.endswith(".npy"):
        raise FileError(f"{where} is not an array: expected what numpy.savez wrote")
    if entry.file_size > LIMIT:
        raise FileError(f"{where} unpacks to {entry.file_size} bytes, expected at most {LIMIT}: save it as npy")
    with archive.open(entry) as stream:
        stored = _header(stream, path, entry.filename)
    if stored.offset + stored.size != entry.file_size:
        raise FileError(f"{where} has {entry.file_size - stored.offset} bytes of an array of {stored.size}")
    return stored


def _where(path: Path, member: str | None) -> str:
    return str(path) if member is None else f"{member[:80]!r} in {path}"


def _header(stream: IO[bytes], path: Path, member: str | None) -> Stored:
    where = _where(path, member)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the text of a header is parsed as Python's literals
            version = np.lib.format.read_magic(stream)
            shape, fortran, dtype = _READ[version](stream)
    except Exception as error:
        raise FileError(f"{where} is not a numpy array: {first_line(error)}; save it with numpy.save") from error
    if len(shape) > _AXES:
        raise FileError(f"{where} holds an array of {len(shape)} axes, expected {_AXES} at most")
    if dtype.kind not in "fiu" or min(shape, default=1) < 0:
        raise FileError(f"{where} holds {dtype!s:.80} of shape {shape!s:.80}, expected numbers: save it as such")
    return Stored(path, member, shape, dtype, fortran, stream.tell())


def _arrays(stored: Stored, preparation: Preparation, labels: Stored | None) -> Part:
    """The samples in an array: itself, or its entries along the first axis."""
    single = fits(stored.shape, preparation)
    if not stored.shape or not prod(stored.shape):
        raise FileError(f"{stored.path} holds an array of shape {stored.shape}, expected (N, ...) with samples in it")
    values = stored.mapped if stored.member is None else cache(stored.unpacked)
    count = 1 if single else stored.shape[0]

    def read(index: int) -> Tensor:
        where = stored.path.name if single else f"{stored.path.name}#{index}"
        return fit(values() if single else values()[index], preparation, where)

    if labels is None:
        return Part(count, read, single)
    if labels.dtype.kind not in "iu" or prod(labels.shape) != count:
        raise FileError(
            f"{stored.path} holds labels of type {labels.dtype} and shape {labels.shape}, expected {count} classes"
        )
    classes = [int(label) for label in labels.unpacked().flatten()]
    if min(classes) < 0:
        raise FileError(f"{stored.path} holds the label {min(classes)}, expected class numbers, 0 or more")
    return Part(count, read, single, classes)
