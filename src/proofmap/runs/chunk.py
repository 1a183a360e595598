"""Chunk files: the results of some samples as arrays in safetensors, with all texts as JSON in the metadata.

Reading a chunk executes no code, and the same results give the same bytes.
"""

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

Array = NDArray[Any]

_FORMAT = "proofmap-chunk"
_VERSION = 2  # the version of the format

# name: (dtype, fill, rank). Every array has one row per sample, in the order of the run. Rows of samples that could not
# be explained have the fill value.
ARRAYS: Mapping[str, tuple[str, Any, int]] = {
    "index": ("int64", -1, 1),  # the sample's index in the data set
    "label": ("int64", -1, 1),
    "target": ("int64", -1, 1),
    "predicted": ("int64", -1, 1),
    "eps": ("float64", np.nan, 1),  # the radius of the ball
    "full": ("float32", np.nan, 1),  # AO(B)
    "nominal": ("float32", np.nan, 1),  # the overlap at x itself
    "scores": ("float32", np.nan, 2),  # (n, G)
    "errors": ("float32", np.nan, 2),  # (n, G) standard errors of scores that are means over draws
    "frozen": ("float32", np.nan, 2),  # (n, G) AO(B_u)
    "full_lower": ("float32", np.nan, 1),  # proven lower bound of AO(B), stored if a point other than x attains it
    "frozen_lower": ("float32", np.nan, 2),  # (n, G) the same for AO(B_u)
    "drop_lower": ("float64", np.nan, 2),  # (n, G) bounds of AO(B) - AO(B_u), if differences were bounded
    "drop_upper": ("float64", np.nan, 2),
    "kept": ("bool", False, 2),  # (n, G) the groups of a sufficient set
    "necessary": ("bool", False, 2),  # (n, G) those of them that are shown to be necessary
    "reason_bound": ("float64", np.nan, 1),  # proven upper bound of the overlap if only the free groups move
    "reason_limit": ("float64", np.nan, 1),  # this bound is below the limit
    "reason_least": ("int64", -1, 1),  # no sufficient set has fewer groups
    "changed": ("bool", False, 2),  # (n, G) the groups of the smallest contrastive set that was found
    "contrast_least": ("int64", -1, 1),  # no contrastive set has fewer groups; -1 if no set changes the decision
    "contrast_counted": ("bool", False, 1),  # whether a solver in floating point counted these groups
    "contrast_limit": ("float64", np.nan, 1),  # a changed input exceeds the limit
}
ERRORS = "errors"
REASON_ARRAYS = ("kept", "necessary", "reason_bound", "reason_limit", "reason_least")  # stored for sufficient sets
CONTRAST_ARRAYS = ("changed", "contrast_least", "contrast_counted", "contrast_limit")  # stored for contrastive sets
LOWER_BOUNDS = ("full_lower", "frozen_lower")
DROP_BOUNDS = ("drop_lower", "drop_upper")
SCORE_BOUNDS = ("score_lower", "score_upper")  # (n, G) float64, bounds of the exact scores, not stored
FULL_BALL_OF = {"frozen": "full", "frozen_lower": "full_lower"}  # the same for the whole ball


@dataclass(frozen=True)
class ChunkTexts:
    """The texts of a chunk: everything beside its arrays."""

    guarantee: Guarantee
    names: Sequence[str]
    reasons: Mapping[int, str]  # row -> the reason why the sample could not be explained
    files: Sequence[str | None]  # the SHA-256 of each sample's file; None without a file
    about: Mapping[str, Any]  # model, job, groups and versions, as in the manifest
    taken_off: str | None = None  # the final operation that the bounds leave out, such as "softmax"
    inputs: Sequence[str | None] = ()  # the SHA-256 of each sample's values; empty in older runs


def pack_chunk(texts: ChunkTexts, arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of a chunk's file: arrays of `ARRAYS`, and "mask" if every sample has its own groups."""
    reasons = {str(row): texts.reasons[row] for row in sorted(texts.reasons)}
    text = {"format": _FORMAT, "version": _VERSION, **vars(texts), "reasons": reasons}
    whole = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    return bytes(save(whole, {"chunk": json.dumps(text)}))  # one entry: the order of several varies


def read_chunk_texts(path: Path, samples: int) -> tuple[ChunkTexts, list[str]]:
    """Read the texts of a chunk with `samples` rows, and the names of its arrays."""
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
        texts = ChunkTexts(text["guarantee"], names, reasons, files, {**text["about"]}, off, inputs)
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} holds no results: {type(error).__name__} {error}; run again to make it anew"
        ) from error
    fits = len(texts.names) == len(texts.files) == samples and all(0 <= row < samples for row in reasons)
    fits = fits and len(texts.inputs) in (0, samples)
    if not fits or texts.guarantee not in get_args(Guarantee):
        raise FileError(f"{path} does not hold the {samples} samples of its manifest: run again to make it anew")
    return texts, arrays


def _hashes(listed: Sequence[Any]) -> list[str | None]:
    return [None if one is None else str(one) for one in listed]


def read_array(path: Path, name: str, samples: int) -> Array:
    """Read one array of a file and nothing else."""
    try:
        with safe_open(path, framework="numpy") as file:
            array: Array = file.get_tensor(name)
    except (OSError, SafetensorError, ValueError) as error:  # numpy refuses arrays with too many axes
        raise FileError(f"cannot read {name} in {path}: {error}; run again to make it anew") from error
    if name not in ARRAYS and name != "mask":
        return array  # stored points: `attained_points` and `reason_results` check them
    dtype, _, rank = ("int32", 0, array.ndim) if name == "mask" else ARRAYS[name]
    if array.dtype != dtype or array.ndim != rank or not array.ndim or len(array) != samples:
        raise FileError(f"{name} in {path} is {array.dtype} {array.shape}, expected {dtype} with {samples} rows")
    return array


def with_missing_groups(values: Array, groups: int, whole: Array | None, explained: Array) -> Array:
    """Extend scores or frozen overlaps (n, g) to `groups` columns, for groups that none of these samples has.

    Freezing an empty group changes nothing: its score is 0, its overlap is that of the whole ball, `whole` (n,), and it
    has not to be kept. Rows that were not explained stay NaN.
    """
    missing = groups - values.shape[1]
    if missing <= 0:
        return values
    column = np.where(explained, 0.0, np.nan) if whole is None else whole
    if values.dtype == bool:
        column = np.zeros(len(values), dtype=bool)
    extra = np.broadcast_to(column[:, None], (len(values), missing)).astype(values.dtype)
    return np.concatenate([values, extra], axis=1)
