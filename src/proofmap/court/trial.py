"""What is tried before the judges: decisions of one network, the radius of the ball, and the judges themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from proofmap.metrics import Metric

__all__ = ["Trial"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A network at samples x (N, *shape), its classes (N,) there, and who judges the maps of these decisions.

    eps: of the ball that methods look for adversaries in, within the domain. groups: what they score, "pixels" or
    "grid:12".
    """

    name: str
    title: str
    network: nn.Module
    x: Tensor
    target: Tensor
    judges: tuple[Metric[Any], ...]
    domain: tuple[float, float]
    eps: float
    groups: str = "pixels"
