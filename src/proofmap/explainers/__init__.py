"""Explainers: importance scores of groups of variables over a ball, and proofs about the scores.

`pm.explain(model, x)` chooses an explainer and a ball.

>>> pm.explain(model, x, seconds=0.2).map.attributions.shape
torch.Size([2, 1, 28, 28])
"""

from proofmap.explainers.attribution.adapt import as_attributor
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.explainers.attribution.clamped_inputs import ClampedInputs
from proofmap.explainers.attribution.quantus import explain_func
from proofmap.explainers.automatic.answer import Answer
from proofmap.explainers.baselines import FirstOrder
from proofmap.explainers.explainer import Explainer
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.factory import BASELINES
from proofmap.explainers.methods.blend import BlendEVA
from proofmap.explainers.methods.contrastive import Contrastive
from proofmap.explainers.methods.empirical import EmpiricalEVA
from proofmap.explainers.methods.eva import EVA, TargetedEVA
from proofmap.explainers.methods.greedy import GreedyAO, GreedyAS
from proofmap.explainers.methods.hybrid import HybridEVA
from proofmap.explainers.methods.nested import NestedEVA
from proofmap.explainers.methods.noise import NoiseEVA
from proofmap.explainers.methods.path import PathEVA
from proofmap.explainers.methods.smooth import SmoothEVA
from proofmap.explainers.methods.sufficient import Sufficient
from proofmap.explainers.origin import File, Origin, Source
from proofmap.explainers.probable.probable_eva import ProbableEVA

__all__ = [
    "BASELINES",
    "EVA",
    "Answer",
    "Attributor",
    "BlendEVA",
    "ClampedInputs",
    "Contrastive",
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
    "Sufficient",
    "TargetedEVA",
    "as_attributor",
    "explain_func",
]
