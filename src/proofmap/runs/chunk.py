"""The results of some samples as one file: safetensors, with what is no array as JSON in its metadata.

Nothing in it is ever executed, and the same results give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from proofmap.errors import FileError
from proofmap.explainers.explanation import Guarantee

__all__ = ["ARRAYS", "DROPS", "ERRORS", "LOWER", "SCORES", "WHOLE", "Array", "Words"]
__all__ += ["pack", "read_array", "read_words", "widened"]

Array = NDArray[Any]

_FORMAT = "proofmap-chunk"
_VERSION = 2

# name: (dtype, fill, rank). Every array has a row for each sample, in the order of the run, and the fill value where a
# sample could not be explained.
ARRAYS: Mapping[str, tuple[str, Any, int]] = {
    "index": ("int64", -1, 1),  # of the sample in the data set
    "label": ("int64", -1, 1),
    "target": ("int64", -1, 1),
    "predicted": ("int64", -1, 1),
    "eps": ("float64", np.nan, 1),  # the radius of the ball
    "full": ("float32", np.nan, 1),  # AO(B)
    "nominal": ("float32", np.nan, 1),  # the overlap at x itself
    "scores": ("float32", np.nan, 2),  # (n, G)
    "errors": ("float32", np.nan, 2),  # (n, G) the standard errors of the scores, where these are means over draws
    "frozen": ("float32", np.nan, 2),  # (n, G) AO(B_u)
    "full_lower": ("float32", np.nan, 1),  # what AO(B) is at least, where inputs were met that reach more than x,
    "frozen_lower": ("float32", np.nan, 2),  # (n, G) and AO(B_u)
    "drop_lower": ("float64", np.nan, 2),  # (n, G) between which AO(B) - AO(B_u) is, where it was bounded as one value
    "drop_upper": ("float64", np.nan, 2),
}
ERRORS = "errors"
LOWER = ("full_lower", "frozen_lower")
DROPS = ("drop_lower", "drop_upper")
SCORES = ("score_lower", "score_upper")  # (n, G) float64, not in a file: between which true scores lie, proven
WHOLE = {"frozen": "full", "frozen_lower": "full_lower"}  # the same without a frozen group


@dataclass(frozen=True)
class Words:
    """What a chunk says beside its arrays."""

    guarantee: Guarantee
    names: Sequence[str]
    reasons: Mapping[int, str]  # row -> why the sample could not be explained
    files: Sequence[str | None]  # the SHA-256 of the file that holds each sample, where it is in one
    about: Mapping[str, Any]  # what was computed: model, job, groups and versions, as in the manifest
    taken_off: str | None = None  # the end of the network that was left out of the bounds
    inputs: Sequence[str | None] = ()  # the SHA-256 of the values of each sample; none in runs that did not record it


def pack(words: Words, arrays: Mapping[str, Array]) -> bytes:
    """The bytes of a chunk's file: arrays of `ARRAYS`, and the groups as "mask" where every sample has its own."""
    reasons = {str(row): words.reasons[row] for row in sorted(words.reasons)}
    text = {"format": _FORMAT, "version": _VERSION, **vars(words), "reasons": reasons}
    whole = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    return bytes(save(whole, {"chunk": json.dumps(text)}))  # one entry: safetensors writes several in no fixed order


def read_words(path: Path, samples: int) -> tuple[Words, list[str]]:
    """What a chunk of so many samples says, and which arrays it has."""
    try:
        with safe_open(path, framework="numpy") as file:
            text = json.loads((file.metadata() or {})["chunk"])
            arrays = list(file.keys())
        if (text["format"], text["version"]) != (_FORMAT, _VERSION):
            raise FileError(
                f"{path} is version {text['version']} of {text['format']}, expected {_VERSION} of {_FORMAT}"
            )
        reasons = {int(row): str(reason) for row, reason in text["reasons"].items()}
        names = [str(name) for name in text["names"]]
        files, inputs = _hashes(text["files"]), _hashes(text.get("inputs", ()))
        off = None if text["taken_off"] is None else str(text["taken_off"])
        words = Words(text["guarantee"], names, reasons, files, {**text["about"]}, off, inputs)
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} holds no results: {type(error).__name__} {error}; run again to make it anew"
        ) from error
    fits = len(words.names) == len(words.files) == samples and all(0 <= row < samples for row in reasons)
    fits = fits and len(words.inputs) in (0, samples)
    if not fits or words.guarantee not in get_args(Guarantee):
        raise FileError(f"{path} does not hold the {samples} samples of its manifest: run again to make it anew")
    return words, arrays


def _hashes(listed: Sequence[Any]) -> list[str | None]:
    return [None if one is None else str(one) for one in listed]


def read_array(path: Path, name: str, samples: int) -> Array:
    """One array of a file; nothing else of it is read."""
    try:
        with safe_open(path, framework="numpy") as file:
            array: Array = file.get_tensor(name)
    except (OSError, SafetensorError, ValueError) as error:  # numpy has no array of as many axes as a file may state
        raise FileError(f"cannot read {name} in {path}: {error}; run again to make it anew") from error
    if name not in ARRAYS and name != "mask":
        return array  # points, whose own file says what they are
    dtype, _, rank = ("int32", 0, array.ndim) if name == "mask" else ARRAYS[name]
    if array.dtype != dtype or array.ndim != rank or not array.ndim or len(array) != samples:
        raise FileError(f"{name} in {path} is {array.dtype} {array.shape}, expected {dtype} with {samples} rows")
    return array


def widened(values: Array, groups: int, whole: Array | None, explained: Array) -> Array:
    """Scores or frozen overlaps (n, g) with columns for groups that none of these samples has.

    Freezing nothing changes nothing: the score is 0, the overlap that of the whole ball, given for overlaps (n,). What
    failed says nothing.
    """
    missing = groups - values.shape[1]
    if missing <= 0:
        return values
    column = np.where(explained, 0.0, np.nan) if whole is None else whole
    extra = np.broadcast_to(column[:, None], (len(values), missing)).astype(values.dtype)
    return np.concatenate([values, extra], axis=1)
