"""What an explainer returns: scores and maps, the bounds they come from, and what is needed to make them again."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proofmap.digest import hash_tensor
from proofmap.errors import FileError, InputError, ProofmapError, first_line
from proofmap.explain.origin import Origin
from proofmap.explain.storage import check_names, read, write
from proofmap.guarantee import Guarantee, rounded, span
from proofmap.objective import decides
from proofmap.overlaps import Overlap
from proofmap.records import JSON
from proofmap.settings import check_choice, check_flag

if TYPE_CHECKING:
    from proofmap.explain.picture import Picture

__all__ = ["Explanation", "Guarantee", "rounded", "spread"]

_BOUNDS = ("full", "frozen", "nominal", "target")  # the tensors of an Overlap
_STORED = ("x", "scores", "mask", "target", "predicted")  # attributions follow from scores and mask
_WORDS = ("signed", "guarantee", "method", "settings", "seed", "versions", "model_hash", "input_hash", "seconds")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation:
    """The explanation of N decisions by the scores of G groups of variables.

    guarantee: what the overlap is. "certified": proven upper bounds of AO; "sampled": the largest value that samples
    reached, a lower bound; "none": an estimate that is neither. The scores are differences of such numbers: an
    importance, never itself proven.

    origin: the files it was made from and the true classes, where whoever made it said so; the command line does.
    """

    x: Tensor  # (N, *shape)
    scores: Tensor  # (N, G)
    attributions: Tensor  # (N, *shape) each variable has its group's score
    mask: Tensor  # (1, *shape) or (N, *shape), int64: the group of each variable, 0..G-1
    overlap: Overlap  # AO(B) and every AO(B_u); for a targeted map those of the half δ >= 0
    opposite: Overlap | None = None  # those of the half δ <= 0
    target: Tensor  # (N,) the explained class c; for a targeted map the class c' that is aimed at
    predicted: Tensor  # (N,) the class it was
    signed: bool = False  # scores > 0: add, scores < 0: remove
    guarantee: Guarantee
    method: str
    settings: Mapping[str, JSON]
    seed: int | None = None
    versions: Mapping[str, str]
    model_hash: str
    input_hash: str
    seconds: float  # what the call took, for all its samples
    origin: Origin | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        object.__setattr__(self, "settings", _plain(self.settings, "settings"))
        object.__setattr__(self, "versions", _plain(self.versions, "versions"))
        _check_words(self)
        _check_tensors(self)
        _check_origin(self)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: int | slice) -> Explanation:
        """The explanation of one sample, as a batch of one, or of some."""
        if not isinstance(which, slice):
            k = operator.index(which)
            if not -len(self) <= k < len(self):
                raise IndexError(f"got sample {k}, expected one of {len(self)}")
            which = slice(k, k + 1 or None)
        part: dict[str, Any] = {name: getattr(self, name)[which] for name in (*_STORED, "attributions")}
        part |= {name: _sliced(side, which) for name, side in self._sides.items()}
        if len(self.mask) == 1:
            part["mask"] = self.mask
        eps = self.settings.get("eps")
        radii = eps if isinstance(eps, list) and len(eps) == len(self) else None  # one for each sample
        return replace(
            self,
            **part,
            input_hash=hash_tensor(part["x"]),
            settings=self.settings if radii is None else {**self.settings, "eps": radii[which]},
            origin=None if self.origin is None else self.origin.part(which),
        )

    def label(self, k: int) -> int | None:
        """The true class of sample k, where it is known."""
        return None if self.origin is None else self.origin.label(k)

    @property
    def _sides(self) -> dict[str, Overlap]:
        """Its overlaps by name: one, or two of a targeted map."""
        return {"overlap": self.overlap} | ({} if self.opposite is None else {"opposite": self.opposite})

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """What a file holds, by name."""
        sides = self._sides.items()
        bounds = {f"{side}.{name}": getattr(overlap, name) for side, overlap in sides for name in _BOUNDS}
        return {name: getattr(self, name) for name in _STORED} | bounds

    @property
    def proven(self) -> Tensor:
        """(N,) bool: no input of the ball is classified otherwise; for a targeted map, none of either half is its aim.

        False also where the bounds do not ask that: for another objective, or a target that the sample is already.
        """
        if self.guarantee != "certified":
            return torch.zeros_like(self.target, dtype=torch.bool)
        if self.opposite is not None:
            return (self.target != self.overlap.target) & (torch.maximum(self.overlap.full, self.opposite.full) <= 0)
        return (self.overlap.full <= 0) & decides(self.settings.get("objective", "margin"))

    def __iter__(self) -> Iterator[Explanation]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        count, groups = self.scores.shape
        many = f"{groups} group{'s' * (groups != 1)}"
        ends = span(float(self.overlap.full.min()), float(self.overlap.full.max()), self.guarantee)
        relation = {"certified": "<=", "sampled": ">=", "none": "about"}[self.guarantee]
        return (
            f"Explanation({count} sample{'s' * (count > 1)} of {tuple(self.x.shape[1:])}, {many}, "
            f"method={self.method!r}, AO {relation} {ends}, guarantee={self.guarantee!r})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation to a file, whole or not at all."""
        certified = {side: bounds.certified for side, bounds in self._sides.items()}
        words = {name: getattr(self, name) for name in _WORDS}
        origin = None if self.origin is None else self.origin.json()
        write(Path(path), self._tensors, words | {"certified": certified, "origin": origin})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read what `save` wrote; anything else is refused with its reason."""
        tensors, words = read(Path(path))
        check_names(path, "entries", words, {*_WORDS, "certified", "origin"})
        certified, origin = words.pop("certified"), words.pop("origin")
        if certified.keys() not in ({"overlap"}, {"overlap", "opposite"}):
            raise FileError(f"{path} is no explanation: it has the overlaps {sorted(certified)}")
        check_names(path, "tensors", tensors, {*_STORED, *(f"{side}.{name}" for side in certified for name in _BOUNDS)})
        try:
            sides = {
                side: Overlap(**{name: tensors.pop(f"{side}.{name}") for name in _BOUNDS}, certified=holds)
                for side, holds in certified.items()
            }
            parts: dict[str, Any] = {**words, **tensors, **sides}
            parts["origin"] = None if origin is None else Origin.read(origin)
            return cls(**parts, attributions=spread(tensors["scores"], tensors["mask"]))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise FileError(f"{path} holds parts that do not fit together: {first_line(error)}") from error

    def plot(self, columns: Sequence[str] | None = None, class_names: Sequence[str] | None = None) -> Picture:
        """A matplotlib figure with one row a sample: picture, map and overlay, or the largest scores of a flat input.

        columns: names for the variables of a flat input; class_names: names for the classes. Numbers by default.
        """
        from proofmap.explain.picture import draw  # and with it matplotlib, which takes a while

        return draw(self, columns=columns, class_names=class_names)

    def atlas(self, class_names: Sequence[str] | None = None) -> Picture:
        """What `TargetedEVA.explain_all` found, in one figure: a row a sample, a column a class."""
        from proofmap.explain.atlas import atlas

        return atlas(self, class_names)

    @cached_property
    def _png(self) -> bytes | None:
        """The picture a notebook shows; None where there is none and the text has to do."""
        try:
            return self.plot()._repr_png_()
        except ProofmapError:
            return None

    def _repr_png_(self) -> bytes | None:
        return self._png

    def _repr_html_(self) -> str:
        from base64 import b64encode

        text = escape(repr(self))
        if self._png is None:
            return f"<pre>{text}</pre>"
        source = f"data:image/png;base64,{b64encode(self._png).decode()}"
        return f'<img src="{source}" alt="{text}" style="max-width: 100%"><br><code>{text}</code>'


def spread(scores: Tensor, mask: Tensor) -> Tensor:
    """Give each variable its group's score: (N, G) and a mask (1, *shape) or (N, *shape) -> (N, *shape)."""
    each = mask.expand(len(scores), *mask.shape[1:])
    return scores.gather(1, each.flatten(1)).view(each.shape)


def _plain(value: Any, where: str) -> Any:
    """A copy of a JSON value with lists for tuples: what a file gives back."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}, expected text: it has to fit into JSON")
        return {key: _plain(entry, f"{where}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if type(value) not in (bool, int, float, str, type(None)):
        raise InputError(f"{where} is a {type(value).__name__}, expected a JSON value: numbers, text, lists, mappings")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}, a number that JSON does not have: write it as text")
    return value


def _check_words(e: Explanation) -> None:
    check_choice("got guarantee", e.guarantee, Guarantee)
    check_flag("got signed", e.signed)
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
    if e.opposite is not None and not e.signed:
        raise InputError("got the overlaps of two half balls with signed=False, expected signed=True")


def _check_tensors(e: Explanation) -> None:
    if e.x.ndim < 2 or 0 in e.x.shape:
        raise InputError(f"x has shape {tuple(e.x.shape)}, expected (N, *shape) with at least one sample")
    count, groups = len(e.x), e.scores.shape[-1] if e.scores.ndim else 0
    expected: dict[str, list[tuple[int, ...]]] = {
        "scores": [(count, groups)],
        "attributions": [tuple(e.x.shape)],
        "mask": [tuple(e.x.shape), (1, *e.x.shape[1:])],
        "target": [(count,)],
        "predicted": [(count,)],
    }
    for side in e._sides:
        expected |= {f"{side}.{name}": [(count,)] for name in _BOUNDS}
        expected[f"{side}.frozen"] = [(count, groups), (count, 0)]  # (N, 0): no B_u was bounded
    tensors = e._tensors | {"attributions": e.attributions}
    for name, shapes in expected.items():
        got = tuple(tensors[name].shape)
        if got not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise InputError(f"{name} has shape {got}, expected {wanted} for x of {tuple(e.x.shape)}")
    for name, tensor in tensors.items():
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
    maps = spread(e.scores, e.mask)
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


def _sliced(bounds: Overlap, which: slice) -> Overlap:
    tensors = (*_BOUNDS, "full_lower", "frozen_lower", *(() if bounds.points is None else ("points",)))
    return replace(bounds, **{name: getattr(bounds, name)[which] for name in tensors})
