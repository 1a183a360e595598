"""Metrics with ground truth: precision, order (AUC) and localisation of a map, one value per sample.

A variable of an image is a pixel, and its attribution is the sum over its channels. Equal attributions are ordered at
random: the value is the mean over all orders, so that a constant map gets the value of chance.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.metrics.metric import Case, Metric, Presets


@dataclass(frozen=True, eq=False, kw_only=True)
class TruthMetric(Metric[Tensor]):
    """Base class. truth (N, *sides): 0 for a variable without effect, and larger for a variable that matters more.

    absolute: use absolute attributions, for data in which the absence of a pattern is as informative as its presence.
    """

    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = {"truth": {}}

    truth: Tensor = field(repr=False)
    absolute: bool = False
    preset: str = "truth"
    batch: int | None = None

    @abstractmethod
    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        """Return the value of each sample (N,) from the scores and the truth of its variables (N, d)."""

    def _check(self, x: Tensor) -> None:
        sides = (len(x), *(x.shape[2:] if x.ndim == 4 else x.shape[1:]))
        if tuple(self.truth.shape) != sides:
            raise InputError(
                f"{type(self).__name__} has the truth for samples {tuple(self.truth.shape)}, got {sides}: "
                "expected the truth of every variable"
            )

    def _values(self, case: Case) -> Tensor:
        maps: Tensor = case.subject
        score = (maps.sum(1) if maps.ndim == 4 else maps).flatten(1)  # (N, d)
        truth = self.truth.to(score).flatten(1)
        return self._agreement(score.abs() if self.absolute else score, truth)


class Precision(TruthMetric):
    """Precision at k: the share of relevant variables among the k largest attributions, for k relevant variables."""

    name: ClassVar[str] = "precision"
    label: ClassVar[str] = "Precision"

    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        matters = truth > 0
        many = matters.sum(1, keepdim=True)  # (N, 1)
        least = score.sort(1, descending=True).values.gather(1, many - 1)  # the k-th largest attribution
        above, level = score > least, score == least
        of_level = (many - above.sum(1, keepdim=True)) / level.sum(1, keepdim=True)  # the share of ties in the top k
        taken = above.double() + of_level * level
        return (taken * matters).sum(1) / many[:, 0]


class Order(TruthMetric):
    """The share of pairs of variables with different truth whose attributions are in the right order.

    For a binary truth, this is the area under the ROC curve.
    """

    name: ClassVar[str] = "order"
    label: ClassVar[str] = "Order"

    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        values = []
        for one, levels in zip(score, truth, strict=True):
            more = levels[:, None] > levels  # (d, d): the first of a pair matters more
            right = (one[:, None] > one).double() + 0.5 * (one[:, None] == one)
            values.append((right * more).sum() / more.sum())
        return torch.stack(values)


class Localisation(TruthMetric):
    """The share of a map's positive attribution on relevant variables; 0 if no attribution is positive."""

    name: ClassVar[str] = "localisation"
    label: ClassVar[str] = "Localisation"

    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        positive = score.clamp(min=0)
        total = positive.sum(1)
        inside = (positive * (truth > 0)).sum(1)
        return torch.where(total > 0, inside / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
