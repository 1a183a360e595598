"""The full CIFAR-10 data set, read from the files of its binary version.

Each file contains 10000 records without a header. A record:

    byte  0          the label, 0 to 9
    bytes 1-3072     the red, green and blue planes, 32 x 32 each, row-major

(https://www.cs.toronto.edu/~kriz/cifar.html)
"""

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.data.published_files import check, check_split, first_file
from proofmap.errors import FileError

_FILE_NAMES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
_RECORD_BYTES = 1 + 3 * 32 * 32  # one label, then three planes of 32 x 32 pixels
_ARCHIVE_FOLDER = "cifar-10-batches-bin"


def cifar10(folder: str | Path, split: Literal["train", "test"], *, verify: bool = True) -> tuple[Tensor, Tensor]:
    """Load images (N, 3, 32, 32), float32 in [0, 1], and labels (N,), int64: N = 50000 for "train", 10000 for "test".

    `folder` contains `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or the unpacked official archive,
    the folder `cifar-10-batches-bin`. Raises FileError for a file that differs from the published one. With
    `verify=False`, files with any number of well-formed records are accepted.

    >>> try:
    ...     pm.data.cifar10("nowhere", "test")
    ... except pm.FileError as error:
    ...     print(error)
    no test_batch.bin in nowhere: put the six .bin files of CIFAR-10's binary version there
    """
    check_split(split)
    records = torch.cat([_read(Path(folder), name, verify) for name in _FILE_NAMES[split]])  # (N, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).float() / 255, records[:, 0].to(torch.int64)


def _read(folder: Path, name: str, verify: bool) -> Tensor:
    missing = f"no {name} in {folder}: put the six .bin files of CIFAR-10's binary version there"
    path = first_file(folder / name, folder / _ARCHIVE_FOLDER / name, otherwise=missing)
    records = np.array(map_records(path))
    if verify:
        check(path, name, hashlib.sha256(records.data).hexdigest())
    return torch.from_numpy(records)


def map_records(path: Path) -> NDArray[np.uint8]:
    """Map the records of a file, (N, 3073), into memory; the labels are checked, and pixels are read when used."""
    try:
        size = path.stat().st_size
        if not size or size % _RECORD_BYTES:
            raise FileError(
                f"{path} holds {size} bytes, expected a multiple of {_RECORD_BYTES}: fetch the binary version again"
            )
        records = np.memmap(path, np.uint8, "r").reshape(-1, _RECORD_BYTES)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}; check that the file may be read and was copied whole") from error
    wrong = np.flatnonzero(records[:, 0] > 9)
    if len(wrong):
        raise FileError(
            f"{path} gives record {wrong[0]} the label {records[wrong[0], 0]}, expected 0 to 9: "
            "it is not a file of CIFAR-10's binary version"
        )
    return records
