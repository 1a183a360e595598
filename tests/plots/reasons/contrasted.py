"""Contrastive sets that are written by hand."""

from typing import Any

import torch

from proofmap.explainers import Explanation
from proofmap.reasons.contrasts.contrast import Contrast
from tests.explainers.making import make


def contrasted(shape: tuple[int, ...] = (1, 4, 4), mask: torch.Tensor | None = None, **changes: Any) -> Explanation:
    """Return three samples with four groups: two sets (groups 1 and 3, then 0), none, and one that nothing changes."""
    if mask is None:
        mask = torch.arange(torch.Size(shape).numel()).reshape(1, *shape) % 4
    plain = make((3, *shape), groups=4, mask=mask, **changes)
    points = plain.x[[0, 0]].clone()
    points[0][(mask[0] == 1) | (mask[0] == 3)] += 0.25
    points[1][mask[0] == 0] -= 0.5
    contrast = Contrast(
        sets=torch.tensor([[False, True, False, True], [True, False, False, False]]),
        owner=torch.tensor([0, 0]),
        points=points,
        classes=torch.tensor([2, 1]),
        values=torch.tensor([0.5, 0.25], dtype=torch.float64),
        least=torch.tensor([1, 3, 5]),
        counted=torch.tensor([False, True, False]),
        limit=torch.zeros(3, dtype=torch.float64),
        seconds=torch.ones(3, dtype=torch.float64),
    )
    settings = {**plain.settings, "rigorous": True, **changes.get("settings", {})}
    return make((3, *shape), groups=4, mask=mask, contrast=contrast, **{**changes, "settings": settings})
