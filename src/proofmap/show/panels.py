"""What an explanation looks like: pictures as data URIs, and for each of them the words that say what is seen."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from proofmap.explain import Explanation
from proofmap.explain.overlay import Array, coloured, colours, ends, overlaid, picture_of, pixels_of
from proofmap.explain.places import first_names, largest

__all__ = ["Bar", "Maps", "Panel", "Place", "bars", "columns_of", "gradient", "maps", "means", "places"]

_SHORTEST, _LONGEST = 224, 448  # pixels of a picture's longer side: small ones are enlarged, large ones reduced
_MUCH = 0.15  # of all scores in a ninth of the image is worth naming it; an even spread has 0.11
_REGIONS = (
    ("upper left", "upper middle", "upper right"),
    ("middle left", "centre", "middle right"),
    ("lower left", "lower middle", "lower right"),
)


@dataclass(frozen=True)
class Panel:
    """A picture and the words for those who do not see it."""

    source: str
    alt: str
    width: int
    height: int
    smooth: bool  # many small pixels: a browser may blend them when it changes the size


@dataclass(frozen=True)
class Maps:
    """An image, the map of its scores and both together; low and high are the ends of the colour scale."""

    input: Panel
    scores: Panel
    overlay: Panel
    low: float
    high: float


@dataclass(frozen=True)
class Place:
    """One of the largest scores: where its group is, and the bound that is left when the group may not move."""

    where: str
    value: str  # of the variables of an input that is no image
    score: float
    frozen: tuple[float, ...]  # one a ball; empty where none was bounded


@dataclass(frozen=True)
class Bar:
    """A score as a bar of an axis from 0 to 100."""

    start: float
    width: float
    zero: float


def maps(e: Explanation, name: str) -> Maps | None:
    """The panels of the one sample of e; None where it is no image."""
    if e.x.ndim not in (3, 4):
        return None
    picture, values = picture_of(e.x[0]), pixels_of(e.attributions[0])
    low, high = ends(values, e.signed)
    tall, wide = values.shape
    kind = "colour" if picture.ndim == 3 else "grey"
    seen = describe(values, e.signed)
    return Maps(
        _panel(picture, f"The input {name}: a {kind} picture of {tall} rows and {wide} columns of pixels."),
        _panel(coloured(values, low, high, e.signed), f"Map of the scores. {seen}"),
        _panel(overlaid(picture, values, high, e.signed), f"The input with its scores laid over it. {seen}"),
        low,
        high,
    )


def gradient(signed: bool) -> str:
    """The colours of a scale from its low end to its high end, as a CSS gradient."""
    scale = colours(signed)(np.linspace(0, 1, 17))
    stops = ", ".join("#" + "".join(f"{round(255 * part):02x}" for part in colour[:3]) for colour in scale)
    return f"linear-gradient(to right, {stops})"


def describe(values: Array, signed: bool) -> str:
    """Where the scores of an image are, in words."""
    raised, lowered = np.clip(values, 0, None), np.clip(-values, 0, None)
    if not signed:
        return _regions(raised, "The scores", "above zero")
    positive = _regions(raised, "Positive scores, in red,", "above zero")
    return f"{positive} {_regions(lowered, 'Negative scores, in blue,', 'below zero')}"


def _regions(values: Array, what: str, side: str) -> str:
    """Which ninths of the image hold the most of what is there, and where it is largest."""
    weights = np.where(np.isfinite(values), values, 0.0)
    total = float(weights.sum())
    if total <= 0:
        return f"No score is {side}."
    rows, columns = (np.arange(size) * 3 // size for size in weights.shape)
    shares = np.array([[weights[np.ix_(rows == i, columns == j)].sum() for j in range(3)] for i in range(3)]) / total
    order = np.argsort(-shares, axis=None, kind="stable")[:3]
    named = [f"{_REGIONS[at // 3][at % 3]} ({shares.flat[at]:.0%})" for at in order if shares.flat[at] >= _MUCH]
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    regions = (
        f"lie mostly in these ninths of the image: {', '.join(named)}" if named else "are spread over the whole image"
    )
    return f"{what} {regions}; the largest is at row {row}, column {column}."


def means(maps: NDArray[Any], names: Sequence[str]) -> tuple[list[Panel], float, float, bool]:
    """(a panel for each mean map (K, *shape), on one scale; its ends; whether it has signs); no images, no panel."""
    if maps.ndim not in (3, 4) or not len(maps):
        return [], 0.0, 1.0, False
    pictures = [pixels_of(torch.from_numpy(each)) for each in maps]
    signed = bool((maps < 0).any())
    low, high = ends(np.stack(pictures), signed)
    panels = [
        _panel(coloured(values, low, high, signed), f"Mean map of {name}. {describe(values, signed)}")
        for values, name in zip(pictures, names, strict=True)
    ]
    return panels, low, high, signed


def places(e: Explanation, most: int) -> list[Place]:
    """The groups with the largest scores of the one sample of e, by absolute value."""
    scores = e.scores[0].double().cpu().numpy()
    sides = [over.frozen[0] for over in (e.overlap, e.opposite) if over is not None and over.frozen.shape[1]]
    return [
        Place(where, _values(e, group), float(scores[group]), tuple(float(side[group]) for side in sides))
        for group, where in largest(scores, e.mask[0].cpu().numpy(), most, columns_of(e))
    ]


def columns_of(e: Explanation) -> Sequence[str] | None:
    """The names of the variables, where they are columns that have names."""
    return e.origin.columns if e.x.ndim == 2 and e.origin is not None else None


def _values(e: Explanation, group: int) -> str:
    """What the variables of a group are in the one sample of e, where it is no image."""
    if e.x.ndim != 2:
        return ""
    return first_names([f"{value:.6g}".replace("-", "−") for value in e.x[0][e.mask[0] == group].tolist()])


def bars(shown: list[Place]) -> Iterator[Bar]:
    """The scores as bars on one axis that holds zero and all of them."""
    scores = np.nan_to_num(np.array([place.score for place in shown]))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    reach = (high - low) or 1.0
    for score in scores:
        start = 100 * (min(float(score), 0.0) - low) / reach
        yield Bar(start, 100 * abs(float(score)) / reach, -100 * low / reach)


def _panel(values: Array, alt: str) -> Panel:
    """A PNG of values in [0, 1], (H, W) or (H, W, 3), at a size that browsers and paper show sharply."""
    image = Image.fromarray(np.round(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8))
    longer = max(image.size)
    if longer < _SHORTEST:
        factor = -(-_SHORTEST // longer)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    elif longer > _LONGEST:
        image.thumbnail((_LONGEST, _LONGEST), Image.Resampling.BOX)
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    source = f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
    return Panel(source, alt, *image.size, longer >= _SHORTEST)
