"""Noisy linear imputation of missing pixels from their neighbours, by conjugate gradients.

Rong et al. 2022, "A consistent and efficient evaluation strategy for attribution methods".
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

_SIDE_WEIGHT, _CORNER_WEIGHT = 1 / 6, 1 / 12  # weights of the neighbours of a pixel
_RESIDUAL_TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}  # relative residual at which the iteration stops


def imputed(images: Tensor, missing: Tensor) -> Tensor:
    """Set each missing entry (bool, like images) of images (n, C, H, W) to the weighted mean of its neighbours:

        Σ_q w_pq (y_p - y_q) = 0 for every missing p and its up to 8 neighbours q in the channel, with y_q = x_q for
        known q, w = 1/6 for neighbours that share a side, and w = 1/12 for neighbours that share a corner.

    The system is symmetric, and positive definite if a channel has a known pixel. Conjugate gradients solve it for each
    channel until its residual is small. A channel without known pixels gets the mean of the known values of the image.
    """
    x, gone = (tensor.reshape(-1, 1, *images.shape[2:]) for tensor in (images, missing))  # (n C, 1, H, W)
    corner, side = _CORNER_WEIGHT, _SIDE_WEIGHT
    kernel = x.new_tensor([[corner, side, corner], [side, 0, side], [corner, side, corner]])[None, None]
    around = conv2d(torch.ones_like(x[:1]), kernel, padding=1)  # fewer neighbours at the edge

    def applied(y: Tensor) -> Tensor:
        return (around * y - conv2d(y, kernel, padding=1)) * gone

    right = conv2d(x * ~gone, kernel, padding=1) * gone
    y = _start(images, missing).reshape_as(x) * gone
    residual = right - applied(y)
    least = _RESIDUAL_TOLERANCE[x.dtype] ** 2 * (_dot(right, right) + _dot(y, y))
    direction, size = residual, _dot(residual, residual)
    for _ in range(x[0].numel()):  # enough iterations in exact arithmetic
        if not bool((size > least).any()):
            break
        ahead = applied(direction)
        length = torch.where(size > least, size / _dot(direction, ahead), 0.0)  # 0: finished channels do not change
        y, residual = y + length * direction, residual - length * ahead
        now = torch.where(size > least, _dot(residual, residual), size)
        direction, size = residual + torch.where(size > least, now / size, 0.0) * direction, now
    return torch.where(gone, y, x).view(images.shape)


def _start(images: Tensor, missing: Tensor) -> Tensor:
    """Return the mean of the known values of each channel, or of the image, expanded to the shape of images."""
    left = (~missing).to(images.dtype)
    count, total = left.sum((2, 3), keepdim=True), (images * left).sum((2, 3), keepdim=True)
    whole = total.sum(1, keepdim=True) / count.sum(1, keepdim=True).clamp(min=1)
    return torch.where(count > 0, total / count.clamp(min=1), whole).expand_as(images)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product of each image: (n, 1, 1, 1)."""
    return (a * b).sum((1, 2, 3), keepdim=True)
