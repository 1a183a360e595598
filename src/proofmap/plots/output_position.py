"""The place of an explained output in the picture, if outputs map to pixels of the input, as in segmentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.patches import Rectangle

from proofmap.text.output_wording import explained_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAPTION = "input; box: the explained output"


def output_box(settings: Mapping[str, Any], tall: int, wide: int) -> tuple[float, float, float, float] | None:
    """Return (top, left, height, width) of the explained output in pixels of an image (tall, wide).

    None if the settings name no output, or if the outputs are no map with the sides of the image, up to one factor.
    """
    output, shape = explained_output(settings), settings.get("output_shape")
    if output is None or not isinstance(shape, list) or len(shape) < 2 or len(shape) != len(output.places):
        return None
    rows, columns = shape[-2:]
    if min(rows, columns) < 2 or tall * columns != wide * rows:
        return None
    ends = []
    for place, side in zip(output.places[-2:], (rows, columns), strict=True):
        picked = range(side)[place] if isinstance(place, slice) else range(place, place + 1)
        ends.append((min(picked), max(picked) + 1))
    factor = tall / rows
    (top, bottom), (left, right) = ends
    return factor * top, factor * left, factor * (bottom - top), factor * (right - left)


def mark_output(panels: Sequence[Axes], box: tuple[float, float, float, float]) -> None:
    """Draw a box around the explained output, white on black, in each picture of an image."""
    top, left, height, width = box
    for panel in panels:
        for colour, line in (("black", 3.0), ("white", 1.4)):
            look: Any = {"fill": False, "edgecolor": colour, "linewidth": line, "clip_on": False, "zorder": 5}
            panel.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, **look))
