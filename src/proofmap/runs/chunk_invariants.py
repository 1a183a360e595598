"""Invariants of a chunk: conditions that the rows of every correct run satisfy.

They detect changed numbers even if all hashes were changed to fit, such as an upper bound of AO(B) below the overlap at
x, or a frozen overlap above AO(B). They are necessary conditions, not proofs; certificates are proofs.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from proofmap.registry import EXPLAINER_ENTRIES
from proofmap.runs.attained_points import POINT_ARRAYS
from proofmap.runs.chunk import (
    ARRAYS,
    CONTRAST_ARRAYS,
    DROP_BOUNDS,
    ERRORS,
    LOWER_BOUNDS,
    REASON_ARRAYS,
    Array,
    ChunkTexts,
)
from proofmap.runs.sets.contrast_results import CONTRAST_POINTS
from proofmap.runs.sets.reason_results import REASON_POINTS

_CROSSING_TOLERANCE = 1e-3  # relative to 1 + |value|: float32 bounds may cross by less than this
_SHA256 = re.compile("[0-9a-f]{64}")
_BALL_ARRAYS = ("eps", "full", "nominal", "frozen")


def find_violation(about: Mapping[str, Any], texts: ChunkTexts, arrays: Mapping[str, Array], first: int) -> str | None:
    """Return the first condition that a chunk violates, or None.

    Args:
        about: The manifest's record of the run.
        texts: The chunk's texts.
        arrays: All arrays of the chunk.
        first: The row of the chunk's first sample in the run.
    """
    return next(_violations(about, texts, arrays, first), None)


def _violations(about: Mapping[str, Any], texts: ChunkTexts, arrays: Mapping[str, Array], first: int) -> Iterator[str]:
    job, method = about["job"], EXPLAINER_ENTRIES[about["job"]["method"]]
    expected = method.kind.guarantee if method.ball else "none"
    if texts.guarantee != expected:
        yield f"its guarantee is {texts.guarantee!r}, and {job['method']} gives {expected!r}"
    for name, hashes in (("files", texts.files), ("inputs", texts.inputs)):
        if any(one is not None and not _SHA256.fullmatch(one) for one in hashes):
            yield f"{name} holds what is no SHA-256"
    yield from _members(about, arrays, method.ball)
    yield from _shapes(about, arrays)
    failed = np.isin(np.arange(len(texts.names)), [*texts.reasons])
    yield from _numbers(about, arrays, failed, texts, first)
    if method.ball:
        yield from _bounds(job, texts, {name: array[~failed] for name, array in arrays.items() if name in ARRAYS})


def _members(about: Mapping[str, Any], arrays: Mapping[str, Array], ball: bool) -> Iterator[str]:
    """Yield missing arrays, and arrays that no run of this kind writes."""
    needed = {"index", "target", "predicted", "scores", *(_BALL_ARRAYS if ball else ())}
    needed |= {"label"} if about["data"]["labels"] is not None else set()
    needed |= {"mask"} if about["mask"] is None else set()
    optional = {ERRORS} | ({*LOWER_BOUNDS, *DROP_BOUNDS, *POINT_ARRAYS} if ball else set())
    optional |= {*REASON_ARRAYS, *REASON_POINTS} if about["job"]["method"] == "sufficient" else set()
    optional |= {*CONTRAST_ARRAYS, *CONTRAST_POINTS} if about["job"]["method"] == "contrastive" else set()
    for group in (LOWER_BOUNDS, DROP_BOUNDS, POINT_ARRAYS):
        if 0 < len({*group} & arrays.keys()) < len(group):
            yield f"it has only some of the arrays {', '.join(group)}"
    missing, foreign = sorted(needed - arrays.keys()), sorted(arrays.keys() - needed - optional)
    if missing or foreign:
        yield f"it lacks the arrays {missing} and has the foreign arrays {foreign}"


def _shapes(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Iterator[str]:
    """Yield arrays whose shapes do not fit together."""
    shape, rows = tuple(about["model"]["shape"]), len(arrays["index"])
    groups = arrays["scores"].shape[1]
    for name, array in arrays.items():
        if name in ARRAYS and ARRAYS[name][2] == 2 and array.shape[1] not in (0, groups):
            yield f"{name} has {array.shape[1]} groups, and scores has {groups}"
    if "mask" in arrays:
        mask = arrays["mask"]
        if mask.shape[1:] != shape:
            yield f"mask is {mask.shape}, expected {(rows, *shape)}"
        elif mask.min() < 0 or mask.max() >= max(groups, 1):
            yield f"mask has groups from {mask.min()} to {mask.max()}, expected 0 to {groups - 1}"
    if POINT_ARRAYS[0] in arrays:
        x, full, changed, place, value = (arrays[name] for name in POINT_ARRAYS)
        sound = x.shape == full.shape == (rows, *shape) and changed.shape == (rows,) and changed.min() >= 0
        if not sound or place.shape != value.shape or changed.sum() != len(place):
            yield "the arrays of its points do not fit together"
        elif len(place) and int(place.max()) >= groups * x[0].size:
            yield "its points lie outside the groups"


def _numbers(
    about: Mapping[str, Any], arrays: Mapping[str, Array], failed: Array, texts: ChunkTexts, first: int
) -> Iterator[str]:
    """Yield numbers out of range, and numbers in rows that were not explained."""
    classes, index, held = about["model"]["outputs"], arrays["index"], ~failed

    def named(rows: Array) -> str:
        row = int(np.flatnonzero(rows)[0])
        return f"row {first + row}, {texts.names[row]}"

    places = np.arange(first, first + len(index))
    wrong = index < 0 if about["data"].get("shuffle") else index != places
    if wrong.any():
        yield f"index is {index[wrong][0]} in {named(wrong)}"
    for name, least in (("target", 0), ("predicted", 0), ("label", -1)):
        if name not in arrays:
            continue
        values = arrays[name]
        wrong = (values < least) | (values >= classes)
        wrong = wrong if name == "label" else np.where(failed, values != -1, wrong)
        if wrong.any():
            yield f"{name} is {values[wrong][0]} in {named(wrong)}, expected a class from 0 to {classes - 1}"
    for name, array in arrays.items():
        if name not in ARRAYS or not np.issubdtype(array.dtype, np.floating):
            continue
        flat = array.reshape(len(array), -1)
        if (wrong := failed & ~np.isnan(flat).all(1)).any():
            yield f"{name} has numbers in {named(wrong)}, which was not explained"
        unknown = ~np.isfinite(flat) if name in ("eps", "nominal") else np.isnan(flat) & (name in _BALL_ARRAYS)
        if (wrong := held & unknown.any(1)).any():
            yield f"{name} is not a number in {named(wrong)}"
    if "eps" in arrays and (wrong := held & (arrays["eps"] < 0)).any():
        yield f"eps is negative in {named(wrong)}"


def _bounds(job: Mapping[str, Any], texts: ChunkTexts, arrays: Mapping[str, Array]) -> Iterator[str]:
    """Yield bounds that contradict each other, in the rows that were explained."""
    names = [name for row, name in enumerate(texts.names) if row not in texts.reasons]
    proven, searched = texts.guarantee == "certified", LOWER_BOUNDS[0] in arrays
    monotone = job["settings"].get("sharing") != "separate"  # "separate" bounds may exceed that of B
    pairs = [
        ("nominal", "full", proven),
        ("frozen", "full", monotone and texts.guarantee in ("certified", "probable")),
        (LOWER_BOUNDS[0], "full", proven and searched),
        (LOWER_BOUNDS[1], "frozen", proven and searched),
        (*DROP_BOUNDS, DROP_BOUNDS[0] in arrays),
    ]
    for below, above, holds in pairs:
        if not holds or not arrays[below].size:
            continue
        low, high = arrays[below].astype(np.float64), arrays[above].astype(np.float64)
        high = high[:, None] if low.ndim > high.ndim else high
        room = _CROSSING_TOLERANCE * (1 + np.where(np.isfinite(high), np.abs(high), 0.0))
        wrong = np.argwhere(low > high + room)
        if len(wrong):
            at = tuple(wrong[0])
            high = np.broadcast_to(high, low.shape)
            yield f"{below} is {low[at]:g} and {above} is {high[at]:g} of {names[at[0]]}, which cannot be"
