"""Baselines: the values of removed variables. The choice can change the ranking of methods."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.family import broadcasts
from proofmap.metrics.seeded_noise import Stream
from proofmap.settings import check_number, is_number


@dataclass(frozen=True)
class Uniform:
    """A baseline drawn from U(low, high) for each entry of each sample (Hsieh et al. 2021).

    >>> pm.metrics.Deletion(baseline=pm.metrics.Uniform(0.0, 1.0))(model, x, None, maps).shape
    torch.Size([2])
    """

    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Darkest:
    """The smallest value of each sample ("black" in Quantus).

    >>> pm.metrics.Deletion(baseline=pm.metrics.Darkest())(model, x, None, maps).shape
    torch.Size([2])
    """


@dataclass(frozen=True)
class Mean:
    """The mean value of each sample; for images (C, H, W), the mean colour.

    >>> pm.metrics.Deletion(baseline=pm.metrics.Mean())(model, x, None, maps).shape
    torch.Size([2])
    """


@dataclass(frozen=True)
class Blur:
    """The blurred image, without sharp edges.

    Each pixel becomes a Gaussian-weighted mean along rows and columns, with σ = share · side. The weights are
    normalised at the borders, so an image of one colour does not change.

    >>> pm.metrics.Deletion(baseline=pm.metrics.Blur(0.2))(model, x, None, maps).shape
    torch.Size([2])
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a width that is not positive."""
        check_number("Blur got share", self.share, "a number above 0", lambda share: share > 0)

    def __call__(self, images: Tensor) -> Tensor:
        """Blur images (n, C, H, W)."""
        rows, columns = (self._weights(size, images) for size in images.shape[-2:])
        return rows @ images @ columns.T

    def _weights(self, size: int, like: Tensor) -> Tensor:
        """Return the weights (size, size); each row sums to 1."""
        place = torch.arange(size, dtype=torch.float64, device=like.device)
        away = (place[:, None] - place) / (self.share * size)
        return torch.softmax(-(away**2) / 2, dim=1).to(like.dtype)


Baseline: TypeAlias = float | Tensor | Uniform | Darkest | Mean | Blur


def check_baseline(said: str, baseline: Any) -> None:
    """Refuse an invalid baseline."""
    if isinstance(baseline, Darkest | Mean | Blur | Tensor):
        return
    numbers = (baseline.low, baseline.high) if isinstance(baseline, Uniform) else (baseline,)
    if not all(map(is_number, numbers)):
        raise InputError(
            f"{said}={baseline!r:.60}, expected a number, a tensor that broadcasts to x, Uniform(low, "
            "high), Mean(), Blur() or Darkest()"
        )


def check_fits(baseline: Baseline, x: Tensor) -> None:
    """Refuse a baseline that does not fit x."""
    if isinstance(baseline, Tensor) and not broadcasts(baseline, x.shape):
        raise InputError(
            f"the baseline has shape {tuple(baseline.shape)} at x of shape {tuple(x.shape)}, expected a shape that "
            "broadcasts to x"
        )
    if isinstance(baseline, Blur) and x.ndim != 4:
        raise InputError(
            f"the baseline is {baseline} at x of shape {tuple(x.shape)}, expected images (N, C, H, W): take Mean() "
            "for other samples"
        )


def baseline_at(baseline: Baseline, x: Tensor, piece: slice, stream: Stream) -> Tensor:
    """Return the baseline of some samples (n, *shape). Call it for the pieces of x in their order."""
    part = x[piece]
    match baseline:
        case Uniform():
            drawn = baseline.low + (baseline.high - baseline.low) * stream.next(*part.shape, device=x.device)
            return drawn.to(x.dtype)
        case Darkest():
            return part.flatten(1).amin(1).view(-1, *[1] * (x.ndim - 1)).expand_as(part)
        case Mean():
            return part.mean(dim=(2, 3) if x.ndim == 4 else tuple(range(1, x.ndim)), keepdim=True).expand_as(part)
        case Blur():
            return baseline(part)
        case Tensor():
            return baseline.detach().to(x).expand_as(x)[piece]
        case number:
            return torch.full_like(part, float(number))
