"""From the scores of groups to a map: each variable has its group's score, or passes smoothly to its neighbours'.

What is proven is proven of groups: a smooth map is another way to draw their scores, and changes none of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["spread"]

_WIDTH = 1.0  # of the Gaussian, in groups


def spread(scores: Tensor, mask: Tensor, smooth: bool = False) -> Tensor:
    """A map of scores (N, G) by a mask (1, *shape) or (N, *shape): (N, *shape).

    smooth: of pictures (..., H, W), the mean of the scores around each pixel, weighted by a Gaussian whose standard
    deviation along an axis is the side of a group there, and which ends at the edges of the picture.
    """
    each = mask.expand(len(scores), *mask.shape[1:])
    plain = scores.gather(1, each.flatten(1)).view(each.shape)
    if not smooth:
        return plain
    rows, columns = (_weights(mask.movedim(axis, -1)).to(scores.device) for axis in (-2, -1))
    return (rows @ plain.double() @ columns.mT).to(scores.dtype)


def _weights(lines: Tensor) -> Tensor:
    """(n, n) float64: how each position of lines (..., n) of groups weighs the others; every row sums to 1."""
    length = lines.shape[-1]
    groups = 1 + (lines[..., 1:] != lines[..., :-1]).sum(-1).double().mean().item()  # along a line
    place = torch.arange(length, dtype=torch.float64)
    far = (place[:, None] - place) / (_WIDTH * length / groups)
    weights = torch.exp(-far.square() / 2)
    return weights / weights.sum(1, keepdim=True)
