"""A sufficient set that is written by hand."""

from typing import Any

import torch

from proofmap.explainers import Explanation
from proofmap.reasons.reason import Reason
from tests.explainers.making import make

STATES = torch.tensor([[0, 1, 2, 1], [0, 0, 0, 0]])  # per sample and group: 0 free, 1 necessary, 2 undecided


def reasoned(shape: tuple[int, ...] = (1, 4, 4), mask: torch.Tensor | None = None, **changes: Any) -> Explanation:
    """Return two samples with four groups; in sample 0, group 3 has the larger value, and 1 is within rounding."""
    if mask is None:
        mask = torch.arange(torch.Size(shape).numel()).reshape(1, *shape) % 4
    plain = make((2, *shape), groups=4, mask=mask, **changes)
    points = plain.x[[0, 0]].clone()
    points[1][mask[0] == 3] = 0.25
    reason = Reason(
        free=STATES == 0,
        necessary=STATES == 1,
        points=points,
        point_of=torch.tensor([[0, 1], [0, 3]]),
        values=torch.tensor([-0.1, 0.5], dtype=torch.float64),
        bound=torch.tensor([-1.0, -2.0], dtype=torch.float64),
        limit=torch.zeros(2, dtype=torch.float64),
        least=torch.zeros(2, dtype=torch.int64),
        seconds=torch.ones(2, dtype=torch.float64),
    )
    settings = {**plain.settings, "rigorous": True, **changes.get("settings", {})}
    return make((2, *shape), groups=4, mask=mask, reason=reason, **{**changes, "settings": settings})
