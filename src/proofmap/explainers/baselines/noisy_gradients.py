"""SmoothGrad and VarGrad: the mean and the variance of gradients at noisy inputs.

The noise depends on the seed alone and serves every sample: a map does not depend on other samples or the batch.
Captum's NoiseTunnel draws anew for each batch, and computes the variance as a difference in the precision of x. Only
its gradients are used here.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.gradients import gradient
from proofmap.settings import count, is_number


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoisyGradients(Baseline):
    """∇f_c(x + δ) at `samples` draws δ ~ N(0, σ²), with σ = sigma · (high - low).

    domain: the range (low, high) of the inputs; each is a number, one value per channel, or a tensor that broadcasts to
    a sample. The points are not clamped to it.
    """

    samples: int = count(100)
    sigma: float = 0.2
    domain: tuple[float | Tensor, float | Tensor] = (0.0, 1.0)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        super().__post_init__()
        width = self._width()
        if not is_number(self.sigma) or self.sigma <= 0 or not bool(((width > 0) & width.isfinite()).all()):
            raise InputError(
                f"got sigma={self.sigma!r} of the domain {self.domain}, expected a positive share of a finite range: "
                "give domain=(low, high)"
            )

    def _width(self) -> Tensor:
        return torch.as_tensor(self.domain[1]) - torch.as_tensor(self.domain[0])

    @abstractmethod
    def _from_moments(self, mean: Tensor, square: Tensor) -> Tensor:
        """Return the map from the means of the gradients and of their squares, both in float64."""

    def _maps(self, task: BaselineBatch) -> Tensor:
        noise = self._noise(task.x)
        mean, square = (torch.zeros_like(task.x, dtype=torch.float64) for _ in range(2))
        for part in noise.split(task.repeats):
            near = (task.x[:, None] + part).flatten(0, 1)  # (n · s, *shape)
            slopes = gradient(task, near, task.target.repeat_interleave(len(part)))
            slopes = slopes.unflatten(0, (len(task.x), len(part))).double()
            mean += slopes.sum(1) / self.samples
            square += slopes.square().sum(1) / self.samples
        return self._from_moments(mean, square).to(task.x.dtype)

    def _noise(self, x: Tensor) -> Tensor:
        """Draw noise (samples, *shape): the same numbers on every device and in every precision."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(self.samples, *x.shape[1:], generator=generator, dtype=torch.float64)
        width = self._width().to("cpu", torch.float64)
        if width.ndim == 1 and x.ndim > 2:  # one value a channel
            width = width.view(-1, *[1] * (x.ndim - 2))
        return (self.sigma * width * drawn).to(x.device, x.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class SmoothGrad(NoisyGradients):
    """|mean of ∇f_c(x + δ)| (Smilkov et al. 2017): absolute values, as in their figures."""

    def _from_moments(self, mean: Tensor, square: Tensor) -> Tensor:
        return mean.abs()


@dataclass(frozen=True, eq=False, repr=False)
class VarGrad(NoisyGradients):
    """The variance of ∇f_c(x + δ) (Seo et al. 2018; Hooker et al. 2018)."""

    def _from_moments(self, mean: Tensor, square: Tensor) -> Tensor:
        return (square - mean.square()).clamp(min=0)
