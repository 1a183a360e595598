"""Saliency, gradient x input and integrated gradients: gradients of the explained class's logit f_c, by Captum."""

from dataclasses import dataclass

from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.settings import count, number


@dataclass(frozen=True, eq=False, repr=False)
class Saliency(Baseline):
    """|∇f_c(x)| (Simonyan et al. 2013); for an image (C, H, W) the maximum over the channels of each pixel.

    This is the published map and that of the library Xplique. Captum's own keeps the channels apart.
    """

    def _maps(self, task: BaselineBatch) -> Tensor:
        return magnitude(gradient(task, task.x, task.target))


@dataclass(frozen=True, eq=False, repr=False)
class GradientInput(Baseline):
    """x ∇f_c(x), with its sign (Shrikumar et al. 2017).

    The EVA paper prints the gradient between norm bars; the method's authors and Xplique do not take a norm, nor do we.
    """

    def _maps(self, task: BaselineBatch) -> Tensor:
        return task.captum("InputXGradient", _leaf(task.x), task.target)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedGradients(Baseline):
    """(x - x0) ∫ ∇f_c(x0 + α (x - x0)) dα over [0, 1] (Sundararajan et al. 2017), by the trapezoid rule.

    steps: the number of points. baseline: every entry of x0. Captum gives each of the `steps` - 1 intervals the width
    1 / steps, so that its map of a linear model is too small by that factor; this is corrected here.
    """

    steps: int = count(100, least=2)  # points, both endpoints included
    baseline: float = number(0.0)

    def _maps(self, task: BaselineBatch) -> Tensor:
        way = {"baselines": self.baseline, "n_steps": self.steps, "method": "riemann_trapezoid"}
        at_once = max(task.points, len(task.x))
        maps = task.captum("IntegratedGradients", task.x, task.target, **way, internal_batch_size=at_once)
        return maps * (self.steps / (self.steps - 1))


def gradient(task: BaselineBatch, points: Tensor, target: Tensor) -> Tensor:
    """Return ∇f_c at the points (n, *shape), for classes (n,)."""
    return task.captum("Saliency", _leaf(points), target, abs=False)


def magnitude(slope: Tensor) -> Tensor:
    """Return |slope|; for images the maximum over the channels, with one channel."""
    size = slope.abs()
    return size.amax(1, keepdim=True) if size.ndim == 4 else size


def _leaf(points: Tensor) -> Tensor:
    """Return the same values with requires_grad, which Captum expects."""
    return points.detach().requires_grad_()
