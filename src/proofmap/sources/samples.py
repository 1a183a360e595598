"""Data sets in files and folders: opening reads no sample, and samples are read one at a time."""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from torch import Tensor

from proofmap.data.images import LABELS_FILE, UNKNOWN, read_labels
from proofmap.errors import FileError, InputError
from proofmap.explainers.origin import File, Source
from proofmap.sources.file_formats import known, open_part, try_part
from proofmap.sources.own_files import written
from proofmap.sources.picture_conversion import conversion_notes
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import Part


class Samples(Protocol):
    """A data set whose samples are read one at a time."""

    @property
    def names(self) -> Sequence[str]:
        """The name of each sample; no name occurs twice."""
        ...

    @property
    def labels(self) -> Sequence[int] | None:
        """The class of each sample, -1 for an unlabelled sample; None if no sample has a label."""
        ...

    @property
    def columns(self) -> Sequence[str] | None:
        """The names of the variables, if the samples are rows of a table with a header."""
        ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Tensor:
        """Read one sample, (*shape) float32; raise FileError or InputError if it cannot be read."""
        ...

    def source(self, index: int) -> Source:
        """Return a sample's name and its file, if it is in a file."""
        ...


@dataclass(frozen=True, eq=False)
class Files:
    """The samples of files, in the order of their names.

    `notes` are sentences about the files, for readers of the results. `columns` are those of tables.
    """

    names: tuple[str, ...]
    labels: tuple[int, ...] | None
    parts: tuple[Part, ...]
    paths: tuple[Path, ...]  # one for each part
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> Tensor:
        """Read one sample, (*shape) float32; raise FileError or InputError if it cannot be read."""
        k = self._part(index)
        return self.parts[k].read(index - self._ends[k] + len(self.parts[k]))

    def source(self, index: int) -> Source:
        """Return a sample's name and its file, with the hash at the time of the first call for this file."""
        return Source(self.names[index], (self._hashed(self._part(index)),))

    def _part(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"got sample {index}, expected one of {len(self)}")
        return bisect_right(self._ends, index)

    @cached_property
    def _hashed(self) -> Callable[[int], File]:
        """Hash each file once, however many samples it holds."""
        return cache(lambda k: File.of(self.paths[k]))

    @cached_property
    def _ends(self) -> list[int]:
        """The number of samples up to the end of each part."""
        return list(accumulate(len(part) for part in self.parts))


def open_samples(paths: Sequence[Path], preparation: Preparation) -> Files:
    """Open the samples in files and folders.

    The formats are pictures (png, jpeg, webp, bmp, gif, tiff), arrays (npy, npz), tables (csv), MNIST's idx files,
    plain or packed by gzip, and CIFAR-10's bin files. A folder is searched with all its subfolders, in the order of
    the names. The name of a sample is its path inside the folder that holds all of `paths`, with a number if the file
    has several samples. A folder's `labels.csv` may give classes to its pictures; its columns are `file`, and `label`
    or `class_index`. A damaged file in `paths` raises FileError; one in a folder becomes a sample that cannot be read.
    """
    if not paths:
        raise InputError("got no input, expected files or folders, such as digit.png")
    root = Path(os.path.commonpath([os.path.abspath(path if path.is_dir() else path.parent) for path in paths]))
    names: list[str] = []
    labels: list[int] = []
    parts: list[Part] = []
    held: list[Path] = []
    notes: list[str] = []
    for path in paths:
        files, opener = (_listed(path), try_part) if path.is_dir() else ([path], open_part)
        opened = {file: opener(file, preparation) for file in files}
        given, note = _labels(path, opened)
        notes += [note] if note else []
        for file, part in opened.items():
            place = Path(os.path.relpath(os.path.abspath(file), root)).as_posix()
            names += [place] if part.single else [f"{place}#{i}" for i in range(len(part))]
            labels += given.get(file, part.labels) or [UNKNOWN] * len(part)
            parts.append(part)
            held.append(file)
    notes += conversion_notes(held, preparation)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"got {twice!r} twice among the inputs, expected every file once")
    every = None if all(label == UNKNOWN for label in labels) else tuple(labels)
    columns = {part.columns for part in parts}
    heads = columns.pop() if len(columns) == 1 else None
    return Files(tuple(names), every, tuple(parts), tuple(held), heads, tuple(notes))


def _listed(folder: Path) -> list[Path]:
    """List the files with samples in a folder and its subfolders by name; links to other folders are not followed."""
    samples: list[Path] = []
    for where, inside, names in os.walk(folder, onerror=_refuse):
        inside[:] = [name for name in inside if not name.startswith(".")]
        samples += [path for path in (Path(where, name) for name in names) if known(path) and not written(path)]
    if not samples:
        raise FileError(f"no samples in {folder}, expected pictures, npy, npz, csv, idx or bin files")
    return sorted(samples, key=lambda path: path.relative_to(folder).as_posix())


def _refuse(error: OSError) -> None:
    raise FileError(f"cannot list {error.filename}: {error.strerror}; check that the folder may be read")


def _labels(folder: Path, opened: Mapping[Path, Part]) -> tuple[dict[Path, Sequence[int]], str]:
    """Read a folder's labels.csv: the labels of its files, and a sentence about missing and unused labels."""
    if not (folder / LABELS_FILE).is_file():
        return {}, ""
    names = {file: file.relative_to(folder).as_posix() for file, part in opened.items() if part.single}
    by_name, note = read_labels(folder / LABELS_FILE, list(names.values()))
    return {file: [by_name[name]] for file, name in names.items() if name in by_name}, note
