"""Deletion and Insertion: the area under the score while variables are replaced, the most important first.

Petsiuk et al. 2018, "RISE: Randomized input sampling for explanation of black-box models".
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.graph import Network
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import Score, pieces
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, table
from proofmap.metrics.removal.fill_values import (
    Baseline,
    Blur,
    Darkest,
    Mean,
    Uniform,
    baseline_at,
    check_baseline,
    check_fits,
)
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Entries, Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, count

Steps: TypeAlias = int | Literal["all"]
Area: TypeAlias = Literal["mean", "sum"]


_NOISE_DRAWS = 8  # independent draws of a random baseline; the noise of a value falls with the root of their number
_PRESET_SETTINGS = ("baseline", "steps", "score", "area", "groups", "draws")
_PRESETS = table(
    *_PRESET_SETTINGS,
    paper=(Uniform(), 100, "softmax", "mean", pixels(), _NOISE_DRAWS),
    xplique=(0.0, 10, "logit", "mean", pixels(), 1),
)


def _check_steps(said: str, steps: Any) -> None:
    if not isinstance(steps, str) or steps != "all":
        check_count(said, steps, other=", or 'all'")


@dataclass(frozen=True, eq=False)
class Curve(Metric[Maps]):
    """The area under s_k = score(x with some variables at a baseline), k = floor(i G / steps) for i = 0 .. steps.

    k is the number of most important variables, out of G. `Deletion` describes the settings and presets.
    """

    preset: str = "paper"
    _: KW_ONLY
    baseline: ByPreset[Baseline] = ByPreset(check_baseline)
    steps: ByPreset[Steps] = ByPreset(_check_steps)
    score: ByPreset[Score] = ByPreset(partial(check_choice, words=Score))
    area: ByPreset[Area] = ByPreset(partial(check_choice, words=Area))
    groups: ByPreset[Groups] = ByPreset(check_groups)
    draws: ByPreset[int] = ByPreset(check_count)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse invalid settings. A baseline without noise needs one draw."""
        super().__post_init__()
        if not isinstance(self.baseline, Uniform) and vars(self)["draws"] is None:
            object.__setattr__(self, "draws", 1)

    def __init_subclass__(cls, fill: Mean | Blur | None = None) -> None:
        """With `fill`, the class is its parent with the paper's preset and this baseline, under a name of its own."""
        if fill is not None:
            word = type(fill).__name__.lower()
            presets = {"paper": {**cls.presets["paper"], "baseline": fill, "draws": 1}}
            own = {"name": f"{cls.name}-{word}", "label": f"{cls.label} ({word})", "presets": presets}
            for name, value in own.items():
                setattr(cls, name, value)

    @abstractmethod
    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        """Return the start and the end of the curve."""

    def _check(self, x: Tensor) -> None:
        check_fits(self.baseline, x)

    def _values(self, case: Case) -> Tensor:
        curve = self._curve(case)
        if self.area == "sum":
            return torch.trapezoid(curve[:, 1:], dim=1)
        return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)

    def curve(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """Return the mean scores (N, steps + 1) over the draws, from no variables to all."""
        return self._curve(self._case(model, x, target, attributions))

    def _curve(self, case: Case) -> Tensor:
        total = self._drawn(case, 0)
        for draw in range(1, self.draws):
            total = total + self._drawn(case, draw)
        return (total / self.draws).to(case.x.dtype)

    def _drawn(self, case: Case, draw: int) -> Tensor:
        """Return the scores (N, steps + 1) in float64 of one draw."""
        x, variables = case.x, Variables.of(case.x, self.groups)
        steps = variables.most if self.steps == "all" else min(self.steps, variables.most)
        points_along = torch.arange(steps + 1, device=x.device)
        baselines, ties = Stream(self.seed, "baseline", draw), Stream(self.seed, "ties", draw)
        scores = []
        with full_precision(x.device), torch.no_grad():
            for piece in pieces(len(x), steps + 1, case.rows):
                present = variables.cut(piece)
                baseline = baseline_at(self.baseline, x, piece, baselines)
                start, end = (point.flatten(1)[:, None] for point in self._ends(x[piece], baseline))  # (n, 1, d)
                ranks, indices = case.ranks(present, piece, ties), points_along.split(case.points_each(piece))
                changed = (torch.where(present.first(ranks, index, steps), end, start) for index in indices)
                scores.append(case.scores(piece, self.score, changed))
        return torch.cat(scores)


@dataclass(frozen=True, eq=False)
class Deletion(Curve):
    """The area under the score while the most important variables are set to the baseline; lower is better.

    It is the area under s_k = score(x with the k most important variables at the baseline), k = floor(i G / steps) for
    i = 0 .. steps, out of G variables.

    baseline: a number, a tensor that broadcasts to x, `Uniform(low, high)`, `Mean()`, `Blur()` or `Darkest()`.
    steps: points of the curve after the first, at most the number of variables; "all": one variable per step.
    score: "softmax" or "logit" of the target class.
    area: "mean": trapezoids over the fraction i / steps from 0 to 1; "sum": trapezoids of width one over i from 1 to
        steps, without the unchanged sample, so that the area grows with the number of steps.
    groups: the variables.
    draws: the curve is the mean over this many draws of a `Uniform` baseline and of the order of equal attributions.
        Draws are independent, also between samples. The first one is the draw of draws=1. Other baselines have no
        noise: with them, the default is 1.

    The presets set these settings. Values other than None override them.

        paper    Uniform(), softmax, mean, pixels, 100 steps, 8 draws (the paper states neither steps nor draws)
        xplique  0, logit, mean, pixels, 10 steps, 1 draw
        quantus  PixelFlipping with its area: Darkest(), softmax, sum, each entry, all steps, 1 draw. Only for Deletion.

    batch: points in one batch of the model; by default about 16 MB.

    >>> pm.metrics.Deletion()(model, x, None, maps)
    tensor([0.0588, 0.2233])
    """

    name: ClassVar[str] = "deletion"
    label: ClassVar[str] = "Deletion"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = {
        **_PRESETS,
        **table(*_PRESET_SETTINGS, quantus=(Darkest(), "all", "softmax", "sum", Entries(), 1)),
    }

    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        return x, baseline


@dataclass(frozen=True, eq=False)
class Insertion(Curve):
    """The area under the score while the most important variables are inserted into the baseline; higher is better.

    s_k = score(the baseline with the k most important variables of x). The baseline is the same as in Deletion.
    It has the settings of `Deletion`, and its presets except "quantus".

    >>> pm.metrics.Insertion()(model, x, None, maps)
    tensor([0.5501, 0.9932])
    """

    name: ClassVar[str] = "insertion"
    label: ClassVar[str] = "Insertion"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = _PRESETS

    def _ends(self, x: Tensor, baseline: Tensor) -> tuple[Tensor, Tensor]:
        return baseline, x
