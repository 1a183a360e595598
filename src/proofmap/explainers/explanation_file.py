"""File format of explanations: one safetensors file, with settings as JSON and a digest of all content in its metadata.

Reading a file never executes code.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from proofmap.errors import FileError, first_line
from proofmap.storage.hashing import digest
from proofmap.storage.records import write_atomic as write_whole

_FORMAT = "proofmap-explanation"
_VERSIONS = ("1", "2", "3")  # 1 has no origin; 2 has no lower bounds: the overlap at x is used instead


def _seal(words: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the digest of all content, so that any change is detected."""
    return digest([words, *(part for name in sorted(tensors) for part in (name, tensors[name]))])


def write(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, Any]) -> None:
    """Write a file. The file is written completely or not at all."""
    whole = torch.contiguous_format  # safetensors refuses tensors that share memory
    held = {name: tensor.detach().cpu().clone(memory_format=whole) for name, tensor in tensors.items()}
    text = json.dumps(words)
    metadata = {"format": _FORMAT, "version": _VERSIONS[-1], "explanation": text, "digest": _seal(text, held)}
    write_whole(path, pack(held, metadata))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], int]:
    """Return the tensors, the JSON content and the version of a file, after checking its digest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    length = int.from_bytes(content[:8], "little")
    if content[8:9] != b"{":
        raise FileError(f"{path} is not an explanation: it is no safetensors file")
    if 8 + length > len(content):
        raise FileError(f"{path} is cut short: its header says {length} bytes, and {len(content) - 8} are there")
    try:
        tensors = unpack(content)
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except Exception as error:  # both parsers raise errors of their own
        raise FileError(f"{path} is damaged or cut short: {first_line(error)}") from error
    if metadata.get("format") != _FORMAT:
        raise FileError(f"{path} is not an explanation: it is a safetensors file with something else in it")
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
        raise FileError(f"{path} is no explanation: its JSON is not a table")
    return tensors, {"origin": None, **words} if version == "1" else words, int(version)


def check_names(path: str | os.PathLike[str], what: str, got: Iterable[str], expected: set[str]) -> None:
    """Raise FileError if the entries differ from the expected ones."""
    missing, extra = sorted(expected - set(got)), sorted(set(got) - expected)
    if missing or extra:
        wrong = [f"{', '.join(names)} {word}" for names, word in ((missing, "missing"), (extra, "unknown")) if names]
        raise FileError(f"{path} does not have the {what} of an explanation: {'; '.join(wrong)}")
