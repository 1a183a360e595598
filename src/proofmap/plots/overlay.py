"""Colours of scores, and a map overlaid on its image so that both are visible; for figures and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]

_UNSIGNED_MAP, _SIGNED_MAP = "magma", "RdBu_r"  # matplotlib colour maps
_UNSIGNED_BAR = "#5c2482"
_UNKNOWN_GREY = 0.5  # stands for values that are not finite
_LUMA = np.array([0.299, 0.587, 0.114])  # weights of red, green and blue (ITU-R BT.601)
LINE_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # Okabe and Ito: distinguishable for colour-blind readers
PROVEN_COLOUR, OTHER_COLOUR = LINE_COLOURS[0], "#999999"


def colours(signed: bool) -> Colormap:
    """Return the colour map from the lowest to the highest score."""
    return colormaps[_SIGNED_MAP if signed else _UNSIGNED_MAP]


def ends(values: Array, signed: bool) -> tuple[float, float]:
    """Return the scores at both ends of the colour map: from 0, or symmetric about it."""
    finite = np.where(np.isfinite(values), values, 0.0)
    most = float(np.abs(finite).max() if signed else max(finite.max(), 0.0)) or 1.0
    return (-most if signed else 0.0), most


def coloured(values: Array, low: float, high: float, signed: bool) -> Array:
    """Return the map (H, W) in colours, (H, W, 3); grey where the value is not finite."""
    pixels: Array = np.asarray(colours(signed)(np.clip((np.nan_to_num(values) - low) / (high - low), 0, 1)))[..., :3]
    pixels[~np.isfinite(values)] = _UNKNOWN_GREY
    return pixels


def bar_colour(score: float, signed: bool) -> object:
    """Return the colour of a score that is drawn as a bar."""
    return colours(signed)(0.88 if score > 0 else 0.12) if signed else _UNSIGNED_BAR


@dataclass(frozen=True)
class _OverlayStyle:
    """Parameters of an overlay, chosen by eye on digits, CIFAR-10 and ImageNet; the tests fix them."""

    most: float  # the opacity of the largest score
    rise: float  # the opacity grows with the score to this power
    shade: float  # how much a black pixel darkens the colour
    first: float  # position of the smallest score in the colour map
    last: float  # position of the largest score


_BRIGHT = _OverlayStyle(most=0.9, rise=1.0, shade=0.15, first=0.45, last=0.85)
_DARK = _OverlayStyle(most=0.85, rise=0.7, shade=0.4, first=0.4, last=0.8)


def overlaid(picture: Array, values: Array, high: float, signed: bool) -> Array:
    """Overlay a map (H, W) on the image in grey, (H, W) or (H, W, 3): (H, W, 3) in [0, 1].

    A larger score covers more of the image, but never all of it, and the image shades its colour. For unsigned scores,
    from 0 to `high`, the colours are bright and the image is darkened. For signed scores, from -high to high, the
    colours are dark and the image is lightened; bright ink on a dark ground is inverted.
    """
    grey = (picture if picture.ndim == 2 else picture @ _LUMA)[..., None]
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
    """Convert a tensor to a float64 array for drawing."""
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def pixels_of(sample: Tensor) -> Array:
    """Return (H, W), the mean over the channels."""
    values = numbers(sample)
    return values if values.ndim == 2 else values.mean(0)


def picture_of(sample: Tensor) -> Array:
    """Return (H, W) or (H, W, 3) in [0, 1]; a sample with values outside is rescaled by its own range."""
    colour = sample.ndim == 3 and sample.shape[0] == 3
    values = np.moveaxis(numbers(sample), 0, 2) if colour else pixels_of(sample)
    low, high = float(values.min()), float(values.max())
    return values if low >= 0 and high <= 1 else (values - low) / ((high - low) or 1.0)
