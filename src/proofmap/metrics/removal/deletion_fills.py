"""Deletion and Insertion with a mean colour or a blurred image as the baseline.

Each baseline favours some maps: noise is far from all images, a mean colour is near plain regions, and a blurred image
differs only at edges. A map that is best with only one baseline fits the baseline, not the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from proofmap.metrics.metric import Presets
from proofmap.metrics.removal.deletion_insertion import Curve, Deletion, Insertion
from proofmap.metrics.removal.fill_values import Baseline, Blur, Mean


def _filled(curve: type[Curve], baseline: Baseline) -> Presets:
    """Return the paper's preset with another baseline."""
    return {"paper": {**curve.presets["paper"], "baseline": baseline}}


@dataclass(frozen=True, eq=False)
class DeletionMean(Deletion):
    """`Deletion` with the mean colour of the image as the baseline; lower is better.

    >>> pm.metrics.DeletionMean()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "deletion-mean"
    label: ClassVar[str] = "Deletion (mean)"
    presets: ClassVar[Presets] = _filled(Deletion, Mean())


@dataclass(frozen=True, eq=False)
class DeletionBlur(Deletion):
    """`Deletion` with the blurred image as the baseline; lower is better.

    >>> pm.metrics.DeletionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "deletion-blur"
    label: ClassVar[str] = "Deletion (blur)"
    presets: ClassVar[Presets] = _filled(Deletion, Blur())


@dataclass(frozen=True, eq=False)
class InsertionMean(Insertion):
    """`Insertion` into an image of the mean colour; higher is better.

    >>> pm.metrics.InsertionMean()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "insertion-mean"
    label: ClassVar[str] = "Insertion (mean)"
    presets: ClassVar[Presets] = _filled(Insertion, Mean())


@dataclass(frozen=True, eq=False)
class InsertionBlur(Insertion):
    """`Insertion` into the blurred image; higher is better.

    >>> pm.metrics.InsertionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "insertion-blur"
    label: ClassVar[str] = "Insertion (blur)"
    presets: ClassVar[Presets] = _filled(Insertion, Blur())
