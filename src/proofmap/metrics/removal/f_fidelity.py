"""F-Fidelity without fine-tuning: the score lost by random removal among the most and the least important variables.

Zheng et al. 2024, "F-Fidelity: a robust framework for faithfulness evaluation of explainable AI".
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.graph import Network
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import Outcome, pieces, score_at
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, table
from proofmap.metrics.removal.fill_values import Baseline, Mean, baseline_at, check_baseline, check_fits
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, check_number, count


def _share(said: str, got: float) -> None:
    check_number(said, got, "a share above 0, at most 1", lambda share: 0 < share <= 1)


@dataclass(frozen=True, eq=False)
class FFidelity(Metric[Maps]):
    """The mean over sizes k of FFid+_k - FFid-_k; higher is better, at most 1.

        FFid+_k = score(x) - E score(x without a random part of the k most important variables)
        FFid-_k = score(x) - E score(x without a random part of the k least important ones)

    for k = floor(i G / steps), i = 1 .. steps - 1. Each of the k variables is missing with the probability
    min(part, most G / k). This limits the mean number of missing variables, so that inputs stay near the data and the
    unknown best k matters less. For k = G both sides are equal.

    The paper's metric uses a copy of the network that was fine-tuned on inputs with random missing parts. This metric
    uses the network itself, which may change its class because of the holes alone, on both sides.

    part, most: α and β of the paper. samples: random draws of the mean, equal for all sizes.
    score: "decision": 1 if the class is predicted, else 0; or "softmax". baseline: the value of missing variables. The
    paper has 0 after normalisation, which is the mean over the data. groups: the variables.

        paper  decision, 20 steps, part 0.5, most 0.1, 50 samples, Mean(), pixels: 1900 points per sample
        fast   the same with 10 steps and 20 samples: 360

    batch: points in one batch of the model; by default about 16 MB.

    >>> pm.metrics.FFidelity()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "f-fidelity"
    label: ClassVar[str] = "FFidelity"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = table(
        *("score", "steps", "part", "most", "samples", "baseline", "groups"),
        paper=("decision", 20, 0.5, 0.1, 50, Mean(), pixels()),
        fast=("decision", 10, 0.5, 0.1, 20, Mean(), pixels()),
    )

    preset: str = "paper"
    _: KW_ONLY
    score: ByPreset[Outcome] = ByPreset(partial(check_choice, words=Outcome))
    steps: ByPreset[int] = ByPreset(partial(check_count, least=2))
    part: ByPreset[float] = ByPreset(_share)
    most: ByPreset[float] = ByPreset(_share)
    samples: ByPreset[int] = ByPreset(check_count)
    baseline: ByPreset[Baseline] = ByPreset(check_baseline)
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def _check(self, x: Tensor) -> None:
        check_fits(self.baseline, x)

    def _values(self, case: Case) -> Tensor:
        without_first, without_last = self._mean_scores(case)
        return (without_last - without_first).mean(1).to(case.x.dtype)

    def both(self, model: Network, x: Samples, target: Target, attributions: Samples) -> tuple[Tensor, Tensor]:
        """Return (FFid+, FFid-), each (N, steps - 1): the lost scores without the most and the least important part."""
        case = self._case(model, x, target, attributions)
        with full_precision(case.x.device), torch.no_grad():
            before = score_at(case.graph, case.x, case.target, self.score, case.rows)[:, None]
        without_first, without_last = self._mean_scores(case)
        return (before - without_first).to(case.x.dtype), (before - without_last).to(case.x.dtype)

    def _mean_scores(self, case: Case) -> tuple[Tensor, Tensor]:
        """Return the mean scores (N, steps - 1) in float64 without a part of the first, and of the last variables."""
        x, variables = case.x, Variables.of(case.x, self.groups)
        baselines, ties = Stream(self.seed, "baseline"), Stream(self.seed, "ties")
        random, first, last = Stream(self.seed, "subsets"), [], []
        with full_precision(x.device), torch.no_grad():
            for piece in pieces(len(x), self.samples, case.rows):
                present, near = variables.cut(piece), x[piece]
                end = baseline_at(self.baseline, x, piece, baselines).flatten(1)[:, None]  # (n, 1, d)
                ranks = case.ranks(present, piece, ties)
                drawn = random.next(len(near), self.samples, present.most, device=x.device)
                first.append(self._means(case, piece, end, present, ranks, drawn))
                last.append(self._means(case, piece, end, present, present.counts[:, None] - 1 - ranks, drawn))
        return torch.cat(first), torch.cat(last)

    def _means(
        self, case: Case, piece: slice, end: Tensor, variables: Variables, ranks: Tensor, drawn: Tensor
    ) -> Tensor:
        """Return the mean score of each size (n, steps - 1); the numbers `drawn` (n, S, G) select missing variables."""
        start, means = case.x[piece].flatten(1)[:, None], []
        for i in range(1, self.steps):
            many = i * variables.counts // self.steps  # (1 or n,)
            chance = (self.most * variables.counts / many.clamp(min=1)).clamp(max=self.part)
            missing = (drawn < chance[:, None, None]) & (ranks < many[:, None])[:, None]
            some = missing.split(case.points_each(piece), dim=1)
            changed = (torch.where(variables.at_entries(gone), end, start) for gone in some)
            means.append(case.scores(piece, self.score, changed).mean(1))
        return torch.stack(means, dim=1)
