"""The files in which MNIST and CIFAR-10 were published, and others of their formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from torch import Tensor

from proofmap.data.cifar10 import map_records
from proofmap.data.idx import read_idx, read_idx_shape
from proofmap.errors import FileError
from proofmap.sources.fit import Array, fit, planes
from proofmap.sources.preparation import Preparation

__all__ = ["open_cifar10", "open_idx"]


@dataclass(frozen=True)
class Idx:
    """The samples in an idx file, which is read whole when the first is asked for."""

    path: Path
    preparation: Preparation
    count: int
    labels: Sequence[int] | None
    columns: tuple[str, ...] | None = None
    single: bool = False

    def __len__(self) -> int:
        return self.count

    @cached_property
    def _values(self) -> Array:
        return read_idx(self.path).numpy()

    def read(self, index: int) -> Tensor:
        """One sample: pictures without channels are grey, (1, H, W)."""
        values = self._values[index]
        picture = planes(values[None] if values.ndim == 2 else values, self.preparation)
        return fit(picture, self.preparation, f"{self.path.name}#{index}")


@dataclass(frozen=True, eq=False)
class Cifar10:
    """The pictures in a file of CIFAR-10's binary version."""

    path: Path
    preparation: Preparation
    records: Array  # (N, 3073) uint8
    labels: Sequence[int]
    columns: tuple[str, ...] | None = None
    single: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def read(self, index: int) -> Tensor:
        """One picture, (3, 32, 32)."""
        values = self.records[index, 1:].reshape(3, 32, 32)
        return fit(planes(values, self.preparation), self.preparation, f"{self.path.name}#{index}")


def open_idx(path: Path, preparation: Preparation) -> Idx:
    """MNIST's format, plain or packed by gzip; `train-labels-idx1-ubyte` beside `train-images-idx3-ubyte` is found."""
    shape = read_idx_shape(path)
    if len(shape) < 2 or not prod(shape):
        raise FileError(f"{path} holds {shape}, expected (N, ...) with samples in it: is it a file of labels?")
    stem = path.name.removesuffix(".gz").replace("images-idx3", "labels-idx1")
    beside = [file for file in (path.with_name(stem), path.with_name(f"{stem}.gz")) if file.is_file()]
    if stem in (path.name, path.name.removesuffix(".gz")) or not beside:
        return Idx(path, preparation, shape[0], None)
    labels = read_idx(beside[0])
    if tuple(labels.shape) != shape[:1]:
        raise FileError(f"{beside[0]} holds {tuple(labels.shape)} labels, expected {shape[:1]} for {path.name}")
    return Idx(path, preparation, shape[0], labels.tolist())


def open_cifar10(path: Path, preparation: Preparation) -> Cifar10:
    """CIFAR-10's format: records of a label and a picture, without a header."""
    records = map_records(path)
    return Cifar10(path, preparation, records, records[:, 0].tolist())
