"""Maps from the scores of groups, and the scores of groups from maps.

Each variable gets its group's score, or a smooth interpolation between groups. A group gets the mean of a map.

Proofs are about groups. A smooth map is only another way to draw their scores.
"""

import torch
from torch import Tensor

from proofmap.inputs.groups import Groups, mask_of, pixels

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


def group_means(attributions: Tensor, groups: Groups = None) -> Tensor:
    """Return the mean attribution (N, G) over the variables of each group; 0 for a group that a sample lacks.

    Args:
        attributions: One number for each variable (N, *shape).
        groups: A grouping or a mask; by default each pixel.
    """
    mask = mask_of(pixels() if groups is None else groups, attributions)
    count = int(mask.max()) + 1
    each, values = mask.expand(attributions.shape).flatten(1), attributions.double().flatten(1)
    sums, sizes = (
        values.new_zeros(len(values), count).scatter_add(1, each, one) for one in (values, torch.ones_like(values))
    )
    return sums / sizes.clamp(min=1)


def _weights(lines: Tensor) -> Tensor:
    """Return (n, n) float64 weights between the positions of lines (..., n) of groups; every row sums to 1."""
    length = lines.shape[-1]
    groups = 1 + (lines[..., 1:] != lines[..., :-1]).sum(-1).double().mean().item()  # along a line
    place = torch.arange(length, dtype=torch.float64)
    far = (place[:, None] - place) / (_GAUSSIAN_WIDTH * length / groups)
    weights = torch.exp(-far.square() / 2)
    return weights / weights.sum(1, keepdim=True)
