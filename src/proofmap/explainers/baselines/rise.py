"""RISE (Petsiuk et al. 2018): the mean logit over random masks that keep a pixel."""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.masked_samples import logits_of_class, masked_logits
from proofmap.settings import count, number


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RISE(Baseline):
    """Σ_m s(x ⊙ m) m_i / Σ_m m_i: an estimate of the score s if pixel i is kept.

    Masks: `cells` x `cells` bits, each 1 with probability p, enlarged bilinearly to one cell more than the image and
    cropped at a random position, equal in all channels. They depend on the seed alone and serve every sample.

    s is the logit f_c, as in the EVA paper; with `probabilities` it is the softmax, as published. The divisor is the
    sum of the drawn masks, as in the authors' library, instead of its mean N p. So a constant added to all logits
    changes no ranking.
    """

    needs_gradients: ClassVar[bool] = False

    masks: int = count(6000)
    cells: int = count(7)
    p: float = number(0.5, "a probability between 0 and 1", lambda p: 0 < p < 1)
    probabilities: bool = False
    seed: int = count(0, least=0)

    def _maps(self, task: BaselineBatch) -> Tensor:
        if task.x.ndim not in (3, 4):
            raise InputError(
                f"RISE got samples of shape {tuple(task.x.shape[1:])}, expected images (C, H, W) or (H, W): "
                "choose another method for them, such as saliency or occlusion"
            )
        height, width = task.x.shape[-2:]
        total = task.x.new_zeros(len(task.x), height * width, dtype=torch.float64)
        seen = task.x.new_zeros(height * width, dtype=torch.float64)
        bits, places = self._draw()
        at_once = min(self.masks, task.points)
        for part, where in zip(bits.split(at_once), places.split(at_once), strict=True):
            mask = enlarge(part.to(task.x), where.to(task.x.device), height, width)  # (m, H, W)
            seen += mask.flatten(1).sum(0)
            step = max(1, task.points // len(mask))
            for start in range(0, len(task.x), step):
                piece = slice(start, start + step)
                total[piece] += self._scores(task, piece, mask) @ mask.flatten(1)
        mean = total / seen.clamp(min=torch.finfo(task.x.dtype).tiny)
        return mean.view(len(task.x), *[1] * (task.x.ndim - 3), height, width).to(task.x.dtype)

    def _scores(self, task: BaselineBatch, piece: slice, mask: Tensor) -> Tensor:
        """Return s for some samples under each mask (m, H, W): (n, m)."""
        logits = masked_logits(task, piece, mask.view(len(mask), *[1] * (task.x.ndim - 3), *mask.shape[1:]))
        return logits_of_class(logits.softmax(2) if self.probabilities else logits, task.target[piece])

    def _draw(self) -> tuple[Tensor, Tensor]:
        """Draw the bits (M, cells, cells) and positions (M, 2) in [0, 1) of the masks, the same on every device."""
        generator = torch.Generator().manual_seed(self.seed)
        bits = torch.rand(self.masks, self.cells, self.cells, generator=generator) < self.p
        return bits, torch.rand(self.masks, 2, generator=generator)


def enlarge(bits: Tensor, places: Tensor, height: int, width: int) -> Tensor:
    """Enlarge bits (M, s, s) to masks (M, H, W): bilinear interpolation to s + 1 cells, then a crop.

    A cell has ceil(H / s) x ceil(W / s) pixels. places (M, 2) is the offset of the crop, as a share of one cell in [0,
    1).
    """
    cells = bits.shape[-1]
    tall, wide = ceil(height / cells), ceil(width / cells)
    size = ((cells + 1) * tall, (cells + 1) * wide)
    large = F.interpolate(bits[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    row = (places[:, :1] * tall).long() + torch.arange(height, device=bits.device)  # (M, H)
    column = (places[:, 1:] * wide).long() + torch.arange(width, device=bits.device)  # (M, W)
    every = torch.arange(len(bits), device=bits.device)[:, None, None]
    return large[every, row[:, :, None], column[:, None, :]]
