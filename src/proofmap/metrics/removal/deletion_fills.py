"""Deletion and Insertion with other baselines than noise: the same curves, judged again.

Noise is far from every image, a mean colour near its plain parts, a blurred image near all of it but the edges: a map
that leads with one of them alone has learnt the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from proofmap.metrics.metric import Presets
from proofmap.metrics.removal.deletion_insertion import Curve, Deletion, Insertion
from proofmap.metrics.removal.fill_values import Baseline, Blur, Mean

__all__ = ["DeletionBlur", "DeletionMean", "InsertionBlur", "InsertionMean"]


def _filled(curve: type[Curve], baseline: Baseline) -> Presets:
    """The paper's settings with another baseline."""
    return {"paper": {**curve.presets["paper"], "baseline": baseline}}


@dataclass(frozen=True, eq=False)
class DeletionMean(Deletion):
    """`Deletion` where deleted variables get the mean colour of their image; less is better.

    >>> pm.metrics.DeletionMean()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "deletion-mean"
    label: ClassVar[str] = "Deletion (mean)"
    presets: ClassVar[Presets] = _filled(Deletion, Mean())


@dataclass(frozen=True, eq=False)
class DeletionBlur(Deletion):
    """`Deletion` where deleted variables get what they have in the blurred image; less is better.

    >>> pm.metrics.DeletionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "deletion-blur"
    label: ClassVar[str] = "Deletion (blur)"
    presets: ClassVar[Presets] = _filled(Deletion, Blur())


@dataclass(frozen=True, eq=False)
class InsertionMean(Insertion):
    """`Insertion` into an image of its own mean colour; more is better.

    >>> pm.metrics.InsertionMean()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "insertion-mean"
    label: ClassVar[str] = "Insertion (mean)"
    presets: ClassVar[Presets] = _filled(Insertion, Mean())


@dataclass(frozen=True, eq=False)
class InsertionBlur(Insertion):
    """`Insertion` into the blurred image; more is better.

    >>> pm.metrics.InsertionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "insertion-blur"
    label: ClassVar[str] = "Insertion (blur)"
    presets: ClassVar[Presets] = _filled(Insertion, Blur())
