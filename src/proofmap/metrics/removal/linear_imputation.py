"""Linear imputation: what is missing of an image, from what is left.

Rong et al. 2022, "A consistent and efficient evaluation strategy for attribution methods".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d

__all__ = ["imputed"]

_STRAIGHT, _DIAGONAL = 1 / 6, 1 / 12  # the weights of a pixel's neighbours
_CLOSE = {torch.float32: 1e-6, torch.float64: 1e-10}  # a residual this small, relative to what is known, is none


def imputed(images: Tensor, missing: Tensor) -> Tensor:
    """Images (n, C, H, W) with each missing entry (bool, like them) at the weighted mean of its neighbours:

        Σ_q w_pq (y_p - y_q) = 0 for every missing p over its up to 8 neighbours q in the channel, y_q = x_q where q is
        not missing, w = 1/6 for those that share a side and 1/12 for those that share a corner.

    The system is symmetric and positive definite where something of a channel is left, and is solved by conjugate
    gradients, each channel until its own residual is small. A channel of which nothing is left gets the mean of what is
    left of the image.
    """
    x, gone = (tensor.reshape(-1, 1, *images.shape[2:]) for tensor in (images, missing))  # (n C, 1, H, W)
    corner, side = _DIAGONAL, _STRAIGHT
    kernel = x.new_tensor([[corner, side, corner], [side, 0, side], [corner, side, corner]])[None, None]
    around = conv2d(torch.ones_like(x[:1]), kernel, padding=1)  # fewer neighbours at the edge

    def applied(y: Tensor) -> Tensor:
        return (around * y - conv2d(y, kernel, padding=1)) * gone

    right = conv2d(x * ~gone, kernel, padding=1) * gone
    y = _start(images, missing).reshape_as(x) * gone
    residual = right - applied(y)
    least = _CLOSE[x.dtype] ** 2 * (_dot(right, right) + _dot(y, y))
    direction, size = residual, _dot(residual, residual)
    for _ in range(x[0].numel()):  # in exact arithmetic no more are needed
        if not bool((size > least).any()):
            break
        ahead = applied(direction)
        length = torch.where(size > least, size / _dot(direction, ahead), 0.0)  # 0: what is done stays as it is
        y, residual = y + length * direction, residual - length * ahead
        now = torch.where(size > least, _dot(residual, residual), size)
        direction, size = residual + torch.where(size > least, now / size, 0.0) * direction, now
    return torch.where(gone, y, x).view(images.shape)


def _start(images: Tensor, missing: Tensor) -> Tensor:
    """The mean of what is left of each channel, else of the image: (n, C, 1, 1) spread over it."""
    left = (~missing).to(images.dtype)
    count, total = left.sum((2, 3), keepdim=True), (images * left).sum((2, 3), keepdim=True)
    whole = total.sum(1, keepdim=True) / count.sum(1, keepdim=True).clamp(min=1)
    return torch.where(count > 0, total / count.clamp(min=1), whole).expand_as(images)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Of each image: (n, 1, 1, 1)."""
    return (a * b).sum((1, 2, 3), keepdim=True)
