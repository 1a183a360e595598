"""A picture as a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from proofmap.data.images import read_picture
from proofmap.errors import InputError
from proofmap.sources.fit import scaled
from proofmap.sources.preparation import Preparation

__all__ = ["Picture"]


@dataclass(frozen=True)
class Picture:
    """A file with one picture, read with the preparation's size and channels."""

    path: Path
    preparation: Preparation
    single: bool = True
    labels: Sequence[int] | None = None
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> Tensor:
        """The picture, (C, H, W) in the values of the range."""
        shape = self.preparation.shape
        if shape is not None and (len(shape) != 3 or shape[0] not in (1, 3)):
            raise InputError(
                f"{self.path.name} is a picture, and the model takes samples of shape {shape}: give --size, or "
                "--layout NHWC for a model with the channels last"
            )
        pixels = read_picture(self.path, self.preparation.size, self.preparation.channels)  # (H, W, C)
        return scaled(pixels.permute(2, 0, 1), self.preparation).contiguous()
