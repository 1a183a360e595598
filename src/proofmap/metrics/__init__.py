"""Metrics of explanations: each returns one number per sample and records its settings.

    pm.metrics.Deletion()(model, x, target, attributions)    # (N,)
    pm.metrics.METRICS["deletion"]                           # by name

A new metric is one file and one line in the table of `registry.py`.

>>> "deletion" in pm.metrics.METRICS
True
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from proofmap.metrics.function_metric import FunctionMetric
from proofmap.metrics.max_sensitivity import MaxSensitivity
from proofmap.metrics.metric import Metric
from proofmap.metrics.mu_fidelity import Cells, MuFidelity
from proofmap.metrics.randomisation import Randomisation
from proofmap.metrics.reason_metrics import ContrastProven, ContrastSize, ReasonSeconds, ReasonSize, ReasonUndecided
from proofmap.metrics.removal.adversarial_deletion import AdversarialDeletion
from proofmap.metrics.removal.deletion_fills import DeletionBlur, DeletionMean, InsertionBlur, InsertionMean
from proofmap.metrics.removal.deletion_insertion import Deletion, Insertion
from proofmap.metrics.removal.f_fidelity import FFidelity
from proofmap.metrics.removal.fill_values import Blur, Darkest, Mean, Uniform
from proofmap.metrics.removal.road import ROAD
from proofmap.metrics.robustness_sr import Distances, RobustnessSr
from proofmap.metrics.sparseness import Sparseness
from proofmap.metrics.stability import Stability
from proofmap.metrics.sufficient_size import SufficientSize
from proofmap.metrics.tightness import Tightness
from proofmap.metrics.variables import Entries
from proofmap.registry import METRIC_ENTRIES

__all__ = [
    "METRICS", "ROAD", "AdversarialDeletion", "Blur", "Cells", "ContrastProven", "ContrastSize", "Darkest", "Deletion",
    "DeletionBlur", "DeletionMean", "Distances", "Entries", "FFidelity", "FunctionMetric", "Insertion",
    "InsertionBlur", "InsertionMean", "MaxSensitivity", "Mean", "Metric", "MuFidelity", "Randomisation",
    "ReasonSeconds", "ReasonSize", "ReasonUndecided", "RobustnessSr", "Sparseness", "Stability", "SufficientSize",
    "Tightness", "Uniform",
]  # fmt: skip

METRICS: Mapping[str, type[Metric[Any]]] = MappingProxyType(
    {name: judge.kind for name, judge in METRIC_ENTRIES.items()}
)
