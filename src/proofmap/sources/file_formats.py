"""Which reader a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from proofmap.data.images import LABELS, SUFFIXES, UNKNOWN, read_picture
from proofmap.errors import FileError, InputError, ProofmapError
from proofmap.sources.csv_tables import open_table
from proofmap.sources.limited_reads import check_file
from proofmap.sources.numpy_files import open_npy, open_npz
from proofmap.sources.preparation import Preparation
from proofmap.sources.published_datasets import open_cifar10, open_idx
from proofmap.sources.sample_shapes import Part, scaled


def open_picture(path: Path, preparation: Preparation) -> Part:
    """A file with one picture, read with the preparation's size and channels."""

    def read(_: int) -> Tensor:
        """The picture, (C, H, W) in the values of the range."""
        shape = preparation.shape
        if shape is not None and (len(shape) != 3 or shape[0] not in (1, 3)):
            raise InputError(
                f"{path.name} is a picture, and the model takes samples of shape {shape}: give the pictures' size, or "
                "the layout NHWC for a model with the channels last",
                arguments=("size", "layout=NHWC"),
            )
        pixels = read_picture(path, preparation.size, preparation.channels)  # (H, W, C)
        return scaled(pixels.permute(2, 0, 1), preparation).contiguous()

    return Part(1, read, single=True)


Opener = Callable[[Path, Preparation], Part]

# by the end of the name, small letters; what is packed by gzip ends in .gz after it
_FORMATS: dict[str, Opener] = {
    **dict.fromkeys(sorted(SUFFIXES), open_picture),
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_table,
    ".bin": open_cifar10,
    **dict.fromkeys(("-ubyte", ".idx", "-ubyte.gz", ".idx.gz"), open_idx),
}


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
    """The same for one file of many: one that cannot be opened is a sample of no known class that says why."""
    try:
        return open_part(path, preparation)
    except ProofmapError as error:
        reason = str(error)

    def read(_: int) -> Tensor:
        raise FileError(reason)

    return Part(1, read, single=True, labels=(UNKNOWN,))


def _opener(name: str) -> Opener | None:
    return next((opener for end, opener in _FORMATS.items() if name.endswith(end)), None)
