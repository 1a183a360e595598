"""Which reader a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from proofmap.data.images import LABELS, SUFFIXES, UNKNOWN
from proofmap.errors import FileError, ProofmapError
from proofmap.sources.arrays import open_npy, open_npz
from proofmap.sources.limited import check_file
from proofmap.sources.official import open_cifar10, open_idx
from proofmap.sources.picture import Picture
from proofmap.sources.preparation import Preparation
from proofmap.sources.table import open_table

__all__ = ["Part", "Unreadable", "known", "open_part", "try_part"]


class Part(Protocol):
    """A file with samples."""

    @property
    def single(self) -> bool:
        """Whether the file is one sample, and no list of some."""
        ...

    @property
    def labels(self) -> Sequence[int] | None:
        """The class of each sample, where the file says it; `UNKNOWN` for one that cannot be read."""
        ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the variables, where the file says them."""
        ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Tensor:
        """One sample, (*shape) float32."""
        ...


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be opened: one sample, which says why whenever it is read, and of which no class is known."""

    reason: str
    single: bool = True
    labels: Sequence[int] | None = (UNKNOWN,)
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> Tensor:
        """FileError."""
        raise FileError(self.reason)


Opener = Callable[[Path, Preparation], Part]

# by the end of the name, small letters; what is packed by gzip ends in .gz after it
_PLAIN: dict[str, Opener] = {
    **dict.fromkeys(sorted(SUFFIXES), Picture),
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_table,
    ".bin": open_cifar10,
    "-ubyte": open_idx,
    ".idx": open_idx,
}
_PACKED = {"-ubyte.gz": open_idx, ".idx.gz": open_idx}
_FORMATS: dict[str, Opener] = {**_PLAIN, **_PACKED}


def known(path: Path) -> bool:
    """Whether a file in a folder is one of samples, by its name: what is damaged must be reported, not left out."""
    name = path.name.lower()
    beside = name == LABELS or "labels-idx1" in name  # the classes of what stands beside
    return not name.startswith(".") and not beside and _opener(name) is not None


def open_part(path: Path, preparation: Preparation) -> Part:
    """A file with samples, opened by the reader of its name."""
    opener = _opener(path.name.lower())
    if opener is None:
        raise FileError(f"{path} has a name of no known format, expected one that ends in {', '.join(_FORMATS)}")
    check_file(path)
    return opener(path, preparation)


def try_part(path: Path, preparation: Preparation) -> Part:
    """The same for one file of many, which all go on without it where it cannot be opened."""
    try:
        return open_part(path, preparation)
    except ProofmapError as error:
        return Unreadable(str(error))


def _opener(name: str) -> Opener | None:
    return next((opener for end, opener in _FORMATS.items() if name.endswith(end)), None)
