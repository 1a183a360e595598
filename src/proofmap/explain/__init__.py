"""Explanations: what each group of variables is worth to the worst case, and how much of that is proven.

The module itself can be called, `pm.explain(model, x)`: see `choose.explain`.

>>> pm.explain(model, x, seconds=0.2).map.attributions.shape
torch.Size([2, 1, 28, 28])
"""

from __future__ import annotations

import sys
from types import ModuleType

from proofmap.explain.adapt import as_attributor
from proofmap.explain.attributor import Attributor
from proofmap.explain.baselines import BASELINES, FirstOrder
from proofmap.explain.blend import BlendEVA
from proofmap.explain.choose import Answer
from proofmap.explain.choose import explain as _explain
from proofmap.explain.empirical import EmpiricalEVA
from proofmap.explain.eva import EVA, TargetedEVA
from proofmap.explain.explainer import Explainer
from proofmap.explain.explanation import Explanation
from proofmap.explain.greedy import GreedyAO, GreedyAS
from proofmap.explain.hybrid import HybridEVA
from proofmap.explain.nested import NestedEVA
from proofmap.explain.noise import NoiseEVA
from proofmap.explain.origin import File, Origin, Source
from proofmap.explain.path import PathEVA
from proofmap.explain.probable import ProbableEVA
from proofmap.explain.quantus import explain_func
from proofmap.explain.smooth import SmoothEVA

__all__ = [
    "BASELINES",
    "EVA",
    "Answer",
    "Attributor",
    "BlendEVA",
    "EmpiricalEVA",
    "Explainer",
    "Explanation",
    "File",
    "FirstOrder",
    "GreedyAO",
    "GreedyAS",
    "HybridEVA",
    "NestedEVA",
    "NoiseEVA",
    "Origin",
    "PathEVA",
    "ProbableEVA",
    "SmoothEVA",
    "Source",
    "TargetedEVA",
    "as_attributor",
    "explain_func",
]


class _Called(ModuleType):
    """A module that explains when it is called."""

    __call__ = staticmethod(_explain)


sys.modules[__name__].__class__ = _Called
