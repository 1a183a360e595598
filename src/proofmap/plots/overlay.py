"""An image, the map of its scores in colours, and an overlay of both in two layers, so that each stays visible."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.plots.figure_look import Look, Number, colours

Array: TypeAlias = NDArray[np.float64]

_MAX_EXCESS = 0.1  # un-normalised values may leave [0, 1] by this much, as noisy inputs do
_UNKNOWN_GREY = 0.5  # stands for values that are not finite
_LUMA = np.array([0.299, 0.587, 0.114])  # weights of red, green and blue (ITU-R BT.601)
OTHER_COLOUR = "#999999"  # bars that are not proven


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
_SECTION_COLOURS = 256  # colours of the part of a colour map that an overlay uses, for each sign


@dataclass(frozen=True, eq=False)
class Layers:
    """An image in grey, and above it a map whose opacity grows with the score.

    The image is darker below large scores, so that it also shades their colours.
    """

    grey: Array  # (H, W) in [0, 1]
    values: Array  # (H, W) the scores
    opacity: Array  # (H, W) of the scores
    colours: Colormap  # from `low` to `high`
    low: float
    high: float

    def draw(self, panel: Axes) -> AxesImage:
        """Draw both layers; return the upper one."""
        panel.imshow(self.grey, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        scale: Any = {"cmap": self.colours, "vmin": self.low, "vmax": self.high}
        return panel.imshow(self.values, alpha=self.opacity, interpolation="nearest", **scale)

    @property
    def pixels(self) -> Array:
        """Both layers in one image (H, W, 3)."""
        place = np.clip((np.nan_to_num(self.values) - self.low) / (self.high - self.low), 0, 1)
        opacity = self.opacity[..., None]
        both: Array = opacity * self.colours(place)[..., :3] + (1 - opacity) * self.grey[..., None]
        return both


def layers(picture: Array, values: Array, high: float, signed: bool, cmap: Colormap | None = None) -> Layers:
    """Lay a map (H, W) over an image (H, W) or (H, W, 3).

    A larger score covers more of the image, but never all of it, and the image shades its colour. For unsigned scores,
    from 0 to `high`, the colours are bright and the image is darkened. For signed scores, from -high to high, the
    colours are dark and the image is lightened; bright ink on a dark ground is inverted.
    """
    grey = picture if picture.ndim == 2 else picture @ _LUMA
    cover = _DARK if signed else _BRIGHT
    if signed:
        grey = 1 - grey if picture.ndim == 2 and picture.mean() < 0.5 else grey
    size = np.abs(np.clip(np.nan_to_num(values) / high, -1 if signed else 0, 1))
    covered = cover.most * size**cover.rise
    opacity = covered * (1 - cover.shade * (1 - grey))
    under = (0.45 + 0.55 * grey if signed else 0.8 * grey) * (1 - covered) / (1 - opacity)
    section = _section(colours(signed) if cmap is None else cmap, cover, signed)
    return Layers(under, values, opacity, section, -high if signed else 0.0, high)


def _section(whole: Colormap, cover: _OverlayStyle, signed: bool) -> Colormap:
    """Return the part of a colour map that is used for scores above 0, or for both signs."""
    part = np.linspace(cover.first, cover.last, _SECTION_COLOURS)
    places = np.concatenate([(1 - part[::-1]) / 2, (1 + part) / 2]) if signed else part
    return ListedColormap(whole(places))


def numbers(tensor: Tensor) -> Array:
    """Convert a tensor to a float64 array for drawing."""
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def pixels_of(sample: Tensor) -> Array:
    """Return (H, W), the mean over the channels."""
    values = numbers(sample)
    return values if values.ndim == 2 else values.mean(0)


def picture_of(sample: Tensor, mean: Number | None = None, std: Number | None = None) -> Array:
    """Return (H, W) or (H, W, 3) in [0, 1].

    mean, std: of the normalisation (v - mean) / std that made the sample, a number or one for each channel. Without
    them, a sample with values outside [0, 1] is rescaled by its own range.
    """
    if mean is not None or std is not None:
        sample = _unnormalised(sample, 0.0 if mean is None else mean, 1.0 if std is None else std)
    colour = sample.ndim == 3 and sample.shape[0] == 3
    values = np.moveaxis(numbers(sample), 0, 2) if colour else pixels_of(sample)
    low, high = float(values.min()), float(values.max())
    return values if low >= 0 and high <= 1 else (values - low) / ((high - low) or 1.0)


def _unnormalised(sample: Tensor, mean: Number, std: Number) -> Tensor:
    """Return sample · std + mean, cut to [0, 1]; raise InputError if it is far outside."""
    channels = sample.shape[0] if sample.ndim == 3 else 1
    shift, factor = (torch.as_tensor(each, dtype=torch.float64).flatten() for each in (mean, std))
    if any(len(each) not in (1, channels) for each in (shift, factor)) or not bool((factor > 0).all()):
        raise InputError(
            f"got mean={mean!r} and std={std!r}, expected a number or one for each of {channels} channels, and std > 0"
        )
    each = (-1, *[1] * (sample.ndim - 1)) if sample.ndim == 3 else (1, 1)
    values = sample.detach().double().cpu() * factor.view(each) + shift.view(each)
    low, high = float(values.min()), float(values.max())
    if low < -_MAX_EXCESS or high > 1 + _MAX_EXCESS:
        raise InputError(
            f"x · std + mean is from {low:.3g} to {high:.3g}, expected 0 to 1: give mean and std of the normalisation "
            "(v - mean) / std that made x from values v in [0, 1]"
        )
    return values.clamp(0, 1)


def draw_picture(panel: Axes, sample: Tensor, look: Look) -> None:
    """Draw a sample as an image."""
    picture = picture_of(sample, look.mean, look.std)
    panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
