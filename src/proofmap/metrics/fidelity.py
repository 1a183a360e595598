"""µFidelity: does a subset's summed attribution say how far the score falls without it?

Bhatt et al. 2020, "Evaluating and aggregating feature-based model explanations".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target
from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.groups import Groups, Shape, pixels
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

__all__ = ["Cells", "FidelitySettings", "MuFidelity", "pearson", "spearman"]

Draw: TypeAlias = Literal["size", "each"]
Correlation: TypeAlias = Literal["pearson", "spearman"]

_FLAT = 1e-12  # a spread this small, relative to the values, is rounding: sums of equal numbers in another order


@dataclass(frozen=True)
class Cells:
    """A grid of n x n cells over an image, as Xplique lays it: by nearest neighbours, from the pixels' middles.

    Pixel (i, j) of (C, H, W) is in cell (floor((i + 1/2) n / H), floor((j + 1/2) n / W)).
    """

    n: int

    def __post_init__(self) -> None:
        """Refuse a grid without cells."""
        check_count("Cells", "n", self.n)

    def __call__(self, shape: Shape) -> Tensor:
        """Number the cells row by row; where an image has fewer pixels than cells, each pixel is one."""
        if len(shape) not in (2, 3):
            return pixels()(shape)
        row, column = ((2 * torch.arange(size) + 1) * min(self.n, size) // (2 * size) for size in shape[-2:])
        return (row[:, None] * min(self.n, shape[-1]) + column).expand(shape).contiguous()


@dataclass(frozen=True)
class FidelitySettings:
    """What µFidelity is measured with; see `MuFidelity`."""

    baseline: Baseline
    subset: float
    subsets: int
    draw: Draw
    correlation: Correlation
    score: Score
    groups: Any  # a grouping, or a mask


class MuFidelity(Metric[Tensor]):
    """Corr over random subsets u of ( Σ_{i in u} attribution_i , score(x) - score(x with u at the baseline) ).

    More is better, 1 at most. 0 where either side is the same for all subsets.

    baseline: a number, a tensor that broadcasts to x, `Uniform(low, high)` or `Darkest()`.
    subset: the share of the variables that is in u, or, as a whole number, how many are.
    subsets: how many are drawn for each sample.
    draw: "size", exactly so many; "each", every variable on its own with the probability `subset`.
    correlation: "pearson" or "spearman". score: "softmax" or "logit" of the target class.
    groups: the variables; pixels where a preset says nothing else.

    The presets give these; what is not None replaces theirs.

        paper    Uniform(), 0.2, 200 subsets by size, pearson, softmax (the paper does not say how many subsets)
        xplique  0, 0.2, 200 subsets by each, spearman, logit, cells of a 9 x 9 grid
        quantus  FaithfulnessCorrelation: Darkest(), 224 entries, 100 subsets by size, pearson, logit

    With draw="size" and variables of one size the values do not change under attributions -> a · attributions + b,
    a > 0. Quantus divides attributions by the largest first, which comes to the same.
    batch: points that go through the model together; by default some 16 MB of them.
    """

    name: ClassVar[str] = "mu-fidelity"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, FidelitySettings]] = {
        "paper": FidelitySettings(Uniform(), 0.2, 200, "size", "pearson", "softmax", pixels()),
        "xplique": FidelitySettings(0.0, 0.2, 200, "each", "spearman", "logit", Cells(9)),
        "quantus": FidelitySettings(Darkest(), 224, 100, "size", "pearson", "logit", Entries()),
    }

    def __init__(
        self,
        preset: str = "paper",
        *,
        baseline: Baseline | None = None,
        subset: float | None = None,
        subsets: int | None = None,
        draw: Draw | None = None,
        correlation: Correlation | None = None,
        score: Score | None = None,
        groups: Groups = None,
        seed: int = 0,
        batch: int | None = None,
    ) -> None:
        given = {
            "baseline": baseline,
            "subset": subset,
            "subsets": subsets,
            "draw": draw,
            "correlation": correlation,
            "score": score,
            "groups": groups,
        }
        self.chosen = preset_of(type(self), self.presets, preset, given)
        check_baseline("MuFidelity", self.chosen.baseline)
        check_count("MuFidelity", "subsets", self.chosen.subsets, 2)
        check_choice("MuFidelity", "draw", self.chosen.draw, get_args(Draw))
        check_choice("MuFidelity", "correlation", self.chosen.correlation, get_args(Correlation))
        check_choice("MuFidelity", "score", self.chosen.score, get_args(Score))
        check_groups("MuFidelity", self.chosen.groups)
        check_run("MuFidelity", seed, batch)
        _check_subset(self.chosen.subset, self.chosen.draw)
        self.preset = preset
        self.seed = seed
        self.batch = batch

    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The correlation at each sample: (N,)."""
        x = check_call(model, x)
        drop, total = self.pairs(model, x, target, attributions)
        correlate = pearson if self.chosen.correlation == "pearson" else spearman
        return correlate(total, drop).to(x.dtype)

    def pairs(
        self,
        model: nn.Module | Graph,
        x: Samples,
        target: Target,
        attributions: Samples,
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What is correlated: (the drop of the score, the summed attribution), each (N, subsets) in float64.

        chosen (N, subsets, variables) bool: subsets in place of random ones.
        """
        x = check_call(model, x)
        weights = check_attributions(attributions, x)
        check_broadcast(self.chosen.baseline, x)
        variables, rows = Variables.of(x, self.chosen.groups), rows_of(self.batch, x)
        subsets = self._check_chosen(chosen, len(x), variables)
        baselines, random = Stream(self.seed, "baseline"), Stream(self.seed, "subsets")
        x = x.detach()
        drops, totals = [], []
        with running(model, x) as function:
            classes = classes_of(target, logits_at(function, x, rows))
            before = score_at(function, x, classes, self.chosen.score, rows)
            for piece in pieces(len(x), subsets, rows):
                own, part = variables.cut(piece), x[piece]
                baseline = baseline_at(self.chosen.baseline, x, piece, baselines).flatten(1)[:, None]
                members = chosen[piece].to(x.device) if chosen is not None else self._draw(own, len(part), random)
                after = []
                for some in members.split(max(1, rows // len(part)), dim=1):
                    points = torch.where(own.at_entries(some), baseline, part.flatten(1)[:, None]).view(
                        -1, *x.shape[1:]
                    )
                    aims = classes[piece].repeat_interleave(some.shape[1])
                    after.append(score_at(function, points, aims, self.chosen.score, rows).view(len(part), -1))
                drops.append(before[piece, None] - torch.cat(after, dim=1))
                worth = own.sums(weights[piece])  # (n, G)
                totals.append((members.double() @ worth[:, :, None])[:, :, 0])
        return torch.cat(drops), torch.cat(totals)

    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""
        return recorded(self.preset, self.chosen, seed=self.seed)

    def _draw(self, variables: Variables, count: int, random: Stream) -> Tensor:
        """(n, subsets, G) bool."""
        keys = random.next(count, self.chosen.subsets, variables.most, device=variables.ids.device)
        absent = (variables.sizes == 0)[:, None]
        if bool(absent.any()):
            keys = keys.masked_fill(absent, 2.0)  # beyond all others
        if self.chosen.draw == "each":
            return keys < self.chosen.subset
        many = self._size(variables).expand(count)  # (n,)
        if len(variables.ids) == 1:
            return keys <= keys.kthvalue(int(many[0]), dim=2, keepdim=True).values
        last = keys.sort(dim=2).values.gather(2, (many - 1)[:, None, None].expand(-1, keys.shape[1], 1))
        return keys <= last

    def _size(self, variables: Variables) -> Tensor:
        """How many variables of each sample are in a subset: (1 or N,)."""
        counts = variables.counts
        if isinstance(self.chosen.subset, int):
            if self.chosen.subset > int(counts.min()):
                raise InputError(
                    f"MuFidelity got subset={self.chosen.subset}, and a sample has {int(counts.min())} variables: "
                    "take fewer, or a share such as 0.2"
                )
            return torch.full_like(counts, self.chosen.subset)
        return (counts * self.chosen.subset).round().long().clamp(min=1)

    def _check_chosen(self, chosen: Tensor | None, count: int, variables: Variables) -> int:
        """The number of subsets."""
        if chosen is None:
            self._size(variables)
            return self.chosen.subsets
        if chosen.dtype != torch.bool or chosen.ndim != 3 or (len(chosen), chosen.shape[2]) != (count, variables.most):
            raise InputError(
                f"the subsets are {chosen.dtype} of shape {tuple(chosen.shape)}, expected torch.bool of shape "
                f"({count}, subsets, {variables.most})"
            )
        return chosen.shape[1]


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """The linear correlation of each row of a and b (N, S): (N,); 0 where one of them is constant."""
    a, b = _unit(a), _unit(b)
    return (a * b).sum(1).clamp(-1, 1)


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """The correlation of the ranks, where equal values share the mean of their places: (N,)."""
    return pearson(_places(a), _places(b))


def _unit(values: Tensor) -> Tensor:
    """Rows of mean 0 and length 1; of zeros where all values are the same."""
    centred = values - values.mean(1, keepdim=True)
    length = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    flat = length <= _FLAT * torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return torch.where(flat, 0.0, centred / torch.where(flat, 1.0, length))


def _places(values: Tensor) -> Tensor:
    """(how many are below + how many are not above) / 2, by binary search in the sorted row."""
    rising = values.sort(dim=1).values
    values = values.contiguous()
    below = torch.searchsorted(rising, values, side="left")
    upto = torch.searchsorted(rising, values, side="right")
    return (below + upto).double() / 2


def _check_subset(subset: Any, draw: Draw) -> None:
    whole = isinstance(subset, int) and not isinstance(subset, bool)
    if (whole and subset >= 1 and draw == "size") or (isinstance(subset, float) and 0 < subset < 1):
        return
    raise InputError(
        f"MuFidelity got subset={subset!r} with draw={draw!r}, expected a share above 0 and below 1, or, where subsets "
        "are drawn by size, a whole number of variables"
    )
