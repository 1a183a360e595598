"""Gradients of the explained class's logit f_c: at x, times x, and along the way to x. Computed by Captum."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, Task
from proofmap.settings import count, number

__all__ = ["GradientInput", "IntegratedGradients", "Saliency", "gradient", "magnitude"]


@dataclass(frozen=True, eq=False, repr=False)
class Saliency(Baseline):
    """|∇f_c(x)|; over an image (C, H, W) the largest of a pixel's channels, for all of them (Simonyan et al. 2013).

    That is the published map and what the paper's library, Xplique, computes; Captum's own keeps the channels apart.
    """

    def _maps(self, task: Task) -> Tensor:
        return magnitude(gradient(task, task.x, task.target))


@dataclass(frozen=True, eq=False, repr=False)
class GradientInput(Baseline):
    """x ∇f_c(x), with its sign (Shrikumar et al. 2017).

    The paper prints the gradient between norm bars; the method's authors and Xplique have none, and neither have we.
    """

    def _maps(self, task: Task) -> Tensor:
        return task.captum("InputXGradient", _leaf(task.x), task.target)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedGradients(Baseline):
    """(x - x0) ∫ ∇f_c(x0 + α (x - x0)) dα over [0, 1], by the trapezoid rule on `steps` points (Sundararajan et al.
    2017). baseline: every entry of x0.

    Captum gives `steps` points, and so `steps` - 1 intervals, the width 1 / steps: its map of a linear model misses
    w (x - x0) by that factor, which is put right here.
    """

    steps: int = count(100, least=2)  # the ends of the way
    baseline: float = number(0.0)

    def _maps(self, task: Task) -> Tensor:
        way = {"baselines": self.baseline, "n_steps": self.steps, "method": "riemann_trapezoid"}
        at_once = max(task.points, len(task.x))
        maps = task.captum("IntegratedGradients", task.x, task.target, **way, internal_batch_size=at_once)
        return maps * (self.steps / (self.steps - 1))


def gradient(task: Task, points: Tensor, target: Tensor) -> Tensor:
    """∇f_c at each of the points (n, *shape), for classes (n,)."""
    return task.captum("Saliency", _leaf(points), target, abs=False)


def magnitude(slope: Tensor) -> Tensor:
    """|slope|; of images the largest of a pixel's channels, with one channel for all."""
    size = slope.abs()
    return size.amax(1, keepdim=True) if size.ndim == 4 else size


def _leaf(points: Tensor) -> Tensor:
    """The same values, asking for a gradient: Captum warns where they do not."""
    return points.detach().requires_grad_()
