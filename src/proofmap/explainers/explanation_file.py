"""File format of explanations: one safetensors file, with settings as JSON and a digest of all content in its metadata.

Reading a file never executes code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from proofmap.errors import FileError, ProofmapError, first_line
from proofmap.explainers.consistency import BOUNDS, CONTRAST, LOWER, REASON, SEARCHED
from proofmap.explainers.origin import Origin
from proofmap.explainers.upsampling import spread
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.storage.hashing import digest
from proofmap.storage.records import write_atomic as write_whole
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from proofmap.explainers.explanation import Explanation

_FORMAT = "proofmap-explanation"
_VERSIONS = ("1", "2", "3")  # 1 has no origin; 2 has no lower bounds: the overlap at x is used instead
MISFITS = (ProofmapError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
STORED_TENSORS = ("x", "scores", "mask", "target", "predicted")  # attributions follow from scores and mask
_ERRORS = "errors"  # stored if the scores have standard errors
_METADATA = ("signed", "guarantee", "method", "settings", "seed", "versions", "model_hash", "input_hash", "seconds")


def overlap_tensors(bounds: Overlap) -> dict[str, Tensor]:
    """Return the tensors of an overlap by name."""
    named = {name: getattr(bounds, name) for name in (*BOUNDS, *LOWER, *SEARCHED)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def stored_tensors(e: Explanation) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    sides = e._sides.items()
    bounds = {f"{side}.{name}": one for side, overlap in sides for name, one in overlap_tensors(overlap).items()}
    errors = {} if e.errors is None else {_ERRORS: e.errors}
    reason = {} if e.reason is None else {f"{REASON}{name}": one for name, one in e.reason.tensors.items()}
    contrast = {} if e.contrast is None else {f"{CONTRAST}{name}": one for name, one in e.contrast.tensors.items()}
    return {name: getattr(e, name) for name in STORED_TENSORS} | errors | bounds | reason | contrast


def write_explanation(e: Explanation, path: Path) -> None:
    """Write an explanation. The file is written completely or not at all."""
    certified = {side: bounds.certified for side, bounds in e._sides.items()}
    words = {name: getattr(e, name) for name in _METADATA}
    origin = None if e.origin is None else e.origin.json()
    smooth = {"smooth": True} if e.smooth else {}
    _write(path, stored_tensors(e), words | {"certified": certified, "origin": origin} | smooth)


def read_parts(path: Path) -> dict[str, Any]:
    """Return the fields of the explanation in a file, without the checks between them."""
    tensors, words, version = _read(path)
    words.setdefault("smooth", False)
    _check_names(path, "entries", words, {*_METADATA, "smooth", "certified", "origin"})
    certified, origin = words.pop("certified"), words.pop("origin")
    if certified.keys() not in ({"overlap"}, {"overlap", "opposite"}):
        raise FileError(f"{path} is not an explanation: it has the overlaps {sorted(certified)}")
    lower = LOWER if version >= 3 else ()
    more = {s: [name for name in SEARCHED if lower and f"{s}.{name}" in tensors] for s in certified}
    names = {s: [*BOUNDS, *lower, *more[s]] for s in certified}
    sets, moved = _with_prefix(tensors, REASON), _with_prefix(tensors, CONTRAST)
    stored = {*STORED_TENSORS, *({_ERRORS} & tensors.keys())}
    _check_names(path, "tensors", tensors, {*stored, *(f"{side}.{name}" for side in names for name in names[side])})
    try:
        settings = words["settings"]
        rigorous = isinstance(settings, dict) and bool(settings.get("rigorous"))
        sides = {
            side: Overlap(
                **{name: tensors.pop(f"{side}.{name}") for name in names[side]}, certified=holds, rigorous=rigorous
            )
            for side, holds in certified.items()
        }
        return {
            **words,
            **tensors,
            **sides,
            "reason": Reason(**sets) if sets else None,
            "contrast": Contrast(**moved) if moved else None,
            "origin": None if origin is None else Origin.read(origin),
            "attributions": spread(tensors["scores"], tensors["mask"], words["smooth"]),
        }
    except MISFITS as error:
        raise FileError(f"{path} holds parts that do not fit together: {first_line(error)}") from error


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take the tensors with a prefix away, by their names without it."""
    return {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


def _seal(words: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the digest of all content, so that any change is detected."""
    return digest([words, *(part for name in sorted(tensors) for part in (name, tensors[name]))])


def _write(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, Any]) -> None:
    """Write a file. The file is written completely or not at all."""
    whole = torch.contiguous_format  # safetensors refuses tensors that share memory
    held = {name: tensor.detach().cpu().clone(memory_format=whole) for name, tensor in tensors.items()}
    text = json.dumps(words)
    metadata = {"format": _FORMAT, "version": _VERSIONS[-1], "explanation": text, "digest": _seal(text, held)}
    write_whole(path, pack(held, metadata))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], int]:
    """Return the tensors, the JSON content and the version of a file, after checking its digest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    length = int.from_bytes(content[:8], "little")
    if content[8:9] != b"{":
        raise FileError(f"{path} is not an explanation: it is not a safetensors file")
    if 8 + length > len(content):
        raise FileError(f"{path} is cut short: its header says {length} bytes, and {len(content) - 8} are there")
    try:
        tensors = unpack(content)
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except Exception as error:  # both parsers raise errors of their own
        raise FileError(f"{path} is damaged or cut short: {first_line(error)}") from error
    if metadata.get("format") != _FORMAT:
        raise FileError(f"{path} is not an explanation: it is a safetensors file with other content")
    version = metadata.get("version")
    if version not in _VERSIONS:
        known = ", ".join(map(repr, _VERSIONS))
        raise FileError(
            f"{path} has version {version!r} of the format, expected one of {known}: "
            "read it with the release of Proofmap that wrote it, or a later one"
        )
    text = metadata.get("explanation", "")
    if metadata.get("digest") != _seal(text, tensors):
        raise FileError(f"{path} is damaged: its content does not have the digest that was written with it")
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: its metadata is not JSON ({first_line(error)})") from error
    if not isinstance(words, dict) or not isinstance(words.get("certified", {}), dict):
        raise FileError(f"{path} is not an explanation: its JSON is not a table")
    return tensors, {"origin": None, **words} if version == "1" else words, int(version)


def _check_names(path: Path, what: str, got: Iterable[str], expected: set[str]) -> None:
    """Raise FileError if the entries differ from the expected ones."""
    missing, extra = sorted(expected - set(got)), sorted(set(got) - expected)
    if missing or extra:
        wrong = [f"{', '.join(names)} {word}" for names, word in ((missing, "missing"), (extra, "unknown")) if names]
        raise FileError(f"{path} does not have the {what} of an explanation: {'; '.join(wrong)}")
