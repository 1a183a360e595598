"""Expected gradients (Erion et al. 2021): integrated gradients averaged over random references."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.gradients import gradient
from proofmap.settings import count

ReferenceKind = Literal["noise", "blur"]

_BLUR_WIDTHS = (1 / 16, 1 / 4)  # widths of the Gaussian, as shares of an image's longer side


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExpectedGradients(Baseline):
    """The mean of (x - x0) ∇f_c(x0 + α (x - x0)) over references x0 and α in [0, 1] (Erion et al. 2021).

    references: "noise", uniform in the domain, entry by entry; "blur", x under a Gaussian with a width between 1/16 and
    1/4 of the image's longer side; or samples (M, *shape), such as training images as in the paper, drawn with
    replacement.

    samples: draws of x0 and α, one α in each of as many equal parts of [0, 1]; 200 is the authors' default (shap's
    GradientExplainer). The draws depend on the seed alone and serve every sample. domain: as in SmoothGrad.

    In the mean over all draws the map sums to f_c(x) - E f_c(x0).
    """

    samples: int = count(200)
    references: ReferenceKind | Tensor = "noise"
    domain: tuple[float | Tensor, float | Tensor] = (0.0, 1.0)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        super().__post_init__()
        given: Any = self.references
        if isinstance(given, Tensor):
            if given.ndim < 2 or not len(given) or not given.is_floating_point() or not bool(given.isfinite().all()):
                raise InputError(
                    f"got references {given.dtype} of shape {tuple(given.shape)}, expected finite samples (M, *shape)"
                )
        elif given not in get_args(ReferenceKind):
            raise InputError(f"got references={given!r:.60}, expected 'noise', 'blur', or samples (M, *shape)")
        low, high = map(torch.as_tensor, self.domain)
        if not bool(((low < high) & low.isfinite() & high.isfinite()).all()):
            raise InputError(f"got the domain {self.domain}, expected a finite range: give domain=(low, high)")

    def _maps(self, task: BaselineBatch) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        strata = torch.randperm(self.samples, generator=generator)
        shares = (strata + torch.rand(self.samples, generator=generator, dtype=torch.float64)) / self.samples
        draws = self._draw(task.x, generator)
        total = torch.zeros_like(task.x, dtype=torch.float64)
        for part, some in zip(shares.split(task.repeats), draws.split(task.repeats), strict=True):
            away = task.x[:, None] - self._references(task.x, some)  # (n, s, *shape)
            left = (1 - part).to(away).view(-1, *[1] * (away.ndim - 2))
            slopes = gradient(
                task, (task.x[:, None] - left * away).flatten(0, 1), task.target.repeat_interleave(len(part))
            )
            total += (away * slopes.view_as(away)).double().sum(1) / self.samples
        return total.to(task.x.dtype)

    def _draw(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the random numbers of the references, (samples, ...): the same for every device and precision."""
        if isinstance(self.references, Tensor):
            if self.references.shape[1:] != x.shape[1:]:
                raise InputError(
                    f"got references of shape {tuple(self.references.shape)} for samples {tuple(x.shape[1:])}, "
                    f"expected (M, {', '.join(map(str, x.shape[1:]))})"
                )
            return torch.randint(len(self.references), (self.samples,), generator=generator)
        if self.references == "blur":
            if x.ndim not in (3, 4):
                raise InputError(
                    f"got references='blur' for samples {tuple(x.shape[1:])}, expected images (C, H, W) or (H, W): "
                    "take 'noise' or samples for them"
                )
            least, most = (share * max(x.shape[-2:]) for share in _BLUR_WIDTHS)
            return least + (most - least) * torch.rand(self.samples, generator=generator, dtype=torch.float64)
        drawn = torch.rand(self.samples, *x.shape[1:], generator=generator, dtype=torch.float64)
        low, high = (_per_channel(torch.as_tensor(end).to("cpu", torch.float64), x.ndim - 1) for end in self.domain)
        return low + (high - low) * drawn

    def _references(self, x: Tensor, draws: Tensor) -> Tensor:
        """Return x0 for some draws: (1 or n, s, *shape)."""
        if isinstance(self.references, Tensor):
            return self.references[draws.to(self.references.device)].to(x)[None]
        if self.references == "blur":
            rows, columns = (_gaussian(side, draws).to(x) for side in x.shape[-2:])  # (s, side, side)
            return torch.einsum("sij,n...jk,slk->ns...il", rows, x, columns)
        return draws.to(x)[None]


def _per_channel(end: Tensor, rank: int) -> Tensor:
    """Reshape one value per channel so that it broadcasts to a sample of that rank."""
    return end.view(-1, *[1] * (rank - 1)) if end.ndim == 1 and rank > 1 else end


def _gaussian(side: int, widths: Tensor) -> Tensor:
    """Return the weights of a Gaussian mean along an axis, (s, side, side), normalised inside the image."""
    place = torch.arange(side, dtype=torch.float64)
    near = torch.exp(-((place[:, None] - place) ** 2) / (2 * widths[:, None, None] ** 2))
    return near / near.sum(2, keepdim=True)
