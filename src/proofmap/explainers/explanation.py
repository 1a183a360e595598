"""The result of an explainer: scores, maps, the bounds behind them, and the settings to reproduce them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from proofmap.errors import FileError, InputError, ProofmapError, first_line
from proofmap.explainers.batching import ball_of_samples
from proofmap.explainers.consistency import check_explanation, json_copy
from proofmap.explainers.explanation_file import (
    MISFITS,
    STORED_TENSORS,
    overlap_tensors,
    read_parts,
    stored_tensors,
    write_explanation,
)
from proofmap.explainers.origin import Origin
from proofmap.explainers.proven_scores import ProvenScores, tied
from proofmap.explainers.samples.sample_choice import SampleChoice, chosen, chosen_samples
from proofmap.explainers.statements.explained_inputs import each_input, input_roles, shapes_in_words
from proofmap.explainers.upsampling import spread
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.runtime.outward_numbers import NOT_COVERED, Guarantee, format_overlap, format_range
from proofmap.settings import check_count
from proofmap.storage.hashing import hash_tensor
from proofmap.storage.records import JSON
from proofmap.text.notebook_html import picture_html
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from pandas import DataFrame

    from proofmap.plots.figure_look import Number
    from proofmap.plots.figure_page import Picture
    from proofmap.proof.certificate import Certificate
    from proofmap.proof.make_certificate import ModelFile

__all__ = ["Explanation", "Guarantee", "format_overlap", "spread"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation:
    """The explanation of N decisions by the scores of G groups of variables.

    guarantee: the meaning of the overlaps.
        "certified": proven upper bounds of AO.
        "probable": upper bounds of the AO of the smoothed classifier, not of the network. They hold with the
        probability settings["level"].
        "sampled": the largest value that samples reached, a lower bound.
        "none": an estimate without a bound.

    The scores are differences of overlaps: an importance. `intervals`, `proven_scores`, `order` and `top` hold what is
    proven about them. That is little or nothing, unless a method bounds the overlaps from both sides, as
    pm.bounds.Exact() does.

    origin: the files of the model and the samples, and the true classes, if they are known. The command line records
    them.

    >>> found = pm.EVA(model, ball, groups=cells).explain(x)
    >>> found.scores.shape, found.attributions.shape, found.proven
    (torch.Size([2, 16]), torch.Size([2, 1, 28, 28]), tensor([True, True]))
    >>> found.save("maps.proofmap")
    >>> pm.Explanation.load("maps.proofmap").guarantee
    'certified'
    """

    x: Tensor  # (N, *shape)
    scores: Tensor  # (N, G)
    attributions: Tensor  # (N, *shape) the score of each variable's group; with smooth, a mean of the scores around it
    mask: Tensor  # (1, *shape) or (N, *shape), int64: the group of each variable, 0..G-1
    overlap: Overlap  # AO(B) and every AO(B_u); for a targeted map, on the half δ >= 0
    opposite: Overlap | None = None  # the same on the half δ <= 0
    errors: Tensor | None = None  # (N, G) the standard errors of scores that are means over random draws
    reason: Reason | None = None  # sufficient sets of kept groups, from pm.Sufficient
    contrast: Contrast | None = None  # sets of groups that can change the decision, from pm.Contrastive
    target: Tensor  # (N,) the explained class c; for a targeted map, the target class c'
    predicted: Tensor  # (N,) the predicted class
    signed: bool = False  # scores > 0: add, scores < 0: remove
    smooth: bool = False  # whether the attributions are interpolated smoothly between groups; the scores are not
    guarantee: Guarantee
    method: str
    settings: Mapping[str, JSON]
    seed: int | None = None
    versions: Mapping[str, str]
    model_hash: str
    input_hash: str
    seconds: float  # the time of the call, for all samples
    origin: Origin | None = None
    made_from: tuple[Graph, Ball] | None = None  # the network and the ball; not stored in a file

    def __post_init__(self) -> None:
        """Raise InputError if parts do not fit together."""
        object.__setattr__(self, "settings", json_copy(self.settings, "settings"))
        object.__setattr__(self, "versions", json_copy(self.versions, "versions"))
        check_explanation(self)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: SampleChoice) -> Explanation:
        """Return the explanation of some samples.

        which: a number (the result has one sample), a slice, a list of numbers, or a mask with one True or False per
        sample. Lists and masks may be tensors, arrays or columns of a data frame. A sample may be chosen twice.
        """
        which = chosen_samples(which, len(self))
        if not len(self.x[which]):
            raise InputError(f"got an index that chooses none of {len(self)} samples, expected at least one sample")
        shared = ("mask",) if len(self.mask) == 1 else ()  # one for all samples
        part: dict[str, Any] = {name: getattr(self, name)[which] for name in STORED_TENSORS if name not in shared}
        part |= {name: _sliced(side, which) for name, side in self._sides.items()}
        if self.errors is not None:
            part["errors"] = self.errors[which]
        if self.reason is not None:
            part["reason"] = self.reason.pick(torch.arange(len(self))[which])
        if self.contrast is not None:
            part["contrast"] = self.contrast.pick(torch.arange(len(self))[which])
        part["attributions"] = spread(part["scores"], part.get("mask", self.mask), self.smooth)
        made_from = None
        if self.made_from is not None:
            made_from = self.made_from[0], ball_of_samples(self.made_from[1], which, self.x)
        eps = self.settings.get("eps")
        radii = eps if isinstance(eps, list) and len(eps) == len(self) else None  # one for each sample
        return replace(
            self,
            **part,
            input_hash=hash_tensor(part["x"]),
            settings=self.settings if radii is None else {**self.settings, "eps": chosen(radii, which)},
            origin=None if self.origin is None else self.origin.part(which),
            made_from=made_from,
        )

    def label(self, k: int) -> int | None:
        """Return the true class of sample k, or None if it is unknown."""
        return None if self.origin is None else self.origin.label(k)

    @property
    def _sides(self) -> dict[str, Overlap]:
        """The overlaps by name: one, or two for a targeted map."""
        return {"overlap": self.overlap} | ({} if self.opposite is None else {"opposite": self.opposite})

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of a file, by name."""
        return stored_tensors(self)

    @property
    def inputs(self) -> tuple[Explanation, ...]:
        """The explanation of each input of a model with several: x, maps and groups in the input's own shape.

        The bounds of the decision are those of the whole ball. Integer inputs, which stay fixed, have no explanation.
        For a model with one input, this is the explanation itself.
        """
        return each_input(self)

    @property
    def input_roles(self) -> dict[str, str]:
        """The role of each of several inputs by its name: "moves", "fixed", or "constant" for integers."""
        return input_roles(self.settings)

    @property
    def proven(self) -> Tensor:
        """(N,) bool: no input in the ball changes the class; for a targeted map, none in either half gets the target.

        False if AO = 0, because another class may have the same logit. False also if the bounds do not answer this
        question: for an objective other than the margin, or a target that is already the predicted class.
        """
        if self.guarantee != "certified":
            return torch.zeros_like(self.target, dtype=torch.bool)
        if self.opposite is not None:
            return (self.target != self.overlap.target) & (torch.maximum(self.overlap.full, self.opposite.full) < 0)
        return (self.overlap.full < 0) & decides(self.settings.get("objective", "margin"))

    @cached_property
    def _known(self) -> ProvenScores:
        return ProvenScores.of(list(self._sides.values()), self.mask, self.scores.shape[1])

    @property
    def intervals(self) -> Tensor:
        """(N, G, 2) float64: proven lower and upper bounds of each true score.

        The true score is AO(B) - AO(B_u), never below 0; for a targeted map φ(+) - φ(-). The bounds are -inf and inf if
        the overlaps are not certified or no AO(B_u) was bounded.
        """
        return self._known.intervals

    @property
    def proven_scores(self) -> Tensor:
        """(N, G) bool: the interval of the score does not contain zero, so freezing the group provably matters.

        For a targeted map the sign is proven: it says whether adding or removing moves towards the target.
        """
        return self._known.nonzero

    def order(self) -> Tensor:
        """Return (N, G, G) bool: [n, u, v] is True if the true score of u is proven to be larger than that of v."""
        return self._known.larger()

    def top(self, k: int) -> Tensor:
        """Return (N, G) bool: the groups that are proven to be among the k largest true scores.

        Fewer than k other groups can have an equal or larger score. Signed scores are compared by absolute value.
        """
        check_count("got k", k)
        return (self._known.absolute if self.signed else self._known).top(k)

    @property
    def kept(self) -> Tensor:
        """(N, G) bool: the groups that keep their values. They are a sufficient set (`pm.Sufficient`)."""
        return self._reason.kept

    @property
    def necessary(self) -> Tensor:
        """(N, G) bool: kept groups that are shown to be necessary by a stored input.

        At the input, free groups and this group have moved, and the class has changed, or is decided within the
        rounding errors that the proof covers (`reason.adversarial` tells which).
        """
        return self._reason.necessary

    @property
    def undecided(self) -> Tensor:
        """(N, G) bool: kept groups that are not shown to be necessary."""
        return self._reason.undecided

    @property
    def _reason(self) -> Reason:
        if self.reason is None:
            raise InputError(
                f"the explanation is made by {self.method}, expected one by Sufficient, which keeps groups"
            )
        return self.reason

    @property
    def ties(self) -> Tensor:
        """(N, G) bool: the 95 % interval of the score overlaps that of a neighbour in rank.

        An interval is the score ± 1.96 standard errors. All False if no standard errors are known.
        """
        return (
            torch.zeros_like(self.scores, dtype=torch.bool) if self.errors is None else tied(self.scores, self.errors)
        )

    def __iter__(self) -> Iterator[Explanation]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        count, groups = self.scores.shape
        many = f"{groups} group{'s' * (groups != 1)}"
        ends = format_range(float(self.overlap.full.min()), float(self.overlap.full.max()), self.guarantee)
        relation = {"certified": "<=", "probable": "<=", "sampled": ">=", "none": "about"}[self.guarantee]
        level = f", level={self.settings['level']}" if self.guarantee == "probable" else ""
        what = "AO" if self.overlap.value is None else "change"
        rounding = f", {NOT_COVERED}" if self.guarantee == "certified" and not self.overlap.rigorous else ""
        return (
            f"Explanation({count} sample{'s' * (count > 1)} of {shapes_in_words(self)}, {many}, "
            f"method={self.method!r}, {what} {relation} {ends}, guarantee={self.guarantee!r}{level}{rounding})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation to a file. The file is written completely or not at all."""
        write_explanation(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read a file that `save` wrote. Any other content raises FileError with the reason."""
        parts = read_parts(Path(path))
        try:
            return cls(**parts)
        except MISFITS as error:
            raise FileError(f"{path} holds parts that do not fit together: {first_line(error)}") from error

    def to_frame(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return a tidy pandas frame: one row for each group of each sample.

        Its columns are the sample, the group with its variables, the score, the ends `low` and `high` of the proven
        interval of the true score, whether it is `proven` to differ from 0, the standard error of a mean over draws,
        the rank (1 for the largest score; by absolute value if scores are signed), the classes and the method. An end
        that is not proven is infinite. A group without variables in a sample has no row there. Sufficient sets add the
        columns `kept`, `necessary` and `undecided`; contrastive sets add `changed`, the groups of the smallest set.

        columns: the names of the variables of a flat input, for the column `name`. pandas has to be installed.
        """
        from proofmap.explainers.samples.explanation_frame import explanation_frame

        return explanation_frame(self, columns)

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
        """Prove the overlaps of sample k again, as a certificate that others can check.

        The certificate is about an ONNX file: the file that the model was loaded from, if the checker can read it.
        Otherwise the network is exported, and `Certificate.exported` states the hashes of both. With an objective
        `Output` it states limits of this output, and with `Label` whether the label is on or off in the whole ball.
        For pm.Sufficient it states the free groups, and for each necessary group a point that the checker bounds again.
        For pm.Contrastive it states the sets with their points, and the largest number of groups for which it proves
        that fewer cannot change the decision.

        If the certificate's bound of AO(B) is weaker than that of the explanation, a warning is given, and
        `Certificate.shortfall` states both numbers. All AO(B_u) are bounded with relaxations on B, as with sharing
        "one-pass"; other sharings may have proven tighter bounds.

        Args:
            k: The sample; optional if there is only one.
            leaves: The number of parts that the ball is split into. By default as many as the explanation's bound of
                AO(B) needs, often none; for bounds from a search up to 1024, or 192 of B alone; for sets
                as many as they need, up to 4096. 0: no splits.
            seconds: The time for splitting.
            file: Another ONNX file of the same network, which the certificate shall be about.
            half: The half ball, "+" or "-", for a targeted map, which has one certificate for each half.
            progress: Show a progress bar.

        Returns:
            The certificate; `save` writes it beside its input and its network.

        Raises:
            InputError: The explanation is not made by EVA, TargetedEVA, Sufficient or Contrastive, or certificates do
                not support its network or its objective.
            FileError: The model's file cannot be read, or has changed since it was loaded.
            BoundError: The checker cannot read `file`, or float32 could overflow, or the free groups of a sufficient
                set are not proven with so many parts.
        """
        from proofmap.explainers.certified_explanation import certificate

        return certificate(self, k, leaves, seconds, file, half, progress)

    def plot(
        self,
        columns: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        *,
        tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: str | Sequence[str] | None = None,
        group: int | Sequence[int] | None = None,
        mean: Number | None = None,
        std: Number | None = None,
    ) -> Picture:
        """Draw a matplotlib figure, one row per sample. The titles are the verdicts.

        An image has the panels "input", "map", "overlay" and "scores", the largest scores as bars. A flat input has
        "scores", a series with windows "series" and "scores", and a sequence of tokens "tokens" and "scores".
        For several inputs, the scores are those of all; `inputs` draws one picture of each.

        A sufficient set (`pm.Sufficient`) has the panels "kept" and "adversary", and an image "input" as well. "kept"
        shows only the groups that keep their values: necessary groups are blue, undecided groups are orange and
        hatched. "adversary" shows the stored point of one necessary group. Contrastive sets (`pm.Contrastive`) have the
        panels "input", with the groups that change, and "changed", and an image "difference" as well.

        Args:
            columns: The names of the variables of a flat input, by default their numbers.
            class_names: The names of the classes, by default their numbers.
            tokens: The names of the tokens of a sequence (T, D), for all samples or for each.
            ax: Axes to draw into, one for each panel, sample by sample. By default a new figure.
            cmap: The colour map of the scores.
            title: The titles, one for each sample.
            panels: The panels to draw, in this order.
            group: The necessary group whose stored point "adversary" shows, one for all samples or one for each. By
                default the group with the largest overlap.
            mean: The mean of the normalisation (v - mean) / std that made x from pixels v, to show the image itself.
            std: The standard deviation of this normalisation.

        Returns:
            The figure; with `ax`, the figure of these axes.

        Raises:
            InputError: Names, axes, titles or panels do not fit the explanation.
        """
        from proofmap.plots.explanation_figure import draw  # imports matplotlib, which takes a while
        from proofmap.plots.figure_look import Look

        look = Look(ax, cmap, title, panels, mean, std)
        return draw(self, columns=columns, class_names=class_names, tokens=tokens, look=look, group=group)

    def summary(
        self,
        columns: Sequence[str] | None = None,
        *,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | None = None,
        panels: str | Sequence[str] | None = None,
    ) -> Picture:
        """Draw a matplotlib figure of all samples: the mean score of each group, and each sample's score as a dot.

        All samples must have the same groups. columns: the names of the variables of a flat input. ax, title: as for
        `plot`. cmap: the colour map of the dots. panels: "mean", "samples" or both.
        """
        from proofmap.plots.figure_look import Look
        from proofmap.plots.summary_figure import summary

        return summary(self, columns, Look(ax, cmap, title, panels))

    def atlas(
        self,
        class_names: Sequence[str] | None = None,
        *,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: Sequence[str | int] | None = None,
        mean: Number | None = None,
        std: Number | None = None,
    ) -> Picture:
        """Draw the result of `TargetedEVA.explain_all` in one figure: one row per sample, one column per class.

        The options are those of `plot`. panels: the columns to draw, "input" and numbers of classes.
        """
        from proofmap.plots.class_atlas import atlas
        from proofmap.plots.figure_look import Look

        return atlas(self, class_names, Look(ax, cmap, title, panels, mean, std))

    @cached_property
    def _png(self) -> bytes | None:
        """The image for notebooks; None if the figure cannot be drawn, and then the text is shown."""
        try:
            return self.plot()._repr_png_()
        except ProofmapError:
            return None

    def _repr_png_(self) -> bytes | None:
        return self._png

    def _repr_html_(self) -> str:
        return picture_html(self._png, [repr(self)])


def _sliced(bounds: Overlap, which: slice | Tensor) -> Overlap:
    parts: dict[str, Any] = {name: tensor[which] for name, tensor in overlap_tensors(bounds).items()}
    return replace(bounds, **parts)
