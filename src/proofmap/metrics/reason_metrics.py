"""Metrics of sufficient sets (kept groups, undecided groups, seconds), and of contrastive sets (size, proven)."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.metrics.metric import Case, Metric, Presets, Subject, table
from proofmap.reasons.contrasts.contrast import Contrast
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


@dataclass(frozen=True, eq=False)
class _ContrastMetric(Metric[Contrast]):
    """One number of the contrastive sets of each sample, without settings."""

    subject: ClassVar[Subject] = "contrast"
    presets: ClassVar[Presets] = table(paper=())

    preset: str = "paper"
    _: KW_ONLY
    batch: int | None = count(None)


@dataclass(frozen=True, eq=False)
class ContrastSize(_ContrastMetric):
    """The number of groups of the smallest contrastive set found, 1 more than all groups without one; lower is better.

    It is an upper bound of the smallest size. Compare sets of the same groups and ball. Called as
    ContrastSize()(model, x, target, contrast) with the `contrast` of an explanation by `pm.Contrastive`.

    >>> contrast = pm.Contrastive(model, ball, groups=cells).explain(x).contrast
    >>> pm.metrics.ContrastSize()(model, x, None, contrast).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "contrast-size"
    label: ClassVar[str] = "Changed groups"
    higher_is_better: ClassVar[bool] = False

    def _values(self, case: Case) -> Tensor:
        contrast: Contrast = case.subject
        return torch.where(contrast.found, contrast.size, contrast.groups + 1).to(case.x)


@dataclass(frozen=True, eq=False)
class ContrastProven(_ContrastMetric):
    """1 if the contrastive set is proven to be smallest, or if it is proven that none exists, else 0; higher is better.

    Its mean over samples is the share of proven answers.

    >>> contrast = pm.Contrastive(model, ball, groups=cells).explain(x).contrast
    >>> pm.metrics.ContrastProven()(model, x, None, contrast)
    tensor([1., 1.])
    """

    name: ClassVar[str] = "contrast-proven"
    label: ClassVar[str] = "Proven smallest"
    higher_is_better: ClassVar[bool] = True

    def _values(self, case: Case) -> Tensor:
        contrast: Contrast = case.subject
        return (contrast.smallest | contrast.impossible).to(case.x)
