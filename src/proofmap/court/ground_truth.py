"""Judges that know which variables matter: how well a map agrees with the truth, a number a sample.

Of an image a variable is a pixel: its attribution is the sum over its channels. Equal attributions count as if they
were ordered at random: the values are means over all such orders, and a map that says nothing gets the level of chance.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.metrics.metric import Case, Metric, Presets

__all__ = ["Localisation", "Order", "Precision"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth(Metric[Tensor]):
    """truth (N, *sides): 0 where a variable of a sample has no effect, and the more it matters, the larger.

    absolute: of a map with signs the size counts, for data where what is absent says as much as what is there.
    """

    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = {"court": {}}

    truth: Tensor = field(repr=False)
    absolute: bool = False
    preset: str = "court"
    batch: int | None = None

    @abstractmethod
    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        """The value of each sample, (N,), from the scores and the truth of its variables, (N, d)."""

    def _check(self, x: Tensor) -> None:
        sides = (len(x), *(x.shape[2:] if x.ndim == 4 else x.shape[1:]))
        if tuple(self.truth.shape) != sides:
            raise InputError(
                f"{type(self).__name__} knows what matters for samples {tuple(self.truth.shape)}, got {sides}: "
                "expected the truth of every variable"
            )

    def _values(self, case: Case) -> Tensor:
        maps: Tensor = case.subject
        score = (maps.sum(1) if maps.ndim == 4 else maps).flatten(1)  # (N, d)
        truth = self.truth.to(score).flatten(1)
        return self._agreement(score.abs() if self.absolute else score, truth)


class Precision(Truth):
    """Of as many variables as matter, those with the largest attributions: the share that matters."""

    name: ClassVar[str] = "precision"
    label: ClassVar[str] = "Precision"

    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        matters = truth > 0
        many = matters.sum(1, keepdim=True)  # (N, 1)
        least = score.sort(1, descending=True).values.gather(1, many - 1)  # of those that are taken
        above, level = score > least, score == least
        of_level = (many - above.sum(1, keepdim=True)) / level.sum(1, keepdim=True)  # the share that is taken
        taken = above.double() + of_level * level
        return (taken * matters).sum(1) / many[:, 0]


class Order(Truth):
    """Of two variables that matter differently, how often the one that matters more has the larger attribution.

    Where the truth is yes or no that is the area under the ROC curve.
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


class Localisation(Truth):
    """The share of a map's positive attribution that lies where it matters; 0 where nothing is positive."""

    name: ClassVar[str] = "localisation"
    label: ClassVar[str] = "Localisation"

    def _agreement(self, score: Tensor, truth: Tensor) -> Tensor:
        positive = score.clamp(min=0)
        total = positive.sum(1)
        inside = (positive * (truth > 0)).sum(1)
        return torch.where(total > 0, inside / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
