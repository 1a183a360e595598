"""The packaged digits: the first 300 images of the MNIST test set."""

from importlib.resources import as_file, files

import numpy as np
import torch
from torch import Tensor


def digits() -> tuple[Tensor, Tensor]:
    """Load the first 300 images of the MNIST test set, (300, 1, 28, 28), float32 in [0, 1], and labels (300,), int64.

    No model in `proofmap.zoo` was trained on them. Source and licence: `NOTICE.md` beside this file.

    >>> images, labels = pm.data.digits()
    >>> images.shape, labels[:5]
    (torch.Size([300, 1, 28, 28]), tensor([7, 2, 1, 0, 4]))
    """
    with as_file(files("proofmap.data") / "digits.npz") as path, np.load(path, allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]  # (300, 28, 28) and (300,), uint8
    return torch.from_numpy(images).unsqueeze(1).float() / 255, torch.from_numpy(labels).to(torch.int64)
