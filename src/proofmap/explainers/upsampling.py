"""Maps from the scores of groups: each variable gets its group's score, or a smooth interpolation between groups.

Proofs are about groups. A smooth map is only another way to draw their scores.
"""

import torch
from torch import Tensor

_GAUSSIAN_WIDTH = 1.0  # standard deviation of the Gaussian, in groups


def spread(scores: Tensor, mask: Tensor, smooth: bool = False) -> Tensor:
    """Return a map (N, *shape) of scores (N, G) with a mask (1, *shape) or (N, *shape).

    smooth: for images (..., H, W), each pixel gets a Gaussian mean of the scores around it. The standard deviation
    along an axis is the side of a group. The weights are normalised inside the image.
    """
    each = mask.expand(len(scores), *mask.shape[1:])
    plain = scores.gather(1, each.flatten(1)).view(each.shape)
    if not smooth:
        return plain
    rows, columns = (_weights(mask.movedim(axis, -1)).to(scores.device) for axis in (-2, -1))
    return (rows @ plain.double() @ columns.mT).to(scores.dtype)


def _weights(lines: Tensor) -> Tensor:
    """Return (n, n) float64 weights between the positions of lines (..., n) of groups; every row sums to 1."""
    length = lines.shape[-1]
    groups = 1 + (lines[..., 1:] != lines[..., :-1]).sum(-1).double().mean().item()  # along a line
    place = torch.arange(length, dtype=torch.float64)
    far = (place[:, None] - place) / (_GAUSSIAN_WIDTH * length / groups)
    weights = torch.exp(-far.square() / 2)
    return weights / weights.sum(1, keepdim=True)
