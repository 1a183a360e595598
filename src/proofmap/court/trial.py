"""What is tried before the judges: decisions of one network, the radius of the ball, and the judges themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from proofmap.metrics import Metric

__all__ = ["Radius", "Trial"]

Radius: TypeAlias = float | Literal["auto"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A network at samples x (N, *shape), its classes (N,) there, and who judges the maps of these decisions.

    near, far: radii of the balls that methods look for adversaries in, within the domain; such a method is tried with
    both. groups: what they score, "pixels" or "grid:12". without: methods that are not called, and why.
    """

    name: str
    title: str
    network: nn.Module
    x: Tensor
    target: Tensor
    judges: tuple[Metric[Any], ...]
    domain: tuple[float, float]
    far: float
    near: Radius = "auto"
    groups: str = "pixels"
    without: Mapping[str, str] = field(default_factory=dict)
