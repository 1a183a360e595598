"""Choose the reader of a file of samples by the end of its name."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from proofmap.data.images import LABELS_FILE, SUFFIXES, UNKNOWN, read_picture
from proofmap.errors import FileError, InputError, ProofmapError
from proofmap.sources.csv_tables import open_table
from proofmap.sources.limited_reads import check_file
from proofmap.sources.numpy_files import open_npy, open_npz
from proofmap.sources.preparation import Preparation
from proofmap.sources.published_datasets import open_cifar10, open_idx
from proofmap.sources.sample_shapes import Part, scaled


def open_picture(path: Path, preparation: Preparation) -> Part:
    """Open a file with one picture; it is read with the preparation's size and channels."""

    def read(_: int) -> Tensor:
        """Read the picture, (C, H, W), with values in the preparation's range."""
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

# The reader for each end of a name, in small letters. Files packed by gzip end in .gz.
_OPENERS: dict[str, Opener] = {
    **dict.fromkeys(sorted(SUFFIXES), open_picture),
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_table,
    ".bin": open_cifar10,
    **dict.fromkeys(("-ubyte", ".idx", "-ubyte.gz", ".idx.gz"), open_idx),
}


def known(path: Path) -> bool:
    """Return whether a file in a folder is a file of samples, by its name alone: a damaged file must be reported."""
    name = path.name.lower()
    beside = name == LABELS_FILE or "labels-idx1" in name  # a file of labels
    return not name.startswith(".") and not beside and _opener(name) is not None


def open_part(path: Path, preparation: Preparation) -> Part:
    """Open a file of samples with the reader for its name."""
    opener = _opener(path.name.lower())
    if opener is None:
        raise FileError(f"{path} has a name of no known format, expected one that ends in {', '.join(_OPENERS)}")
    check_file(path)
    return opener(path, preparation)


def try_part(path: Path, preparation: Preparation) -> Part:
    """Open one of many files; a file that cannot be opened becomes one sample without a class, whose `read` raises."""
    try:
        return open_part(path, preparation)
    except ProofmapError as error:
        reason = str(error)

    def read(_: int) -> Tensor:
        raise FileError(reason)

    return Part(1, read, single=True, labels=(UNKNOWN,))


def _opener(name: str) -> Opener | None:
    return next((opener for end, opener in _OPENERS.items() if name.endswith(end)), None)
