"""Consistency checks of an explanation: JSON metadata, tensor shapes and dtypes, maps that equal the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from proofmap.errors import InputError
from proofmap.explainers.upsampling import spread
from proofmap.runtime.outward_numbers import Guarantee
from proofmap.settings import check_choice, check_flag

if TYPE_CHECKING:
    from proofmap.explainers.explanation import Explanation

BOUNDS = ("full", "frozen", "nominal", "target")  # the tensors of an Overlap with its upper bounds
LOWER = ("full_lower", "frozen_lower")  # the lower bounds of an Overlap
REASON = "reason."  # the prefix of the tensors of sufficient sets
CONTRAST = "contrast."  # the prefix of the tensors of contrastive sets
SEARCHED = ("points", "drops", "value")  # optional: the results of a search, and the explained output at x


def check_explanation(e: Explanation) -> None:
    """Raise InputError if parts do not fit together."""
    _check_words(e)
    _check_tensors(e)
    _check_origin(e)


def json_copy(value: Any, where: str) -> Any:
    """Return a copy of a JSON value with lists instead of tuples, equal to the value that a file returns."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}, expected text: it has to fit into JSON")
        return {key: json_copy(entry, f"{where}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if type(value) not in (bool, int, float, str, type(None)):
        raise InputError(f"{where} is a {type(value).__name__}, expected a JSON value: numbers, text, lists, mappings")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}, a number that JSON does not have: write it as text")
    return value


def _check_words(e: Explanation) -> None:
    check_choice("got guarantee", e.guarantee, Guarantee)
    check_flag("got signed", e.signed)
    check_flag("got smooth", e.smooth)
    for name in ("method", "model_hash", "input_hash"):
        if not isinstance(getattr(e, name), str):
            raise InputError(f"got {name}={getattr(e, name)!r}, expected text")
    for name in ("settings", "versions"):
        if not isinstance(getattr(e, name), dict):
            raise InputError(f"got {name}={getattr(e, name)!r}, expected a mapping")
    if not all(isinstance(version, str) for version in e.versions.values()):
        raise InputError(f"got versions={e.versions!r}, expected text for each")
    if e.seed is not None and type(e.seed) is not int:
        raise InputError(f"got seed={e.seed!r}, expected a whole number, or None where nothing is random")
    if type(e.seconds) not in (int, float) or not (math.isfinite(e.seconds) and e.seconds >= 0):
        raise InputError(f"got seconds={e.seconds!r}, expected a finite number >= 0")
    if e.guarantee == "certified" and not all(side.certified is True for side in e._sides.values()):
        raise InputError("got guarantee='certified' with an overlap that is not: say 'sampled' or 'none'")
    if e.guarantee == "probable":
        level = e.settings.get("level")
        inside = isinstance(level, int | float) and 0 < level < 1
        if not (inside and e.opposite is None and not e.overlap.certified):
            raise InputError(
                f"got guarantee='probable' with settings['level']={level!r}, expected the probability with which one "
                "overlap, not certified, holds: a number between 0 and 1"
            )
    if e.opposite is not None and not e.signed:
        raise InputError("got the overlaps of two half balls with signed=False, expected signed=True")


def _check_tensors(e: Explanation) -> None:
    if e.x.ndim < 2 or 0 in e.x.shape:
        raise InputError(f"x has shape {tuple(e.x.shape)}, expected (N, *shape) with at least one sample")
    count, groups = len(e.x), e.scores.shape[-1] if e.scores.ndim else 0
    expected: dict[str, list[tuple[int, ...]]] = {
        "scores": [(count, groups)],
        "errors": [(count, groups)],
        "attributions": [tuple(e.x.shape)],
        "mask": [tuple(e.x.shape), (1, *e.x.shape[1:])],
        "target": [(count,)],
        "predicted": [(count,)],
    }
    for side in e._sides:
        expected |= {f"{side}.{name}": [(count,)] for name in (*BOUNDS, *LOWER, "value")}
        for name in ("frozen", "frozen_lower"):
            expected[f"{side}.{name}"] = [(count, groups), (count, 0)]  # (N, 0): no B_u was bounded
        expected[f"{side}.drops"] = [(count, groups, 2), (count, 0, 2)]
        expected[f"{side}.points"] = [(count, 1 + groups, *e.x.shape[1:]), (count, 1, *e.x.shape[1:])]
    tensors = e._tensors | {"attributions": e.attributions}
    if e.reason is not None and tuple(e.reason.free.shape) != (count, groups):
        raise InputError(f"got reason of {tuple(e.reason.free.shape)}, expected {(count, groups)} for the scores")
    if e.contrast is not None and (len(e.contrast.least), e.contrast.groups) != (count, groups):
        held = len(e.contrast.least), e.contrast.groups
        raise InputError(f"got contrast of {held}, expected {(count, groups)} for the scores")
    for name, shapes in expected.items():
        if name not in tensors:  # optional tensors
            continue
        got = tuple(tensors[name].shape)
        if got not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise InputError(f"{name} has shape {got}, expected {wanted} for x of {tuple(e.x.shape)}")
    for name, tensor in tensors.items():
        if name.startswith((REASON, CONTRAST)):
            continue
        if name.endswith(("mask", "target", "predicted")):
            if tensor.dtype != torch.int64:
                raise InputError(f"{name} has type {tensor.dtype}, expected torch.int64")
        elif not tensor.is_floating_point():
            raise InputError(f"{name} has type {tensor.dtype}, expected a floating-point type")
        if tensor.device != e.x.device:
            raise InputError(f"{name} is on {tensor.device} and x on {e.x.device}, expected one device")
    low, high = int(e.mask.min()), int(e.mask.max())
    if low < 0 or high >= groups:
        raise InputError(
            f"mask has ids from {low} to {high}, expected 0 to {groups - 1}: one for each column of scores"
        )
    if e.smooth and e.x.ndim < 3:
        raise InputError(f"got smooth=True for x of {tuple(e.x.shape)}, expected pictures (N, ..., H, W)")
    maps = spread(e.scores, e.mask, e.smooth)
    if maps.dtype != e.attributions.dtype or not torch.allclose(maps, e.attributions, rtol=0, atol=0, equal_nan=True):
        raise InputError("attributions differ from the scores of their groups: make them with spread(scores, mask)")


def _check_origin(e: Explanation) -> None:
    if e.origin is None:
        return
    if len(e.origin.samples) != len(e):
        raise InputError(f"got the origin of {len(e.origin.samples)} samples, expected that of all {len(e)}")
    columns = e.origin.columns
    if columns is not None and len(columns) != e.x[0].numel():
        raise InputError(f"got names for {len(columns)} columns, expected one for each of {e.x[0].numel()} variables")
