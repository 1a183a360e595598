"""Deletion and Insertion: the score along the way from a sample to a baseline, the most important variables first.

Petsiuk et al. 2018, "RISE: Randomized input sampling for explanation of black-box models".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target
from proofmap.graph import Graph
from proofmap.groups import Groups, pixels
from proofmap.metrics.draws import Baseline, Darkest, Stream, Uniform, baseline_at, check_baseline, check_broadcast
from proofmap.metrics.metric import (
    Metric,
    Score,
    check_attributions,
    check_call,
    check_choice,
    check_count,
    check_groups,
    check_run,
    classes_of,
    logits_at,
    pieces,
    preset_of,
    recorded,
    rows_of,
    running,
    score_at,
)
from proofmap.metrics.variables import Entries, Variables
from proofmap.records import JSON

__all__ = ["CurveSettings", "Deletion", "Insertion"]

Steps: TypeAlias = int | Literal["all"]
Area: TypeAlias = Literal["mean", "sum"]


@dataclass(frozen=True)
class CurveSettings:
    """What a curve and its area are made with; see `Curve`."""

    baseline: Baseline
    steps: Steps
    score: Score
    area: Area
    groups: Any  # a grouping, or a mask


class Curve(Metric[Tensor]):
    """The area under s_k = score(x with some variables at a baseline), k = floor(i G / steps) for i = 0 .. steps.

    k counts the most important of G variables.

    baseline: a number, a tensor that broadcasts to x, `Uniform(low, high)` or `Darkest()`.
    steps: how many points after the first, no more than there are variables; "all": one variable at a time.
    score: "softmax" or "logit" of the target class.
    area: "mean", over the fraction i / steps from 0 to 1, by trapezoids; "sum", over i from 1 to steps with steps of
        width one, by trapezoids: without the untouched sample, and growing with the number of steps.
    groups: the variables.

    The presets give these; what is not None replaces theirs.

        paper    Uniform(), softmax, mean, pixels, 100 steps (the paper says nothing of steps)
        xplique  0, logit, mean, pixels, 10 steps
        quantus  PixelFlipping with its area: Darkest(), softmax, sum, each entry, all steps. It knows no Insertion.

    batch: points that go through the model together; by default some 16 MB of them.
    """

    presets: ClassVar[Mapping[str, CurveSettings]]

    def __init__(
        self,
        preset: str = "paper",
        *,
        baseline: Baseline | None = None,
        steps: Steps | None = None,
        score: Score | None = None,
        area: Area | None = None,
        groups: Groups = None,
        seed: int = 0,
        batch: int | None = None,
    ) -> None:
        given = {"baseline": baseline, "steps": steps, "score": score, "area": area, "groups": groups}
        self.chosen = preset_of(type(self), self.presets, preset, given)
        name = type(self).__name__
        check_baseline(name, self.chosen.baseline)
        if not isinstance(self.chosen.steps, str) or self.chosen.steps != "all":
            check_count(name, "steps", self.chosen.steps, other=", or 'all'")
        check_choice(name, "score", self.chosen.score, get_args(Score))
        check_choice(name, "area", self.chosen.area, get_args(Area))
        check_groups(name, self.chosen.groups)
        check_run(name, seed, batch)
        self.preset = preset
        self.seed = seed
        self.batch = batch

    @abstractmethod
    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        """Where the way starts and where it leads."""

    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The area under each sample's curve: (N,)."""
        curve = self.curve(model, x, target, attributions)
        if self.chosen.area == "sum":
            return torch.trapezoid(curve[:, 1:], dim=1)
        return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)

    def curve(self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The scores themselves, from none of the variables to all: (N, steps + 1)."""
        x = check_call(model, x)
        ranked = check_attributions(attributions, x)
        check_broadcast(self.chosen.baseline, x)
        variables, rows = Variables.of(x, self.chosen.groups), rows_of(self.batch, x)
        steps = variables.most if self.chosen.steps == "all" else min(self.chosen.steps, variables.most)
        index = torch.arange(steps + 1, device=x.device)
        shares = torch.stack([index, torch.full_like(index, steps)], 1)  # (P, 2)
        baselines, ties = Stream(self.seed, "baseline"), Stream(self.seed, "ties")
        x = x.detach()
        scores = []
        with running(model, x) as function:
            classes = classes_of(target, logits_at(function, x, rows))
            for piece in pieces(len(x), steps + 1, rows):
                own = variables.cut(piece)
                baseline = baseline_at(self.chosen.baseline, x, piece, baselines)
                start, end = (point.flatten(1)[:, None] for point in self._ends(x[piece], baseline))  # (n, 1, d)
                drawn = ties.next(len(start), own.most, device=x.device)
                ranks = own.ranks(ranked[piece], drawn)
                parts = []
                for some in shares.split(max(1, rows // len(start))):
                    points = torch.where(own.first(ranks, some), end, start).view(-1, *x.shape[1:])
                    aims = classes[piece].repeat_interleave(len(some))
                    parts.append(score_at(function, points, aims, self.chosen.score, rows).view(-1, len(some)))
                scores.append(torch.cat(parts, dim=1))
        return torch.cat(scores).to(x.dtype)

    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""
        return recorded(self.preset, self.chosen, seed=self.seed)


class Deletion(Curve):
    """The area under the score as the most important variables are set to the baseline; less is better.

    s_k = score(x with the k most important variables at the baseline). Settings and presets are those of `Curve`.
    """

    name: ClassVar[str] = "deletion"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, CurveSettings]] = {
        "paper": CurveSettings(Uniform(), 100, "softmax", "mean", pixels()),
        "xplique": CurveSettings(0.0, 10, "logit", "mean", pixels()),
        "quantus": CurveSettings(Darkest(), "all", "softmax", "sum", Entries()),
    }

    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        return x, baseline


class Insertion(Curve):
    """The area under the score as the most important variables are put into the baseline; more is better.

    s_k = score(the baseline with the k most important variables of x). The baseline is that of Deletion.
    Settings and presets are those of `Curve`.
    """

    name: ClassVar[str] = "insertion"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, CurveSettings]] = {
        "paper": CurveSettings(Uniform(), 100, "softmax", "mean", pixels()),
        "xplique": CurveSettings(0.0, 10, "logit", "mean", pixels()),
    }

    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        return baseline, x
