"""Pictures of explanations as data URIs, each with an alternative text that describes it."""

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
from proofmap.explainers.statements.explained_inputs import INPUT, each_input, variable_names
from proofmap.explainers.statements.proven_ranks import Ranks, is_sequence, ranks, searched
from proofmap.plots.figure_look import colours
from proofmap.plots.outline import outline
from proofmap.plots.overlay import Array, coloured, ends, layers, picture_of, pixels_of
from proofmap.plots.score_chart import MAX_WHISKER_RATIO
from proofmap.text.group_places import first_names, largest

_MIN_SIDE, _MAX_SIDE = 224, 448  # pixels of the longer side: smaller pictures are enlarged, larger ones reduced
_DASH = 4  # length of a dash in pixels
_STRIPE_DISTANCE, _STRIPE_WIDTH = 8, 2  # stripes of a hatch, in pixels
_MIN_REGION_SHARE = 0.15  # the alternative text names regions with this share of the scores; an even spread has 0.11
_REGIONS = (
    ("upper left", "upper middle", "upper right"),
    ("middle left", "centre", "middle right"),
    ("lower left", "lower middle", "lower right"),
)


@dataclass(frozen=True)
class PagePicture:
    """A picture and its alternative text."""

    source: str
    alt: str
    width: int
    height: int
    smooth: bool  # the browser may interpolate when it scales the picture


@dataclass(frozen=True)
class Maps:
    """An image, the map of its scores, and both overlaid; `low` and `high` are the ends of the colour scale."""

    input: PagePicture
    scores: PagePicture
    overlay: PagePicture
    low: float
    high: float


@dataclass(frozen=True)
class Place:
    """One of the largest scores: the place of its group, and the bound AO(B_u) when the group u cannot change."""

    where: str
    value: str  # values of the group; empty for images
    score: float
    frozen: tuple[float, ...]  # AO(B_u) for each half of the ball; empty if not bounded
    interval: tuple[float, float] | None = None  # the proven interval of the true score, if there is one
    proven: bool = True  # proven to be among the groups that matter most; True without proven intervals


@dataclass(frozen=True)
class ScoreBar:
    """A score as a bar on an axis from 0 to 100, and the ends of its interval. None: the end is beyond the axis."""

    start: float
    width: float
    zero: float
    ends: tuple[float | None, float | None] = (None, None)


def maps(e: Explanation, name: str) -> Maps | None:
    """Return the panels for an explanation of one sample; None if the sample is not an image, as tokens are none."""
    if e.x.ndim not in (3, 4) or is_sequence(e):
        return None
    picture, values = picture_of(e.x[0]), pixels_of(e.attributions[0])
    low, high = ends(values, e.signed)
    tall, wide = values.shape
    kind = "colour" if picture.ndim == 3 else "grey"
    seen, marks = describe(values, e.signed), None
    if searched(e):
        marks = ranks(e, 0)
        seen = f"{seen} Outlined: {marks.sentence}." if marks.proven else seen
    mask = e.mask[0].cpu().numpy()
    return Maps(
        page_picture(picture, f"The input {name}: a {kind} picture of {tall} rows and {wide} columns of pixels."),
        page_picture(coloured(values, low, high, e.signed), f"Map of the scores. {seen}", mask, marks),
        page_picture(layers(picture, values, high, e.signed).pixels, f"The input with its scores laid over it. {seen}"),
        low,
        high,
    )


def maps_of_inputs(e: Explanation, name: str) -> list[tuple[str, Maps]]:
    """Return the panels of an explanation of one sample: of each input that is an image, with its name if several."""
    parts = each_input(e)
    if len(parts) == 1:
        found = maps(e, name)
        return [] if found is None else [("", found)]
    each = [(str(part.settings[INPUT]), maps(part, f"{part.settings[INPUT]} of {name}")) for part in parts]
    return [(of_input, found) for of_input, found in each if found is not None]


def gradient(signed: bool) -> str:
    """Return the colour scale as a CSS gradient."""
    scale = colours(signed)(np.linspace(0, 1, 17))
    stops = ", ".join("#" + "".join(f"{round(255 * part):02x}" for part in colour[:3]) for colour in scale)
    return f"linear-gradient(to right, {stops})"


def describe(values: Array, signed: bool) -> str:
    """Describe in words where the scores of an image are."""
    raised, lowered = np.clip(values, 0, None), np.clip(-values, 0, None)
    if not signed:
        return _regions(raised, "The scores", "above zero")
    positive = _regions(raised, "Positive scores, in red,", "above zero")
    return f"{positive} {_regions(lowered, 'Negative scores, in blue,', 'below zero')}"


def _regions(values: Array, what: str, side: str) -> str:
    """Name the ninths of the image with the largest share of the scores, and the largest score."""
    weights = np.where(np.isfinite(values), values, 0.0)
    total = float(weights.sum())
    if total <= 0:
        return f"No score is {side}."
    rows, columns = (np.arange(size) * 3 // size for size in weights.shape)
    shares = np.array([[weights[np.ix_(rows == i, columns == j)].sum() for j in range(3)] for i in range(3)]) / total
    order = np.argsort(-shares, axis=None, kind="stable")[:3]
    named = [f"{_REGIONS[k // 3][k % 3]} ({shares.flat[k]:.0%})" for k in order if shares.flat[k] >= _MIN_REGION_SHARE]
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    regions = (
        f"lie mostly in these ninths of the image: {', '.join(named)}" if named else "are spread over the whole image"
    )
    return f"{what} {regions}; the largest is at row {row}, column {column}."


def means(maps: NDArray[Any], names: Sequence[str]) -> tuple[list[PagePicture], float, float, bool]:
    """Return (a panel for each mean map (K, *shape), low, high, signed). Maps that are not images have no panels."""
    if maps.ndim not in (3, 4) or not len(maps):
        return [], 0.0, 1.0, False
    pictures = [pixels_of(torch.from_numpy(each)) for each in maps]
    signed = bool((maps < 0).any())
    low, high = ends(np.stack(pictures), signed)
    panels = [
        page_picture(coloured(values, low, high, signed), f"Mean map of {name}. {describe(values, signed)}")
        for values, name in zip(pictures, names, strict=True)
    ]
    return panels, low, high, signed


def places(e: Explanation, most: int) -> list[Place]:
    """Return the groups with the largest absolute scores, for an explanation of one sample."""
    scores = e.scores[0].double().cpu().numpy()
    sides = [over.frozen[0] for over in (e.overlap, e.opposite) if over is not None and over.frozen.shape[1]]
    sides = sides if e.reason is None else []  # bounds of the whole ball say nothing about a sufficient set
    mask = e.mask[0].cpu().numpy()
    if is_sequence(e):
        shown = largest(scores, mask[:, 0], most, [f"token {at}" for at in range(len(mask))])
    else:
        shown = largest(scores, mask, most, columns_of(e))
    known = searched(e)
    intervals, proven = e.intervals[0].tolist(), ranks(e, 0).proven
    return [
        Place(
            where,
            values_of(e, group),
            float(scores[group]),
            tuple(float(side[group]) for side in sides),
            (intervals[group][0], intervals[group][1]) if known else None,
            not known or group in proven,
        )
        for group, where in shown
    ]


def columns_of(e: Explanation) -> Sequence[str] | None:
    """Return the names of a table's columns, or of the variables of several inputs, if the explanation has them."""
    names = variable_names(e)
    if names is not None:
        return names
    return e.origin.columns if e.x.ndim == 2 and e.origin is not None else None


def values_of(e: Explanation, group: int) -> str:
    """Return the values of a group as text; empty for images."""
    if e.x.ndim != 2:
        return ""
    return first_names([f"{value:.6g}".replace("-", "−") for value in e.x[0][e.mask[0] == group].tolist()])


def bars(shown: list[Place]) -> Iterator[ScoreBar]:
    """Yield the scores as bars on a common axis. Ends of intervals far beyond the scores do not extend the axis."""
    scores = np.nan_to_num(np.array([place.score for place in shown]))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    most = MAX_WHISKER_RATIO * max(-low, high)
    ends = [end for place in shown for end in place.interval or () if abs(end) <= most]
    low, high = min([low, *ends]), max([high, *ends])
    reach = (high - low) or 1.0

    def at(value: float) -> float:
        return 100 * (value - low) / reach

    for place, score in zip(shown, scores, strict=True):
        first, last = (at(end) if low <= end <= high else None for end in place.interval or (inf, inf))
        yield ScoreBar(at(min(float(score), 0.0)), 100 * abs(float(score)) / reach, at(0), (first, last))


def page_picture(values: Array, alt: str, mask: NDArray[Any] | None = None, marks: Ranks | None = None) -> PagePicture:
    """Return a PNG of values in [0, 1], (H, W) or (H, W, 3), in a size that is sharp on screen and paper.

    marks: groups of the mask (H, W) or (C, H, W) to outline. Groups that are proven to matter most get solid lines.
    """
    image = Image.fromarray(np.round(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8))
    image, smooth = _sized(image)
    if mask is not None and marks is not None:
        _mark(image, mask, marks)
    return _stored(image, alt, smooth)


def hatched_picture(values: Array, marked: NDArray[np.bool_], colour: str, alt: str) -> PagePicture:
    """Return a PNG of values (H, W, 3) in [0, 1] with stripes of a colour over the marked pixels (H, W)."""
    image = Image.fromarray(np.round(255 * np.clip(values, 0, 1)).astype(np.uint8))
    image, smooth = _sized(image)
    where = Image.fromarray(255 * marked.astype(np.uint8)).resize(image.size, Image.Resampling.NEAREST)
    rows, columns = np.indices((image.height, image.width))
    stripes = ((rows + columns) % _STRIPE_DISTANCE < _STRIPE_WIDTH) & (np.asarray(where) > 0)
    image.paste(colour, mask=Image.fromarray(255 * stripes.astype(np.uint8)))
    return _stored(image, alt, smooth)


def _sized(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return the image in a size that is sharp on screen and paper, and whether browsers may interpolate it."""
    longer = max(image.size)
    if longer < _MIN_SIDE:
        factor = -(-_MIN_SIDE // longer)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    elif longer > _MAX_SIDE:
        image.thumbnail((_MAX_SIDE, _MAX_SIDE), Image.Resampling.BOX)
    return image, longer >= _MIN_SIDE


def _stored(image: Image.Image, alt: str, smooth: bool) -> PagePicture:
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    source = f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
    return PagePicture(source, alt, *image.size, smooth)


def _mark(image: Image.Image, mask: NDArray[Any], marks: Ranks) -> None:
    """Draw white outlines on black ones, which are visible on dark and on bright colours."""
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
    """Yield the dashes of a line."""
    length = float(np.abs(last - first).sum())
    for start in np.arange(0, length, 2 * _DASH):
        stop = min(start + _DASH, length)
        yield first + (last - first) * start / length, first + (last - first) * stop / length
