"""Images of tetrominoes in noise, after XAI-TRIS (Clark et al. 2023). The pixels of the patterns are the truth.

8 x 8 pixels; a "T" stands for one class, an "L" for the other, and η is noise, white or smoothed:

    linear           x = α a + (1 - α) η,  each pattern at a fixed place
    multiplicative   x = (1 - α a) η
    translations     as linear, rotated by quarters, at any place
    xor              both patterns, each with a sign; equal signs are one class

a and η over all images are scaled to the same norm, and x to values in [-1, 1]. Smoothed noise creates suppressor
pixels: pixels beside a pattern are independent of the class, but they predict the noise under the pattern. At a fixed
place, the absence of a pattern is as informative as its presence, so the pixels of both patterns are relevant. In
translations, only the pixels of the present pattern are relevant.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Scenario = Literal["linear", "multiplicative", "translations", "xor"]
Background = Literal["white", "correlated"]

IMAGE_SIDE = 8
ALPHA: dict[tuple[Scenario, Background], float] = {  # the values of the paper for this image size, with one exception
    ("linear", "white"): 0.18,
    ("linear", "correlated"): 0.0125,
    ("multiplicative", "white"): 0.7,
    ("multiplicative", "correlated"): 0.1,
    ("translations", "white"): 0.65,
    ("translations", "correlated"): 0.3,  # the paper has 0.2, with which a small network learns nothing in seconds
    ("xor", "white"): 0.35,
    ("xor", "correlated"): 0.15,
}
_PATTERNS = (torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
_PLACES = ((1, 1), (4, 5))
_SIGMA = 3.0  # standard deviation of the smoothing in pixels


@dataclass(frozen=True, eq=False)
class Images:
    """Images x (N, 1, 8, 8), their classes (N,), and masks of the relevant pixels (N, 8, 8), 1 or 0."""

    x: Tensor
    labels: Tensor
    truth: Tensor


def draw(scenario: Scenario, background: Background, count: int, seed: int) -> Images:
    """Draw `count` images with alternating classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    match scenario:
        case "linear" | "multiplicative":
            patterns = torch.stack([_placed(k, 0, *_PLACES[k]) for k in (0, 1)])
            a, truth = patterns[labels], patterns.sum(0).expand(count, -1, -1)
        case "translations":
            a = torch.stack([_anywhere(int(label), generator) for label in labels])
            truth = a
        case "xor":
            signs = torch.randint(2, (count,), generator=generator) * 2 - 1
            first, second = (_placed(k, 0, *_PLACES[k]) for k in (0, 1))
            turned = signs * (1 - 2 * labels)  # the signs agree in the first class
            a = signs[:, None, None] * first + turned[:, None, None] * second
            truth = (first + second).expand(count, -1, -1)
    noise = torch.randn(count, IMAGE_SIDE, IMAGE_SIDE, generator=generator)
    noise = _smoothed(noise) if background == "correlated" else noise
    alpha = ALPHA[scenario, background]
    if scenario == "multiplicative":
        x = (1 - alpha * a) * noise
    else:
        x = alpha * a / a.norm() + (1 - alpha) * noise / noise.norm()
    return Images((x / x.abs().max())[:, None], labels, truth.contiguous())


def _placed(kind: int, turns: int, top: int, left: int) -> Tensor:
    """Return a pattern on an empty image."""
    pattern = torch.rot90(_PATTERNS[kind], turns)
    height, width = pattern.shape
    return F.pad(pattern, (left, IMAGE_SIDE - left - width, top, IMAGE_SIDE - top - height))


def _anywhere(kind: int, generator: torch.Generator) -> Tensor:
    turns = int(torch.randint(4, (), generator=generator))
    height, width = torch.rot90(_PATTERNS[kind], turns).shape
    top, left = (int(torch.randint(IMAGE_SIDE - length + 1, (), generator=generator)) for length in (height, width))
    return _placed(kind, turns, top, left)


def _smoothed(noise: Tensor) -> Tensor:
    """Smooth with a Gaussian kernel and reflected edges."""
    reach = ceil(2 * _SIGMA)
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / _SIGMA) ** 2)
    along = (kernel / kernel.sum())[None, None]
    for axis in (1, 2):
        lines = noise.movedim(axis, 2)
        rows = F.conv1d(F.pad(lines.flatten(0, 1)[:, None], (reach, reach), mode="reflect"), along)
        noise = rows[:, 0].view_as(lines).movedim(2, axis)
    return noise
