"""An image with a sufficient set: free pixels faded, necessary groups tinted, undecided groups tinted and hatched."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from proofmap.plots.figure_look import LINE_COLOURS
from proofmap.plots.outline import outline
from proofmap.plots.overlay import Array

STATE_COLOURS: Mapping[str, Any] = {"necessary": LINE_COLOURS[0], "undecided": LINE_COLOURS[1]}
FREE_GREY = "0.88"  # the ground of free groups
HATCH = "//////"
_FREE_WHITE, _FREE_BLACK = 0.95, 0.80  # free pixels keep this range of grey, so that the image stays faintly visible
# How much of its state's colour a kept pixel has, if it is black and if it is white. Undecided pixels are also hatched.
_NECESSARY_TINT, _UNDECIDED_TINT = (0.85, 0.3), (0.5, 0.15)


def kept_picture(
    picture: Array,
    mask: NDArray[Any],
    free: NDArray[np.bool_],
    undecided: NDArray[np.bool_],
    colours: Mapping[str, Any] = STATE_COLOURS,
) -> Array:
    """Return an image (H, W, 3) in which only the kept groups are visible, tinted by their state.

    A pixel whose channels belong to several groups is kept if one of them is, and undecided if one of them is.

    Args:
        picture: (H, W) or (H, W, 3) in [0, 1].
        mask: The group of each value, (H, W) or (C, H, W).
        free: (G,) the free groups.
        undecided: (G,) the undecided groups.
        colours: The colours of the states "necessary" and "undecided".
    """
    colour = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
    grey = colour.mean(axis=2, keepdims=True)
    kept, open_ = _pixels(~free[mask]), _pixels(undecided[mask])
    dark, bright = (
        np.where(open_[..., None], first, second)
        for first, second in zip(
            _ends(colours["undecided"], *_UNDECIDED_TINT), _ends(colours["necessary"], *_NECESSARY_TINT), strict=True
        )
    )
    faded = np.repeat(_FREE_BLACK + (_FREE_WHITE - _FREE_BLACK) * grey, 3, axis=2)
    found: Array = np.where(kept[..., None], dark + (bright - dark) * colour, faded)
    return found


def _ends(colour: Any, of_black: float, of_white: float) -> tuple[Array, Array]:
    """Return the colours of a black and of a white pixel in a tint."""
    tint = np.array(to_rgb(colour))
    return of_black * tint, 1 - of_white * (1 - tint)


def undecided_pixels(mask: NDArray[Any], undecided: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Yield (left, top, width) of the runs of undecided pixels in each row."""
    pixels = _pixels(undecided[mask])
    for row, line in enumerate(np.diff(np.pad(pixels, ((0, 0), (1, 1))).astype(np.int8), axis=1)):
        for start, stop in zip(np.flatnonzero(line == 1), np.flatnonzero(line == -1), strict=True):
            yield int(start), row, int(stop - start)


def outline_group(panel: Axes, member: NDArray[np.bool_], colour: Any, line: str = "-") -> None:
    """Draw a line around a group (H, W) or (C, H, W), in a colour on white, visible on dark and on bright pixels."""
    lines = np.array(outline(_pixels(member)), dtype=float).reshape(-1, 2, 2) - 0.5
    for ink, width, style in (("white", 3.2, "-"), (colour, 1.8, line)):
        look: Any = {"color": ink, "linewidth": width, "linestyle": style, "zorder": 4, "clip_on": False}
        look |= {"capstyle": "projecting"} if style == "-" else {"capstyle": "butt"}
        panel.add_collection(LineCollection(list(lines), **look))


def _pixels(values: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (H, W): whether any channel of a pixel is True."""
    return values if values.ndim == 2 else np.asarray(values.any(axis=0))
