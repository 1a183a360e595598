"""A trial: a network, its inputs and classes, the radii of balls, and metrics that compare maps with the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from proofmap.metrics import Metric

Radius: TypeAlias = float | Literal["auto"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A network, samples x (N, *shape), the explained classes (N,), and the metrics of their maps.

    near, far: two radii of the ball within the domain; methods with a ball run with both. groups: the scored groups,
    "pixels" or "grid:12". without: methods that are left out, with the reasons.
    """

    name: str
    title: str
    network: nn.Module
    x: Tensor
    target: Tensor
    metrics: tuple[Metric[Any], ...]
    domain: tuple[float, float]
    far: float
    near: Radius = "auto"
    groups: str = "pixels"
    without: Mapping[str, str] = field(default_factory=dict)
