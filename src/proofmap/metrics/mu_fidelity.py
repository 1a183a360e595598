"""µFidelity: the correlation between the summed attribution of a subset and the drop of the score without it.

Bhatt et al. 2020, "Evaluating and aggregating feature-based model explanations".
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Network
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.groups import Groups, Shape, pixels
from proofmap.metrics.batched_logits import Score, pieces, score_at
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, table
from proofmap.metrics.removal.fill_values import Baseline, Darkest, Uniform, baseline_at, check_baseline, check_fits
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Entries, Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, count

Draw: TypeAlias = Literal["size", "each"]
Correlation: TypeAlias = Literal["pearson", "spearman"]

_RELATIVE_ROUNDING_SPREAD = 1e-12  # rows with a smaller relative spread are constant up to rounding errors


@dataclass(frozen=True)
class Cells:
    """A grid of n x n cells over an image, as in Xplique: nearest neighbours of the centres of pixels.

    Pixel (i, j) of (C, H, W) is in cell (floor((i + 1/2) n / H), floor((j + 1/2) n / W)).

    >>> pm.metrics.MuFidelity(groups=pm.metrics.Cells(7))(model, x, None, maps).shape
    torch.Size([2])
    """

    n: int

    def __post_init__(self) -> None:
        """Refuse a grid without cells."""
        check_count("Cells got n", self.n)

    def __call__(self, shape: Shape) -> Tensor:
        """Number the cells row by row. In an image with fewer pixels than cells, each pixel is a cell."""
        if len(shape) not in (2, 3):
            return pixels()(shape)
        row, column = ((2 * torch.arange(size) + 1) * min(self.n, size) // (2 * size) for size in shape[-2:])
        return (row[:, None] * min(self.n, shape[-1]) + column).expand(shape).contiguous()


@dataclass(frozen=True, eq=False)
class MuFidelity(Metric[Maps]):
    """Corr over random subsets u of ( Σ_{i in u} attribution_i , score(x) - score(x with u at the baseline) ).

    Higher is better, at most 1. The value is 0 if either side is constant over all subsets.

    baseline: a number, a tensor that broadcasts to x, `Uniform(low, high)`, `Mean()`, `Blur()` or `Darkest()`.
    subset: the size of u, as a share of the variables or as a whole number.
    subsets: the number of subsets per sample.
    draw: "size": all subsets have exactly this size; "each": each variable is in u with the probability `subset`.
    correlation: "pearson" or "spearman". score: "softmax" or "logit" of the target class.
    groups: the variables; pixels if the preset has no others.

    The presets set these settings. Values other than None override them.

        paper    Uniform(), 0.2, 200 subsets by "size", pearson, softmax (the number of subsets is ours)
        xplique  0, 0.2, 200 subsets by "each", spearman, logit, cells of a 9 x 9 grid
        quantus  FaithfulnessCorrelation: Darkest(), 224 entries, 100 subsets by "size", pearson, logit

    With draw="size" and variables of equal size, the values do not change under attributions -> a · attributions + b,
    a > 0. So the normalisation of Quantus, which divides attributions by the largest, has no effect.
    batch: points in one batch of the model; by default about 16 MB.

    >>> pm.metrics.MuFidelity()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "mu-fidelity"
    label: ClassVar[str] = "µFidelity"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = table(
        *("baseline", "subset", "subsets", "draw", "correlation", "score", "groups"),
        paper=(Uniform(), 0.2, 200, "size", "pearson", "softmax", pixels()),
        xplique=(0.0, 0.2, 200, "each", "spearman", "logit", Cells(9)),
        quantus=(Darkest(), 224, 100, "size", "pearson", "logit", Entries()),
    )

    preset: str = "paper"
    _: KW_ONLY
    baseline: ByPreset[Baseline] = ByPreset(check_baseline)
    subset: ByPreset[float] = ByPreset()
    subsets: ByPreset[int] = ByPreset(partial(check_count, least=2))
    draw: ByPreset[Draw] = ByPreset(partial(check_choice, words=Draw))
    correlation: ByPreset[Correlation] = ByPreset(partial(check_choice, words=Correlation))
    score: ByPreset[Score] = ByPreset(partial(check_choice, words=Score))
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        super().__post_init__()
        _check_subset(self.subset, self.draw)

    def _check(self, x: Tensor) -> None:
        check_fits(self.baseline, x)

    def _values(self, case: Case) -> Tensor:
        drop, total = self._pairs(case)
        correlate = pearson if self.correlation == "pearson" else spearman
        return correlate(total, drop).to(case.x.dtype)

    def pairs(
        self, model: Network, x: Samples, target: Target, attributions: Samples, chosen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the correlated values (drop of the score, summed attribution), each (N, subsets) in float64.

        chosen (N, subsets, variables) bool: given subsets instead of random ones.
        """
        return self._pairs(self._case(model, x, target, attributions), chosen)

    def _pairs(self, case: Case, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, variables = case.x, Variables.of(case.x, self.groups)
        subsets = self._count(chosen, len(x), variables)
        baselines, random = Stream(self.seed, "baseline"), Stream(self.seed, "subsets")
        drops, totals = [], []
        with full_precision(x.device), torch.no_grad():
            before = score_at(case.graph, x, case.target, self.score, case.rows)
            for piece in pieces(len(x), subsets, case.rows):
                present, start = variables.cut(piece), x[piece].flatten(1)[:, None]
                baseline = baseline_at(self.baseline, x, piece, baselines).flatten(1)[:, None]
                members = chosen[piece].to(x.device) if chosen is not None else self._draw(present, len(start), random)
                some = members.split(case.points_each(piece), dim=1)
                changed = (torch.where(present.at_entries(subset), baseline, start) for subset in some)
                drops.append(before[piece, None] - case.scores(piece, self.score, changed))
                sums = present.sums(case.subject[piece])  # (n, G)
                totals.append((members.double() @ sums[:, :, None])[:, :, 0])
        return torch.cat(drops), torch.cat(totals)

    def _draw(self, variables: Variables, count: int, random: Stream) -> Tensor:
        """Draw random subsets: (n, subsets, G) bool."""
        keys = random.next(count, self.subsets, variables.most, device=variables.ids.device)
        absent = (variables.sizes == 0)[:, None]
        if bool(absent.any()):
            keys = keys.masked_fill(absent, 2.0)  # larger than all random keys, so absent variables are not drawn
        if self.draw == "each":
            return keys < self.subset
        many = self._size(variables).expand(count)  # (n,)
        if len(variables.ids) == 1:
            return keys <= keys.kthvalue(int(many[0]), dim=2, keepdim=True).values
        last = keys.sort(dim=2).values.gather(2, (many - 1)[:, None, None].expand(-1, keys.shape[1], 1))
        return keys <= last

    def _size(self, variables: Variables) -> Tensor:
        """Return the number of variables in a subset of each sample: (1 or N,)."""
        counts = variables.counts
        if isinstance(self.subset, int):
            if self.subset > int(counts.min()):
                raise InputError(
                    f"MuFidelity got subset={self.subset}, and a sample has {int(counts.min())} variables: "
                    "take fewer, or a share such as 0.2"
                )
            return torch.full_like(counts, self.subset)
        return (counts * self.subset).round().long().clamp(min=1)

    def _count(self, chosen: Tensor | None, count: int, variables: Variables) -> int:
        """Return the number of subsets; refuse given subsets of a wrong shape."""
        if chosen is None:
            self._size(variables)
            return self.subsets
        if chosen.dtype != torch.bool or chosen.ndim != 3 or (len(chosen), chosen.shape[2]) != (count, variables.most):
            raise InputError(
                f"the subsets are {chosen.dtype} of shape {tuple(chosen.shape)}, expected torch.bool of shape "
                f"({count}, subsets, {variables.most})"
            )
        return chosen.shape[1]


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Return Pearson's correlation of each row of a and b (N, S): (N,); 0 if one of them is constant."""
    a, b = _unit(a), _unit(b)
    return (a * b).sum(1).clamp(-1, 1)


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Return Spearman's rank correlation (N,). Equal values share the mean of their ranks."""
    return pearson(_places(a), _places(b))


def _unit(values: Tensor) -> Tensor:
    """Scale rows to mean 0 and norm 1. Constant rows become zero."""
    centred = values - values.mean(1, keepdim=True)
    length = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    flat = length <= _RELATIVE_ROUNDING_SPREAD * torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return torch.where(flat, 0.0, centred / torch.where(flat, 1.0, length))


def _places(values: Tensor) -> Tensor:
    """Return (number of smaller values + number of smaller or equal values) / 2, by binary search in the sorted row."""
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
