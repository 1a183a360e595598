"""The order of groups that a map of any method gives: the mean attribution over the variables of each group."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.explainers.batching import sum_over_groups
from proofmap.inputs.groups import Groups, mask_of, pixels


def group_means(attributions: Tensor, groups: Groups = None) -> Tensor:
    """Return the mean attribution (N, G) over the variables of each group; 0 for a group that a sample lacks.

    Args:
        attributions: One number for each variable (N, *shape).
        groups: A grouping or a mask; by default each pixel.
    """
    mask = mask_of(pixels() if groups is None else groups, attributions)
    count = int(mask.max()) + 1
    mask = mask.expand(attributions.shape)
    values = attributions.double()
    return sum_over_groups(values, mask, count) / sum_over_groups(torch.ones_like(values), mask, count).clamp(min=1)
