"""What EVA is compared with: other methods behind the same call, with the settings of the EVA paper's appendix."""

from __future__ import annotations

from proofmap.explain.baselines.baseline import Baseline
from proofmap.explain.baselines.cam import GradCAM, GradCAMPlusPlus
from proofmap.explain.baselines.first_order import FirstOrder
from proofmap.explain.baselines.gradients import GradientInput, IntegratedGradients, Saliency
from proofmap.explain.baselines.noise import SmoothGrad, VarGrad
from proofmap.explain.baselines.occlusion import Occlusion
from proofmap.explain.baselines.rise import RISE
from proofmap.explain.baselines.table import BASELINES, make

__all__ = [
    "BASELINES",
    "RISE",
    "Baseline",
    "FirstOrder",
    "GradCAM",
    "GradCAMPlusPlus",
    "GradientInput",
    "IntegratedGradients",
    "Occlusion",
    "Saliency",
    "SmoothGrad",
    "VarGrad",
    "make",
]
