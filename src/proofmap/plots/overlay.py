"""Colours, for figures and reports alike: those of scores, and a map laid over its picture so that both can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]

_POSITIVE, _NEGATIVE_TOO = "magma", "RdBu_r"  # of scores from 0, and of scores with signs
_BAR = "#5c2482"  # of a score without a sign
_UNKNOWN = 0.5  # grey: no number
_LIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: the colour-blind see them
PROVEN, REST = LINES[0], "#999999"


def colours(signed: bool) -> Colormap:
    """From the low end of the scores to the high one."""
    return colormaps[_NEGATIVE_TOO if signed else _POSITIVE]


def ends(values: Array, signed: bool) -> tuple[float, float]:
    """The scores at both ends of the colours: from 0, or symmetric about it."""
    finite = np.where(np.isfinite(values), values, 0.0)
    most = float(np.abs(finite).max() if signed else max(finite.max(), 0.0)) or 1.0
    return (-most if signed else 0.0), most


def coloured(values: Array, low: float, high: float, signed: bool) -> Array:
    """The map (H, W) in colours, (H, W, 3); grey where there is no number."""
    pixels: Array = np.asarray(colours(signed)(np.clip((np.nan_to_num(values) - low) / (high - low), 0, 1)))[..., :3]
    pixels[~np.isfinite(values)] = _UNKNOWN
    return pixels


def bar_colour(score: float, signed: bool) -> object:
    """The colour of a score that is drawn as a bar."""
    return colours(signed)(0.88 if score > 0 else 0.12) if signed else _BAR


@dataclass(frozen=True)
class _Cover:
    """How a map covers its picture: chosen by eye on digits, CIFAR-10 and ImageNet, and held by the tests."""

    most: float  # how much of the picture the largest score hides
    rise: float  # the power by which a score covers
    shade: float  # how much darker a colour is on black than on white
    first: float  # the colours of the smallest and the largest score, where the map is neither black nor pale
    last: float


_BRIGHT = _Cover(most=0.9, rise=1.0, shade=0.15, first=0.45, last=0.85)
_DARK = _Cover(most=0.85, rise=0.7, shade=0.4, first=0.4, last=0.8)


def overlaid(picture: Array, values: Array, high: float, signed: bool) -> Array:
    """The map (H, W) over the picture in grey, (H, W) or (H, W, 3): (H, W, 3) in [0, 1].

    A score covers the picture the more the larger it is, never wholly, and its colour is shaded by the picture. Under
    bright colours, those of scores from 0 to `high`, the picture is dimmed. Under the dark ones of scores with signs,
    from -high to high, it is paled, and bright ink on a dark ground becomes dark ink on a bright one.
    """
    grey = (picture if picture.ndim == 2 else picture @ _LIGHTNESS)[..., None]
    scores = np.clip(np.nan_to_num(values) / high, -1 if signed else 0, 1)[..., None]
    cover, size = _DARK if signed else _BRIGHT, np.abs(scores)
    place = cover.first + (cover.last - cover.first) * size
    if signed:
        place = (1 + np.sign(scores) * place) / 2
        grey = 1 - grey if picture.ndim == 2 and picture.mean() < 0.5 else grey
        under = 0.45 + 0.55 * grey
    else:
        under = 0.8 * grey
    covered = cover.most * size**cover.rise
    colour = colours(signed)(place[..., 0])[..., :3]
    both: Array = covered * colour * (1 - cover.shade * (1 - grey)) + (1 - covered) * under
    return both


def numbers(tensor: Tensor) -> Array:
    """A tensor for drawing."""
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def pixels_of(sample: Tensor) -> Array:
    """(H, W), the mean over the channels."""
    values = numbers(sample)
    return values if values.ndim == 2 else values.mean(0)


def picture_of(sample: Tensor) -> Array:
    """(H, W) or (H, W, 3) in [0, 1]; values outside are brought there by the sample's own range."""
    colour = sample.ndim == 3 and sample.shape[0] == 3
    values = np.moveaxis(numbers(sample), 0, 2) if colour else pixels_of(sample)
    low, high = float(values.min()), float(values.max())
    return values if low >= 0 and high <= 1 else (values - low) / ((high - low) or 1.0)
