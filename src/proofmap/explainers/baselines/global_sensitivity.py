"""Sobol indices (Fel et al. 2021) and HSIC (Novello et al. 2022): sensitivity of the logit to random masks of cells."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.quasirandom import SobolEngine

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.masked_samples import masked_scores
from proofmap.settings import count, number


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sensitivity(Baseline):
    """An index for each of `cells` x `cells` parts of an image, from logits at m x + (1 - m) baseline, m of a design.

    As in the authors' library, Xplique, masks are enlarged to the image, equal in all channels, and indices are
    enlarged by cubic interpolation. In a sample that is not an image each variable is a cell. Designs come from a
    scrambled Sobol sequence, the same for every sample and device.
    """

    needs_gradients: ClassVar[bool] = False
    enlarging: ClassVar[str]  # the interpolation that enlarges masks to the image

    cells: int = count(8)
    baseline: float = number(0.0)
    seed: int = count(0, least=0)

    @abstractmethod
    def _design(self, d: int) -> Tensor:
        """Return the random numbers of the masks of d cells, in float64."""

    @abstractmethod
    def _size(self, d: int) -> int:
        """Return the number of masks."""

    @abstractmethod
    def _rows(self, design: Tensor, part: slice) -> Tensor:
        """Return some of the masks: (m, d), between 0 and 1."""

    @abstractmethod
    def _indices(self, design: Tensor, scores: Tensor) -> Tensor:
        """Compute the indices (n, d) from the logits (n, masks), in float64."""

    def _maps(self, task: BaselineBatch) -> Tensor:
        x, sides = task.x, self._sides(tuple(task.x.shape[1:]))
        d = prod(sides)
        if 2 * d > SobolEngine.MAXDIM:
            raise InputError(
                f"{type(self).__name__} got samples of shape {tuple(x.shape[1:])}, {d} cells, expected at most "
                f"{SobolEngine.MAXDIM // 2}: choose fewer with cells=..., or another method, such as occlusion"
            )

        design = self._design(d)

        def masks(part: slice) -> Tensor:
            return self._enlarged(self._rows(design, part).to(x), sides, x, self.enlarging)

        scores = masked_scores(task, self._size(d), masks, self.baseline)
        indices = self._indices(design.to(scores), scores).to(x.dtype)
        return self._enlarged(indices, sides, x, "bicubic").expand_as(x)

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(min(self.cells, side) for side in shape[-2:]) if len(shape) in (2, 3) else shape

    def _enlarged(self, rows: Tensor, sides: tuple[int, ...], x: Tensor, mode: str) -> Tensor:
        """Enlarge (m, d) to (m, *shape), with one channel for all."""
        if x.ndim not in (3, 4):
            return rows.view(-1, *sides)
        how = {} if mode == "nearest" else {"align_corners": False}
        large = F.interpolate(rows.view(-1, 1, *sides), size=x.shape[-2:], mode=mode, **how)
        return large if x.ndim == 4 else large[:, 0]

    def _points(self, d: int, many: int) -> Tensor:
        """Return the first points of a scrambled Sobol sequence: (many, d) in [0, 1)."""
        return SobolEngine(d, scramble=True, seed=self.seed).draw(many, dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sobol(Sensitivity):
    """The total Sobol index: the share of the variance of f_c that remains if all other cells' masks are known.

    Fel et al. 2021, by Jansen's estimator from `designs` · (cells² + 1) logits:

        S_i = Σ_j (f(A_j) - f(C_ij))² / (2 N Var f(A)),    C_i = A with column i of B.

    Masks are uniform in [0, 1], enlarged bilinearly. A constant function has zeros.
    """

    enlarging: ClassVar[str] = "bilinear"

    designs: int = count(32, least=2)

    def _design(self, d: int) -> Tensor:
        return self._points(2 * d, self.designs)  # A and B side by side

    def _size(self, d: int) -> int:
        return self.designs * (d + 1)

    def _rows(self, design: Tensor, part: slice) -> Tensor:
        first, second = design.chunk(2, dim=1)  # (N, d)
        row = torch.arange(part.start, part.stop)
        at, column = row % self.designs, row // self.designs - 1  # -1: A itself
        swapped = column[:, None] == torch.arange(first.shape[1])
        return torch.where(swapped, second[at], first[at])

    def _indices(self, design: Tensor, scores: Tensor) -> Tensor:
        values = scores.view(len(scores), -1, self.designs)
        own, other = values[:, :1], values[:, 1:]
        variance = own.var(2)  # (n, 1)
        index = (own - other).square().mean(2) / (2 * variance)
        return torch.where(variance > 0, index, 0.0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HSIC(Sensitivity):
    """The Hilbert-Schmidt independence criterion between f_c and the mask of a cell (Novello et al. 2022),

        tr(K H L H) / (p - 1)²,    K_ab = 1/2 - (m_a - m_b)²,    L_ab = exp(-(y_a - y_b)² / 2 s²),    H = 1 - 1/p,

    over p = `masks` binary masks, enlarged without smoothing. s is the median of |y_a - y_b|. Xplique uses the median
    of y itself, which is not suitable for logits: a constant added to them would change the map.
    """

    enlarging: ClassVar[str] = "nearest"

    masks: int = count(500, least=2)

    def _design(self, d: int) -> Tensor:
        return (self._points(d, self.masks) >= 0.5).double()

    def _size(self, d: int) -> int:
        return self.masks

    def _rows(self, design: Tensor, part: slice) -> Tensor:
        return design[part]

    def _indices(self, design: Tensor, scores: Tensor) -> Tensor:
        centred = design - design.mean(0)  # (p, d): H K H = 2 c c'
        indices = [torch.einsum("ai,ab,bi->i", centred, _kernel(y), centred) for y in scores]
        return 2 * torch.stack(indices) / (self.masks - 1) ** 2


def _kernel(y: Tensor) -> Tensor:
    """Return L (p, p) of outputs (p,)."""
    apart = (y[:, None] - y).abs()
    first, second = torch.triu_indices(len(y), len(y), 1, device=y.device)
    width = apart[first, second].median()
    return torch.exp(-((apart / torch.where(width > 0, width, 1.0)) ** 2) / 2)
