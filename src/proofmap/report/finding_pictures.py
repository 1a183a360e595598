"""What an explanation looks like: pictures as data URIs, and for each of them the words that say what is seen."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from proofmap.explainers import Explanation
from proofmap.plots.outline import outline
from proofmap.plots.overlay import Array, coloured, colours, ends, overlaid, picture_of, pixels_of
from proofmap.plots.score_chart import BEYOND
from proofmap.text.group_places import first_names, largest
from proofmap.text.proven_ranks import Ranks, ranks, searched

__all__ = ["Bar", "Maps", "Panel", "Place", "bars", "columns_of", "gradient", "maps", "means", "places"]

_SHORTEST, _LONGEST = 224, 448  # pixels of a picture's longer side: small ones are enlarged, large ones reduced
_DASH = 4  # pixels of an outline that is not solid
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
    interval: tuple[float, float] | None = None  # in which the true score lies, where both sides were searched
    proven: bool = True  # to be among those that matter most; True where nothing is told apart


@dataclass(frozen=True)
class Bar:
    """A score as a bar of an axis from 0 to 100, and the ends of its interval there; None: it leaves the axis."""

    start: float
    width: float
    zero: float
    ends: tuple[float | None, float | None] = (None, None)


def maps(e: Explanation, name: str) -> Maps | None:
    """The panels of the one sample of e; None where it is no image."""
    if e.x.ndim not in (3, 4):
        return None
    picture, values = picture_of(e.x[0]), pixels_of(e.attributions[0])
    low, high = ends(values, e.signed)
    tall, wide = values.shape
    kind = "colour" if picture.ndim == 3 else "grey"
    seen, marks = describe(values, e.signed), None
    if searched(e):
        marks = ranks(e, 0)
        seen = f"{seen} {_outlined(marks)}".rstrip()
    mask = e.mask[0].cpu().numpy()
    return Maps(
        _panel(picture, f"The input {name}: a {kind} picture of {tall} rows and {wide} columns of pixels."),
        _panel(coloured(values, low, high, e.signed), f"Map of the scores. {seen}", mask, marks),
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
    shown = largest(scores, e.mask[0].cpu().numpy(), most, columns_of(e))
    known = searched(e)
    intervals, proven = e.intervals[0].tolist(), ranks(e, 0).proven
    return [
        Place(
            where,
            _values(e, group),
            float(scores[group]),
            tuple(float(side[group]) for side in sides),
            (intervals[group][0], intervals[group][1]) if known else None,
            not known or group in proven,
        )
        for group, where in shown
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
    """The scores as bars on one axis that holds zero, all of them, and their intervals unless those are far longer."""
    scores = np.nan_to_num(np.array([place.score for place in shown]))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    most = BEYOND * max(-low, high)
    ends = [end for place in shown for end in place.interval or () if abs(end) <= most]
    low, high = min([low, *ends]), max([high, *ends])
    reach = (high - low) or 1.0

    def at(value: float) -> float:
        return 100 * (value - low) / reach

    for place, score in zip(shown, scores, strict=True):
        first, last = (at(end) if low <= end <= high else None for end in place.interval or (inf, inf))
        yield Bar(at(min(float(score), 0.0)), 100 * abs(float(score)) / reach, at(0), (first, last))


def _outlined(found: Ranks) -> str:
    """What the outlines of a map say."""
    if not found.proven:
        return ""
    return f"Outlined: {found.sentence}."


def _panel(values: Array, alt: str, mask: NDArray[Any] | None = None, marks: Ranks | None = None) -> Panel:
    """A PNG of values in [0, 1], (H, W) or (H, W, 3), at a size that browsers and paper show sharply.

    marks: groups of the mask (H, W) or (C, H, W) to outline, those that are proven to matter most by solid lines.
    """
    image = Image.fromarray(np.round(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8))
    longer = max(image.size)
    if longer < _SHORTEST:
        factor = -(-_SHORTEST // longer)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    elif longer > _LONGEST:
        image.thumbnail((_LONGEST, _LONGEST), Image.Resampling.BOX)
    if mask is not None and marks is not None:
        _mark(image, mask, marks)
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    source = f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
    return Panel(source, alt, *image.size, longer >= _SHORTEST)


def _mark(image: Image.Image, mask: NDArray[Any], marks: Ranks) -> None:
    """White outlines on black ones, which are seen on dark colours and on bright ones."""
    tall, wide = mask.shape[-2:]
    draw, scale = ImageDraw.Draw(image), np.array([image.width / wide, image.height / tall])
    for groups, solid in ((marks.open, False), (marks.proven, True)):
        members = [mask == group for group in groups]
        lines = [line for each in members for line in outline(each if each.ndim == 2 else each.any(0))]
        ends = [np.clip(np.round(np.array(line) * scale), 1, np.array(image.size) - 2) for line in lines]
        for colour, width in (("black", 4), ("white", 2)):
            for first, last in ends:
                for start, stop in [(first, last)] if solid or colour == "black" else _dashes(first, last):
                    draw.line([*start, *stop], fill=colour, width=width)


def _dashes(first: Array, last: Array) -> Iterator[tuple[Array, Array]]:
    """Every second piece of a line."""
    length = float(np.abs(last - first).sum())
    for start in np.arange(0, length, 2 * _DASH):
        stop = min(start + _DASH, length)
        yield first + (last - first) * start / length, first + (last - first) * stop / length
