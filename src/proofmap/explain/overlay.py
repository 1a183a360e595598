"""A map laid over its picture, so that both can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

__all__ = ["NEGATIVE_TOO", "POSITIVE", "Array", "overlaid"]

Array: TypeAlias = NDArray[np.float64]

POSITIVE, NEGATIVE_TOO = "magma", "RdBu_r"  # colours of scores from 0, and of scores with signs
_LIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue


@dataclass(frozen=True)
class _Way:
    """How a map covers its picture: chosen by eye on digits, CIFAR-10 and ImageNet, and held by the tests."""

    cover: float  # how much of the picture the largest score hides
    rise: float  # the power by which a score covers
    shade: float  # how much darker a colour is on black than on white
    colours: tuple[
        float, float
    ]  # of the map, for the smallest and the largest score: where it is neither black nor pale


_BRIGHT = _Way(cover=0.9, rise=1.0, shade=0.15, colours=(0.45, 0.85))
_DARK = _Way(cover=0.85, rise=0.7, shade=0.4, colours=(0.4, 0.8))


def overlaid(picture: Array, values: Array, high: float, signed: bool) -> Array:
    """The map (H, W) over the picture in grey, (H, W) or (H, W, 3): (H, W, 3) in [0, 1].

    A score covers the picture the more the larger it is, never wholly, and its colour is shaded by the picture. Under
    bright colours, those of scores from 0 to `high`, the picture is dimmed. Under the dark ones of scores with signs,
    from -high to high, it is paled, and bright ink on a dark ground becomes dark ink on a bright one.
    """
    grey = (picture if picture.ndim == 2 else picture @ _LIGHTNESS)[..., None]
    scores = np.clip(np.nan_to_num(values) / high, -1 if signed else 0, 1)[..., None]
    way, size = _DARK if signed else _BRIGHT, np.abs(scores)
    first, last = way.colours
    place = first + (last - first) * size
    if signed:
        colours = colormaps[NEGATIVE_TOO]((1 + np.sign(scores) * place)[..., 0] / 2)[..., :3]
        grey = 1 - grey if picture.ndim == 2 and picture.mean() < 0.5 else grey
        under = 0.45 + 0.55 * grey
    else:
        colours, under = colormaps[POSITIVE](place[..., 0])[..., :3], 0.8 * grey
    covered = way.cover * size**way.rise
    found: Array = covered * colours * (1 - way.shade * (1 - grey)) + (1 - covered) * under
    return found
