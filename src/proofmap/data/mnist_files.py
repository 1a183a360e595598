"""The full MNIST data set, read from its four official files."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from proofmap.data.idx import read_idx_hashed
from proofmap.data.published_files import check, check_split, first_file
from proofmap.errors import FileError

_STEMS = {"train": "train", "test": "t10k"}


def mnist(folder: str | Path, split: Literal["train", "test"], *, verify: bool = True) -> tuple[Tensor, Tensor]:
    """Load images (N, 1, 28, 28), float32 in [0, 1], and labels (N,), int64: N = 60000 for "train", 10000 for "test".

    The files keep their published names, `train-images-idx3-ubyte` and so on, with or without `.gz`. Raises FileError
    for a file whose unpacked content differs from the published one. With `verify=False`, files with any number of
    digits are accepted.

    >>> try:
    ...     pm.data.mnist("nowhere", "test")
    ... except pm.FileError as error:
    ...     print(error)
    no t10k-images-idx3-ubyte and no t10k-images-idx3-ubyte.gz in nowhere: put the four official MNIST files there
    """
    check_split(split)
    stem = _STEMS[split]
    images = _read(Path(folder), f"{stem}-images-idx3-ubyte", verify)  # (N, 28, 28)
    labels = _read(Path(folder), f"{stem}-labels-idx1-ubyte", verify)  # (N,)
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise FileError(
            f"the {split} files in {folder} hold images {tuple(images.shape)} and labels {tuple(labels.shape)}, "
            "expected (N, 28, 28) and (N,): they do not belong together"
        )
    return images.unsqueeze(1).float() / 255, labels.to(torch.int64)


def _read(folder: Path, name: str, verify: bool) -> Tensor:
    missing = f"no {name} and no {name}.gz in {folder}: put the four official MNIST files there"
    path = first_file(folder / name, folder / f"{name}.gz", otherwise=missing)
    elements, digest = read_idx_hashed(path)
    if verify:
        check(path, name, digest)
    return elements
