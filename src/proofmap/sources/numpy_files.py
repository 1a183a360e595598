"""numpy's files: npy holds one array, npz several. Arrays of Python objects are refused, because they need pickle.

An npy file is mapped into memory and may have any size. An array of an npz file is unpacked, up to a limit.
"""

import warnings
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from proofmap.data.idx import MAX_AXES
from proofmap.errors import FileError, ProofmapError, first_line
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import Array, Part, fit, fits

MAX_UNPACKED_BYTES = 2**31  # the size of one array of an npz file
_LABEL_ARRAYS = ("labels", "label", "y")
_HEADER_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Stored:
    """The location and the header of an array."""

    path: Path
    member: str | None  # the entry of an npz file; None for an npy file
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def where(self) -> str:
        """The name of the array in messages."""
        return _where(self.path, self.member)

    def mapped(self) -> Array:
        """Map the array of an npy file: only the entries in use are read."""
        order = "F" if self.fortran else "C"
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload,no-any-return]
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {self.path}: {error}; has it changed?") from error

    def unpacked(self) -> Array:
        """Unpack the array of an npz file."""
        assert self.member is not None
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                stream.read(self.offset)
                content = stream.read(self.size)
        except MemoryError:
            raise
        except Exception as error:  # zipfile and its decoders raise many types
            raise FileError(f"cannot read {self.where}: {first_line(error)}") from error
        if len(content) != self.size:
            raise FileError(f"{self.where} is cut short: fetch the file again")
        return np.frombuffer(content, self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def open_npy(path: Path, preparation: Preparation) -> Part:
    """Open an npy file: one sample if the shape is that of a sample, otherwise samples along the first axis."""
    return part_of_array(npy_array(path), preparation, None)


def npy_array(path: Path) -> Stored:
    """Return the array of an npy file; its values are not read."""
    try:
        with path.open("rb") as stream:
            stored = _header(stream, path, None)
            size = path.stat().st_size - stored.offset
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}; check that the file may be read") from error
    if size < stored.size:
        raise FileError(f"{path} is cut short: it has {size} bytes, expected {stored.size} bytes of the array")
    return stored


def open_npz(path: Path, preparation: Preparation) -> Part:
    """Open an npz file: one array of samples, and perhaps an array `labels`, `label` or `y` with their classes."""
    members = npz_members(path)
    label = label_array(members)
    others = sorted(members.keys() - {label})
    if len(others) != 1:
        raise FileError(
            f"{path} holds the arrays {others!s:.200}, expected one of samples, and perhaps one named 'labels'"
        )
    return part_of_array(members[others[0]], preparation, None if label is None else members[label])


def label_array(members: Collection[str], inputs: Collection[str] = ()) -> str | None:
    """Return the name of the array of classes: `labels`, `label` or `y`, unless it is an input of the model."""
    return next((name for name in _LABEL_ARRAYS if name in members and name not in inputs), None)


def npz_members(path: Path) -> dict[str, Stored]:
    """Return the arrays of an npz file by their names; none of them is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {one.filename.removesuffix(".npy"): _member(archive, one, path) for one in archive.infolist()}
    except (ProofmapError, MemoryError):
        raise
    except Exception as error:  # zipfile and its decoders raise many types
        raise FileError(f"{path} is not an npz file: {first_line(error)}; check that it was copied whole") from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> Stored:
    where = _where(path, entry.filename)
    if not entry.filename.endswith(".npy"):
        raise FileError(f"{where} is not an array: expected what numpy.savez wrote")
    if entry.file_size > MAX_UNPACKED_BYTES:
        raise FileError(
            f"{where} unpacks to {entry.file_size} bytes, expected at most {MAX_UNPACKED_BYTES}: save it as npy"
        )
    with archive.open(entry) as stream:
        stored = _header(stream, path, entry.filename)
    if stored.offset + stored.size != entry.file_size:
        raise FileError(
            f"{where} has {entry.file_size - stored.offset} bytes, expected {stored.size} bytes of the array"
        )
    return stored


def _where(path: Path, member: str | None) -> str:
    return str(path) if member is None else f"{member[:80]!r} in {path}"


def _header(stream: IO[bytes], path: Path, member: str | None) -> Stored:
    where = _where(path, member)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy parses the header as Python source, which may warn
            version = np.lib.format.read_magic(stream)
            shape, fortran, dtype = _HEADER_READERS[version](stream)
    except Exception as error:
        raise FileError(f"{where} is not a numpy array: {first_line(error)}; save it with numpy.save") from error
    if len(shape) > MAX_AXES:
        raise FileError(f"{where} holds an array of {len(shape)} axes, expected {MAX_AXES} at most")
    if dtype.kind not in "fiu" or min(shape, default=1) < 0:
        raise FileError(f"{where} holds {dtype!s:.80} of shape {shape!s:.80}, expected numbers: save it as such")
    return Stored(path, member, shape, dtype, fortran, stream.tell())


def part_of_array(stored: Stored, preparation: Preparation, labels: Stored | None) -> Part:
    """Return the samples of an array: the array itself, or its entries along the first axis."""
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
