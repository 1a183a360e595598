"""What an explainer returns: scores and maps, the bounds they come from, and what is needed to make them again."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from proofmap.errors import FileError, ProofmapError, first_line
from proofmap.explainers.batching import ball_of
from proofmap.explainers.consistency import BOUNDS, FOUND, LOWER, check, plain
from proofmap.explainers.explanation_file import check_names, read, write
from proofmap.explainers.origin import Origin
from proofmap.explainers.proven_scores import Known
from proofmap.explainers.upsampling import spread
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.runtime.outward_numbers import NOT_COVERED, Guarantee, rounded, span
from proofmap.settings import check_count
from proofmap.storage.hashing import hash_tensor
from proofmap.storage.records import JSON
from proofmap.text.score_ties import tied
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from proofmap.plots.explanation_figure import Picture
    from proofmap.proof.certificate import Certificate
    from proofmap.proof.make_certificate import ModelFile

__all__ = ["Explanation", "Guarantee", "rounded", "spread"]

_MISFITS = (ProofmapError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_STORED = ("x", "scores", "mask", "target", "predicted")  # attributions follow from scores, mask and smooth
_ERRORS = "errors"  # stored where scores have them
_WORDS = ("signed", "guarantee", "method", "settings", "seed", "versions", "model_hash", "input_hash", "seconds")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation:
    """The explanation of N decisions by the scores of G groups of variables.

    guarantee: what the overlap is. "certified": proven upper bounds of AO; "probable": upper bounds of the AO of the
    smoothed classifier, not the network's, which hold with the probability settings["level"]; "sampled": the largest
    value that samples reached, a lower bound; "none": an estimate that is neither. The scores are differences of such
    numbers: an importance. What is proven of them is in `intervals`, `proven_scores`, `order` and `top`; little or
    nothing, unless a method closed both sides of the overlaps, as pm.bounds.Exact() does.

    origin: the files it was made from and the true classes, where whoever made it said so; the command line does.

    >>> found = pm.EVA(model, ball, groups=cells).explain(x)
    >>> found.scores.shape, found.attributions.shape, found.proven
    (torch.Size([2, 16]), torch.Size([2, 1, 28, 28]), tensor([True, True]))
    >>> found.save("maps.proofmap")
    >>> pm.Explanation.load("maps.proofmap").guarantee
    'certified'
    """

    x: Tensor  # (N, *shape)
    scores: Tensor  # (N, G)
    attributions: Tensor  # (N, *shape) each variable has its group's score, or a mean of those around it
    mask: Tensor  # (1, *shape) or (N, *shape), int64: the group of each variable, 0..G-1
    overlap: Overlap  # AO(B) and every AO(B_u); for a targeted map those of the half δ >= 0
    opposite: Overlap | None = None  # those of the half δ <= 0
    errors: Tensor | None = None  # (N, G) the standard errors of the scores, where these are means over draws
    target: Tensor  # (N,) the explained class c; for a targeted map the class c' that is aimed at
    predicted: Tensor  # (N,) the class it was
    signed: bool = False  # scores > 0: add, scores < 0: remove
    smooth: bool = False  # whether the attributions pass smoothly from group to group; the scores are the same
    guarantee: Guarantee
    method: str
    settings: Mapping[str, JSON]
    seed: int | None = None
    versions: Mapping[str, str]
    model_hash: str
    input_hash: str
    seconds: float  # what the call took, for all its samples
    origin: Origin | None = None
    made_from: tuple[Graph, Ball] | None = None  # the network and its ball; a file does not hold them

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        object.__setattr__(self, "settings", plain(self.settings, "settings"))
        object.__setattr__(self, "versions", plain(self.versions, "versions"))
        check(self)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: int | slice) -> Explanation:
        """The explanation of one sample, as a batch of one, or of some."""
        if not isinstance(which, slice):
            k = operator.index(which)
            if not -len(self) <= k < len(self):
                raise IndexError(f"got sample {k}, expected one of {len(self)}")
            which = slice(k, k + 1 or None)
        part: dict[str, Any] = {name: getattr(self, name)[which] for name in _STORED}
        part |= {name: _sliced(side, which) for name, side in self._sides.items()}
        if len(self.mask) == 1:
            part["mask"] = self.mask
        if self.errors is not None:
            part[_ERRORS] = self.errors[which]
        part["attributions"] = spread(part["scores"], part["mask"], self.smooth)
        made_from = None if self.made_from is None else (self.made_from[0], ball_of(self.made_from[1], which, self.x))
        eps = self.settings.get("eps")
        radii = eps if isinstance(eps, list) and len(eps) == len(self) else None  # one for each sample
        return replace(
            self,
            **part,
            input_hash=hash_tensor(part["x"]),
            settings=self.settings if radii is None else {**self.settings, "eps": radii[which]},
            origin=None if self.origin is None else self.origin.part(which),
            made_from=made_from,
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
        bounds = {f"{side}.{name}": tensor for side, overlap in sides for name, tensor in _tensors(overlap).items()}
        errors = {} if self.errors is None else {_ERRORS: self.errors}
        return {name: getattr(self, name) for name in _STORED} | errors | bounds

    @property
    def proven(self) -> Tensor:
        """(N,) bool: no input of the ball is classified otherwise; for a targeted map, none of either half is its aim.

        False where AO = 0: another class may have the same logit. False also where the bounds do not ask that: for
        another objective, or a target that the sample is already.
        """
        if self.guarantee != "certified":
            return torch.zeros_like(self.target, dtype=torch.bool)
        if self.opposite is not None:
            return (self.target != self.overlap.target) & (torch.maximum(self.overlap.full, self.opposite.full) < 0)
        return (self.overlap.full < 0) & decides(self.settings.get("objective", "margin"))

    @cached_property
    def _known(self) -> Known:
        return Known.of(list(self._sides.values()), self.mask, self.scores.shape[1])

    @property
    def intervals(self) -> Tensor:
        """(N, G, 2) float64: the smallest and the largest that each true score can be, proven.

        The true score is AO(B) - AO(B_u), never below 0; of a targeted map φ(+) - φ(-). -inf and inf where nothing is
        proven: the overlaps are not certified, or no AO(B_u) was bounded.
        """
        return self._known.intervals

    @property
    def proven_scores(self) -> Tensor:
        """(N, G) bool: the interval of the score does not contain zero, so that freezing the group is proven to matter.

        For a targeted map the sign is proven: whether adding or removing brings the class closer.
        """
        return self._known.certain

    def order(self) -> Tensor:
        """(N, G, G) bool: [n, u, v] where the true score of u is proven to be larger than that of v."""
        return self._known.larger()

    def top(self, k: int) -> Tensor:
        """(N, G) bool: the groups that are proven to be among the k with the largest true scores.

        Fewer than k others can reach such a group. By absolute value where scores have signs.
        """
        check_count("got k", k)
        return (self._known.sizes if self.signed else self._known).top(k)

    @property
    def ties(self) -> Tensor:
        """(N, G) bool: the score is not told apart from that of a neighbour in rank, as their 95 % intervals overlap.

        An interval is the score and 1.96 of its standard errors to either side. No ties where no errors are known.
        """
        return (
            torch.zeros_like(self.scores, dtype=torch.bool) if self.errors is None else tied(self.scores, self.errors)
        )

    def __iter__(self) -> Iterator[Explanation]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        count, groups = self.scores.shape
        many = f"{groups} group{'s' * (groups != 1)}"
        ends = span(float(self.overlap.full.min()), float(self.overlap.full.max()), self.guarantee)
        relation = {"certified": "<=", "probable": "<=", "sampled": ">=", "none": "about"}[self.guarantee]
        level = f", level={self.settings['level']}" if self.guarantee == "probable" else ""
        rounding = f", {NOT_COVERED}" if self.guarantee == "certified" and not self.overlap.rigorous else ""
        return (
            f"Explanation({count} sample{'s' * (count > 1)} of {tuple(self.x.shape[1:])}, {many}, "
            f"method={self.method!r}, AO {relation} {ends}, guarantee={self.guarantee!r}{level}{rounding})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation to a file, whole or not at all."""
        certified = {side: bounds.certified for side, bounds in self._sides.items()}
        words = {name: getattr(self, name) for name in _WORDS}
        origin = None if self.origin is None else self.origin.json()
        smooth = {"smooth": True} if self.smooth else {}
        write(Path(path), self._tensors, words | {"certified": certified, "origin": origin} | smooth)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read what `save` wrote; anything else is refused with its reason."""
        tensors, words, version = read(Path(path))
        words.setdefault("smooth", False)
        check_names(path, "entries", words, {*_WORDS, "smooth", "certified", "origin"})
        certified, origin = words.pop("certified"), words.pop("origin")
        if certified.keys() not in ({"overlap"}, {"overlap", "opposite"}):
            raise FileError(f"{path} is no explanation: it has the overlaps {sorted(certified)}")
        lower = LOWER if version >= 3 else ()
        more = {s: [name for name in FOUND if lower and f"{s}.{name}" in tensors] for s in certified}
        names = {s: [*BOUNDS, *lower, *more[s]] for s in certified}
        stored = {*_STORED, *({_ERRORS} & tensors.keys())}
        check_names(path, "tensors", tensors, {*stored, *(f"{side}.{name}" for side in names for name in names[side])})
        try:
            settings = words["settings"]
            rigorous = isinstance(settings, dict) and bool(settings.get("rigorous"))
            sides = {
                side: Overlap(
                    **{name: tensors.pop(f"{side}.{name}") for name in names[side]}, certified=holds, rigorous=rigorous
                )
                for side, holds in certified.items()
            }
            parts: dict[str, Any] = {**words, **tensors, **sides}
            parts["origin"] = None if origin is None else Origin.read(origin)
            return cls(**parts, attributions=spread(tensors["scores"], tensors["mask"], words["smooth"]))
        except _MISFITS as error:
            raise FileError(f"{path} holds parts that do not fit together: {first_line(error)}") from error

    def certificate(
        self,
        k: int | None = None,
        *,
        leaves: int | None = None,
        seconds: float = 60.0,
        file: ModelFile | str | os.PathLike[str] | None = None,
        half: Literal["+", "-"] | None = None,
        progress: bool = True,
    ) -> Certificate:
        """Prove the overlaps of sample k once more, in a form that others can check.

        The certificate is about an ONNX file: the one that the model was loaded from, if the checker can read it.
        Otherwise the network is exported, and `Certificate.exported` says so with the hashes of both.

        A certificate that claims less of AO(B) than the explanation proved warns, and `Certificate.shortfall` has the
        sentence with both numbers. All AO(B_u) are bounded by forms that are relaxed on B, as sharing "one-pass" does;
        other sharings may have proven more of them.

        Args:
            k: The sample; it may be left out where there is one.
            leaves: Parts that the ball is split into. By default as many as the explanation's bound of AO(B) needs,
                often none; where the bounds were searched for, up to 1024, or 192 of B alone. 0: the ball stays whole.
            seconds: Time for splitting.
            file: Another ONNX file of the same network, which the claims are to be about.
            half: The half of the ball, of a targeted map, which has a certificate for each of its halves.
            progress: Show how far the work is.

        Returns:
            The certificate; `save` writes it beside its input and its network.

        Raises:
            InputError: The explanation is not one by EVA or TargetedEVA, or certificates do not cover its network.
            FileError: The model's file cannot be read, or has changed since it was loaded.
            BoundError: The checker cannot read `file`, or float32 could overflow.
        """
        from proofmap.explainers.certified_explanation import certificate

        return certificate(self, k, leaves, seconds, file, half, progress)

    def plot(self, columns: Sequence[str] | None = None, class_names: Sequence[str] | None = None) -> Picture:
        """A matplotlib figure with one row a sample: picture, map and overlay, or the largest scores of a flat input.

        columns: names for the variables of a flat input; class_names: names for the classes. Numbers by default.
        """
        from proofmap.plots.explanation_figure import draw  # and with it matplotlib, which takes a while

        return draw(self, columns=columns, class_names=class_names)

    def summary(self, columns: Sequence[str] | None = None) -> Picture:
        """A matplotlib figure of all samples together: for each group its mean score, and every sample's as a dot.

        columns: names for the variables of a flat input. Groups have to be the same in all samples.
        """
        from proofmap.plots.many_explanations import summary

        return summary(self, columns)

    def atlas(self, class_names: Sequence[str] | None = None) -> Picture:
        """What `TargetedEVA.explain_all` found, in one figure: a row a sample, a column a class."""
        from proofmap.plots.class_atlas import atlas

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


def _tensors(bounds: Overlap) -> dict[str, Tensor]:
    named = {name: getattr(bounds, name) for name in (*BOUNDS, *LOWER, *FOUND)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _sliced(bounds: Overlap, which: slice) -> Overlap:
    parts: dict[str, Any] = {name: tensor[which] for name, tensor in _tensors(bounds).items()}
    return replace(bounds, **parts)
