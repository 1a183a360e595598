"""SufficientSize: the size of the sufficient set that results if groups are freed in the order of a map."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.methods.sufficient import Sufficient
from proofmap.explainers.upsampling import group_means
from proofmap.inputs.array_types import Samples
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.metric import BallMetric, ByPreset, Case, Presets, table
from proofmap.metrics.validation import check_groups
from proofmap.settings import count, number


@dataclass(frozen=True, eq=False)
class SufficientSize(BallMetric[Samples]):
    """The number of groups that have to keep their values if groups with small scores are freed first; lower is better.

    A group is freed if it is proven that the class then still holds on the whole ball (`pm.Sufficient`). The score of a
    group is the mean attribution over its variables. A map that ranks the deciding groups first gets a small set. The
    result is an upper bound of the size for this order: groups that the time leaves undecided count as kept.

    ball: the ball of the proofs. seconds: the time for each sample. groups: the groups that are freed, by preset:

        paper  each pixel

    The decision must hold at each sample itself, so use the predicted classes.

    >>> pm.metrics.SufficientSize(ball, groups=cells)(model, x, None, maps)
    tensor([0., 0.])
    """

    name: ClassVar[str] = "sufficient-size"
    label: ClassVar[str] = "Sufficient size"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = table("groups", paper=(pixels(),))

    ball: Ball
    preset: str = "paper"
    _: KW_ONLY
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seconds: float = number(10.0, "a number above 0", lambda seconds: seconds > 0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        super().__post_init__()
        if not isinstance(self.ball, Ball) or isinstance(self.ball.eps, str):
            raise InputError(f"SufficientSize got ball={self.ball!r}, expected a pm.Ball with a number, such as 0.02")

    def _values(self, case: Case) -> Tensor:
        order = group_means(case.subject, self.groups)
        explainer = Sufficient(
            case.graph, self.ball, groups=self.groups, order=order, seconds=self.seconds, progress=False
        )
        with torch.enable_grad():
            reason = explainer.explain(case.x, case.target).reason
        assert reason is not None
        return reason.size.to(case.x)
