"""Small explanations of random numbers, and all that is in one."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from proofmap.errors import FileError
from proofmap.explainers import Explanation
from proofmap.explainers import explanation_file as storage
from proofmap.explainers.explanation import spread
from proofmap.inputs.family import Family
from proofmap.storage.hashing import hash_tensor, versions
from proofmap.verify.overlap import Overlap

Pair: TypeAlias = tuple[float, float]


def bounds(scores: Tensor, full: Tensor | None = None, certified: bool = True) -> Overlap:
    """Overlaps whose drops are the scores."""
    full = torch.linspace(-3, 2, len(scores), dtype=scores.dtype) if full is None else full
    target = torch.arange(len(scores))
    return Overlap(full, full[:, None] - scores, full - 1, target, certified)


def draw(family: Family, count: int, seed: int) -> Tensor:
    """The points that an explainer draws from each ball: (count, N, *shape), the same for a sample alone."""
    alone = [family.pick(torch.tensor([k])) for k in range(family.count)]
    return torch.cat([one.sample(count, torch.Generator().manual_seed(seed)) for one in alone], dim=1)


def two_sided(full: Pair, frozen: Sequence[Pair]) -> Overlap:
    """Certified overlaps of one sample, each by its lower and its upper side; x itself reaches less."""
    lower, upper = torch.tensor([full, *frozen], dtype=torch.float64).T.contiguous()
    whole: Any = {"full_lower": lower[:1], "frozen_lower": lower[None, 1:]}
    return Overlap(upper[:1], upper[None, 1:], lower.min()[None] - 1, torch.tensor([0]), True, **whole)


def make(shape: tuple[int, ...] = (3, 1, 4, 4), groups: int = 5, **changes: Any) -> Explanation:
    """A small explanation of random numbers, with some parts changed."""
    random = torch.Generator().manual_seed(0)
    dtype = changes.pop("dtype", torch.float32)
    x = torch.rand(shape, generator=random, dtype=dtype)
    mask = torch.arange(x[0].numel()).reshape(1, *shape[1:]) % groups
    scores = changes.pop("scores", torch.rand(shape[0], groups, generator=random, dtype=dtype))
    parts: dict[str, Any] = {
        "x": x,
        "scores": scores,
        "attributions": spread(scores, changes.get("mask", mask)),
        "mask": mask,
        "overlap": bounds(scores),
        "target": torch.arange(shape[0]),
        "predicted": torch.arange(shape[0]),
        "guarantee": "certified",
        "method": "EVA",
        "settings": {"eps": 0.01, "norm": "inf", "domain": [0.0, 1.0], "name": "δ ≤ ε"},
        "versions": versions(),
        "model_hash": "0" * 64,
        "input_hash": hash_tensor(x),
        "seconds": 0.1,
    }
    return Explanation(**{**parts, **changes})


def make_signed(shape: tuple[int, ...] = (3, 1, 4, 4), groups: int = 5, **changes: Any) -> Explanation:
    """One with two half balls."""
    added, removed = torch.rand(2, shape[0], groups, generator=torch.Generator().manual_seed(1))
    sides = {"overlap": bounds(added), "opposite": bounds(removed)}
    aim = torch.full((shape[0],), shape[0])
    return make(shape, groups, **{**sides, "scores": added - removed, "signed": True, "target": aim, **changes})


def certified(*full: float, guarantee: str = "certified") -> Explanation:
    """One sample for each overlap."""
    scores = torch.rand(len(full), 5, generator=torch.Generator().manual_seed(0))
    over = bounds(scores, torch.tensor(full))
    return make((len(full), 1, 4, 4), scores=scores, overlap=over, guarantee=guarantee)


def probable(*full: float) -> Explanation:
    """One sample for each smoothed overlap."""
    scores = torch.rand(len(full), 5, generator=torch.Generator().manual_seed(0))
    over = bounds(scores, torch.tensor(full), certified=False)
    record = {"eps": 0.5, "norm": 2.0, "domain": None, "sigma": 0.25, "samples": 100, "level": 0.995}
    return make((len(full), 1, 4, 4), scores=scores, overlap=over, guarantee="probable", settings=record)


def ranked(scores: Sequence[float], gap: float, shape: tuple[int, ...] | None = None, **changes: Any) -> Explanation:
    """One sample with these true scores, every overlap known to the gap; AO(B) lies in [-5, -5 + gap]."""
    over = two_sided((-5, -5 + gap), [(-5 - score, -5 - score + gap) for score in scores])
    groups = len(scores)
    return make(shape or (1, groups), groups, dtype=torch.float64, scores=over.drop, overlap=over, **changes)


TENSORS = ("x", "scores", "attributions", "mask", "target", "predicted")
WORDS = (
    *("signed", "smooth", "guarantee", "method", "settings", "seed", "versions", "model_hash", "input_hash", "seconds"),
    "origin",
)
SIDES = ("full", "frozen", "nominal", "target", "full_lower", "frozen_lower")


def content(e: Explanation) -> dict[str, Any]:
    """Everything in it, tensors by their bytes."""
    found: dict[str, Any] = {name: hash_tensor(getattr(e, name)) for name in TENSORS}
    found |= {name: getattr(e, name) for name in WORDS}
    found["errors"] = None if e.errors is None else hash_tensor(e.errors)
    sets = None if e.reason is None else e.reason.tensors
    found["reason"] = None if sets is None else {name: hash_tensor(one.double()) for name, one in sets.items()}
    changed = None if e.contrast is None else e.contrast.tensors
    found["contrast"] = None if changed is None else {name: hash_tensor(one.double()) for name, one in changed.items()}
    for side, over in (("overlap", e.overlap), ("opposite", e.opposite)):
        parts = None if over is None else [hash_tensor(getattr(over, name)) for name in SIDES]
        more = [None if over is None else getattr(over, name) for name in ("points", "drops")]
        hashes = [None if tensor is None else hash_tensor(tensor) for tensor in more]
        found[side] = parts and [*parts, *hashes, over and over.certified]
    return found


def refuse(path: Path, match: str) -> None:
    with pytest.raises(FileError, match=match) as caught:
        Explanation.load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text


def forge(
    saved: Path, path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None], **metadata: str
) -> None:
    """Write the saved file again with a change to its tensors or its words, and a digest that agrees."""
    tensors = load_file(saved)
    whole = saved.read_bytes()
    written = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    words = json.loads(written["explanation"])
    change(tensors, words)
    written |= {"explanation": json.dumps(words), **metadata}
    written["digest"] = storage._seal(written["explanation"], tensors)
    save_file(tensors, path, written)
