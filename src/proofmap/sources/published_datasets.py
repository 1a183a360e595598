"""Samples in the formats of MNIST (idx) and CIFAR-10 (binary records)."""

from functools import cache
from math import prod
from pathlib import Path

from torch import Tensor

from proofmap.data.cifar10_files import map_records
from proofmap.data.idx import read_idx, read_idx_shape
from proofmap.errors import FileError
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import Part, fit, planes


def open_idx(path: Path, preparation: Preparation) -> Part:
    """Open an idx file, plain or packed by gzip, and labels from `*-labels-idx1-ubyte` beside `*-images-idx3-ubyte`."""
    shape = read_idx_shape(path)
    if len(shape) < 2 or not prod(shape):
        raise FileError(f"{path} holds {shape}, expected (N, ...) with samples in it: is it a file of labels?")
    values = cache(lambda: read_idx(path).numpy())  # the whole file is read with its first sample

    def read(index: int) -> Tensor:
        """Read one sample; a picture without channels becomes (1, H, W)."""
        sample = values()[index]
        picture = planes(sample[None] if sample.ndim == 2 else sample, preparation)
        return fit(picture, preparation, f"{path.name}#{index}")

    stem = path.name.removesuffix(".gz").replace("images-idx3", "labels-idx1")
    beside = [file for file in (path.with_name(stem), path.with_name(f"{stem}.gz")) if file.is_file()]
    if stem in (path.name, path.name.removesuffix(".gz")) or not beside:
        return Part(shape[0], read)
    labels = read_idx(beside[0])
    if tuple(labels.shape) != shape[:1]:
        raise FileError(f"{beside[0]} holds {tuple(labels.shape)} labels, expected {shape[:1]} for {path.name}")
    return Part(shape[0], read, labels=labels.tolist())


def open_cifar10(path: Path, preparation: Preparation) -> Part:
    """Open a file of records, each with a label and a picture."""
    records = map_records(path)  # (N, 3073) uint8

    def read(index: int) -> Tensor:
        """Read one picture, (3, 32, 32)."""
        values = planes(records[index, 1:].reshape(3, 32, 32), preparation)
        return fit(values, preparation, f"{path.name}#{index}")

    return Part(len(records), read, labels=records[:, 0].tolist())
