"""LIME (Ribeiro et al. 2016) and KernelSHAP (Lundberg and Lee 2017): linear models of the logit on masks of groups.

Captum's Lime and KernelShap need scikit-learn, take one sample at a time and draw anew for each. Here the draws depend
on the seed alone and serve every sample, and the fit is one linear system. The tests compare with Captum.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import comb
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.masked_samples import masked_scores
from proofmap.explainers.upsampling import spread
from proofmap.graph.joined_inputs import of_one_input
from proofmap.inputs.groups import Groups, grid, mask_of, pixels
from proofmap.inputs.several_inputs import GroupsOfInputs
from proofmap.settings import count, number

_GRID_CELLS = 7  # default cells along each side of an image


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Surrogate(Baseline):
    """A weight for each group, from f_c where the groups with z = 1 have the values of x and the others the baseline.

    groups: the variables that are covered together; by default 7 x 7 cells of an image, else each variable. A
    tuple for several inputs.
    """

    needs_gradients: ClassVar[bool] = False

    groups: GroupsOfInputs = None
    baseline: float = number(0.0)
    seed: int = count(0, least=0)
    samples: int = count(1000)

    @abstractmethod
    def _bits(self, groups: int) -> Tensor:
        """Return the bits z of all draws: (K, G) in float64."""

    @abstractmethod
    def _weights(self, bits: Tensor, scores: Tensor) -> Tensor:
        """Return a weight for each group (n, G) from the bits (K, G) and the scores (n, K), all in float64."""

    def _usual_groups(self, x: Tensor) -> Groups:
        small = x.ndim not in (3, 4) or min(x.shape[-2:]) < _GRID_CELLS
        return pixels() if small else grid(_GRID_CELLS)

    def _mask(self, x: Tensor) -> Tensor:
        _, groups = of_one_input(None, self.groups)
        mask = mask_of(self._usual_groups(x) if groups is None else groups, x)
        if int(mask.max()) >= self.samples:
            raise InputError(
                f"{type(self).__name__} got {int(mask.max()) + 1} groups and samples={self.samples}, expected at least "
                "as many samples as groups: take fewer groups, such as grid(7), or more samples",
                arguments=("groups=grid:7",),
            )
        return mask

    def _maps(self, task: BaselineBatch) -> Tensor:
        assert task.mask is not None
        if len(task.mask) == 1:
            return self._fit(task, task.mask)
        each = zip(task.x.split(1), task.target.split(1), task.mask.split(1), strict=True)  # own groups need own draws
        return torch.cat([self._fit(replace(task, x=x, target=target), mask) for x, target, mask in each])

    def _fit(self, task: BaselineBatch, mask: Tensor) -> Tensor:
        bits = self._bits(int(mask.max()) + 1)

        def masks(part: slice) -> Tensor:
            return bits[part].to(task.x)[:, mask[0]]

        scores = masked_scores(task, len(bits), masks, self.baseline)
        return spread(self._weights(bits.to(scores), scores), mask).to(task.x.dtype)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LIME(Surrogate):
    """Weights of a ridge regression of f_c on the bits, near x (Ribeiro et al. 2016), with the authors' settings.

    Each group is kept with probability 1/2; the first draw is x itself. A draw has the weight sqrt(exp(-d² / width²)),
    with its cosine distance d to x, 1 - sqrt(|z| / G). ridge: the penalty of the weights, not of the intercept.
    """

    width: float = number(0.25, "a finite number above 0", lambda width: width > 0)
    ridge: float = number(1.0, "a finite number of at least 0", lambda ridge: ridge >= 0)

    def _bits(self, groups: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        bits = torch.randint(2, (self.samples, groups), generator=generator).double()
        bits[0] = 1
        return bits

    def _weights(self, bits: Tensor, scores: Tensor) -> Tensor:
        counts = torch.exp(-(((1 - bits.mean(1).sqrt()) / self.width) ** 2) / 2)  # (K,)
        share = counts / counts.sum()
        z, y = bits - share @ bits, scores - (scores @ share)[:, None]
        penalty = self.ridge * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        return _least_norm_solution((z.T * counts) @ z + penalty, (y * counts) @ z)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KernelSHAP(Surrogate):
    """Shapley values of the groups, by weighted least squares (Lundberg and Lee 2017).

    The values sum to f_c(x) - f_c(baseline). A subset of k of G groups has the weight (G - 1) / (C(G, k) k (G - k)). If
    there are at most `samples` subsets, all are used and the values are exact. Otherwise subsets are drawn in
    proportion to their weights, each with its complement. 2048 samples are the authors' default.
    """

    samples: int = count(2048)

    def _bits(self, groups: int) -> Tensor:
        """Return all groups, no groups, and then the subsets."""
        ends = torch.tensor([[1.0], [0.0]], dtype=torch.float64).expand(2, groups)
        return torch.cat([ends, _all_subsets(groups) if self._exact(groups) else self._drawn(groups)])

    def _exact(self, groups: int) -> bool:
        return groups < 64 and (1 << groups) - 2 <= self.samples

    def _drawn(self, groups: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        sizes = torch.arange(1, groups, dtype=torch.float64)
        pairs = (self.samples + 1) // 2
        size = 1 + torch.multinomial(1 / (sizes * (groups - sizes)), pairs, replacement=True, generator=generator)
        place = torch.rand(pairs, groups, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
        bits = (place < size[:, None]).double()
        return torch.stack([bits, 1 - bits], 1).flatten(0, 1)[: self.samples]

    def _weights(self, bits: Tensor, scores: Tensor) -> Tensor:
        groups, size = bits.shape[1], bits[2:].sum(1)
        change = scores[:, :1] - scores[:, 1:2]  # (n, 1)
        counts = torch.ones_like(size)
        if self._exact(groups):
            weight = [0.0, *((groups - 1) / (comb(groups, k) * k * (groups - k)) for k in range(1, groups))]
            counts = torch.tensor(weight, dtype=size.dtype, device=size.device)[size.long()]
        last = bits[2:, -1:]
        z, y = bits[2:, :-1] - last, scores[:, 2:] - scores[:, 1:2] - change * last.T
        weights = _least_norm_solution((z.T * counts) @ z, (y * counts) @ z)
        return torch.cat([weights, change - weights.sum(1, keepdim=True)], 1)


def _all_subsets(groups: int) -> Tensor:
    """Return the bits of every subset except none and all: (2^G - 2, G)."""
    number = torch.arange(1, 2**groups - 1)
    return (number[:, None] >> torch.arange(groups) & 1).double()


def _least_norm_solution(matrix: Tensor, right: Tensor) -> Tensor:
    """Return the smallest least-squares solution w of matrix w = r, for each row r (n, G) and a symmetric matrix."""
    inverse: Tensor = torch.linalg.pinv(matrix, hermitian=True)
    return right @ inverse
