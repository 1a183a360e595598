"""Metrics of sufficient sets: the number of kept groups, the share of undecided groups, and the seconds."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.metrics.metric import Case, Metric, Presets, Subject, table
from proofmap.reasons.reason import Reason
from proofmap.settings import count


@dataclass(frozen=True, eq=False)
class _ReasonMetric(Metric[Reason]):
    """One number of each sufficient set, without settings."""

    higher_is_better: ClassVar[bool] = False
    subject: ClassVar[Subject] = "reason"
    presets: ClassVar[Presets] = table(paper=())

    preset: str = "paper"
    _: KW_ONLY
    batch: int | None = count(None)


@dataclass(frozen=True, eq=False)
class ReasonSize(_ReasonMetric):
    """The number of groups that a sufficient set keeps; lower is better. Compare sets of the same groups and ball.

    It is an upper bound of the smallest size. Called as ReasonSize()(model, x, target, reason) with the `reason` of an
    explanation by `pm.Sufficient`.

    >>> reason = pm.Sufficient(model, ball, groups=cells).explain(x).reason
    >>> pm.metrics.ReasonSize()(model, x, None, reason).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "reason-size"
    label: ClassVar[str] = "Set size"

    def _values(self, case: Case) -> Tensor:
        size: Tensor = case.subject.size
        return size.to(case.x)


@dataclass(frozen=True, eq=False)
class ReasonUndecided(_ReasonMetric):
    """The share of kept groups that are undecided, from 0 to 1; 0 if no group is kept. Lower is better.

    At 0 the set is subset-minimal: no kept group can be freed as well.

    >>> reason = pm.Sufficient(model, ball, groups=cells).explain(x).reason
    >>> pm.metrics.ReasonUndecided()(model, x, None, reason).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "reason-undecided"
    label: ClassVar[str] = "Undecided"

    def _values(self, case: Case) -> Tensor:
        share: Tensor = case.subject.undecided.sum(1) / case.subject.size.clamp(min=1)
        return share.to(case.x)


@dataclass(frozen=True, eq=False)
class ReasonSeconds(_ReasonMetric):
    """The seconds that the sufficient set of a sample took; lower is better. They depend on the machine.

    >>> reason = pm.Sufficient(model, ball, groups=cells).explain(x).reason
    >>> bool((pm.metrics.ReasonSeconds()(model, x, None, reason) > 0).all())
    True
    """

    name: ClassVar[str] = "reason-seconds"
    label: ClassVar[str] = "Set seconds"

    def _values(self, case: Case) -> Tensor:
        seconds: Tensor = case.subject.seconds
        return seconds.to(case.x.device, torch.promote_types(case.x.dtype, torch.float32))
