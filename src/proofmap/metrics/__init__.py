"""Metrics: how good explanations are, one number a sample, each with its settings on record.

    pm.metrics.Deletion()(model, x, target, attributions)    # (N,)
    pm.metrics.METRICS["deletion"]                           # by name

Adding a metric is one file and one line in the table of `methods.py`.

>>> sorted(pm.metrics.METRICS)[:3]
['adversarial-deletion', 'deletion', 'deletion-blur']
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from proofmap.methods import JUDGES
from proofmap.metrics.adversarial import AdversarialDeletion
from proofmap.metrics.baselines import Blur, Darkest, Mean, Uniform
from proofmap.metrics.curves import Deletion, Insertion
from proofmap.metrics.fidelity import Cells, MuFidelity
from proofmap.metrics.fills import DeletionBlur, DeletionMean, InsertionBlur, InsertionMean
from proofmap.metrics.metric import Metric
from proofmap.metrics.random_removal import FFidelity
from proofmap.metrics.randomisation import Randomisation
from proofmap.metrics.road import ROAD
from proofmap.metrics.robustness import Distances, RobustnessSr
from proofmap.metrics.sensitivity import MaxSensitivity
from proofmap.metrics.sparseness import Sparseness
from proofmap.metrics.stability import Stability
from proofmap.metrics.tightness import Tightness
from proofmap.metrics.variables import Entries

__all__ = [
    "METRICS",
    "ROAD",
    "AdversarialDeletion",
    "Blur",
    "Cells",
    "Darkest",
    "Deletion",
    "DeletionBlur",
    "DeletionMean",
    "Distances",
    "Entries",
    "FFidelity",
    "Insertion",
    "InsertionBlur",
    "InsertionMean",
    "MaxSensitivity",
    "Mean",
    "Metric",
    "MuFidelity",
    "Randomisation",
    "RobustnessSr",
    "Sparseness",
    "Stability",
    "Tightness",
    "Uniform",
]

METRICS: Mapping[str, type[Metric[Any]]] = MappingProxyType({name: judge.kind for name, judge in JUDGES.items()})
