"""What EVA is compared with: other methods behind the same call, with the settings of its paper or of their own."""

from __future__ import annotations

from proofmap.explain.baselines.baseline import Baseline
from proofmap.explain.baselines.cam import GradCAM, GradCAMPlusPlus
from proofmap.explain.baselines.deeplift import DeepLIFT
from proofmap.explain.baselines.expected import ExpectedGradients
from proofmap.explain.baselines.first_order import FirstOrder
from proofmap.explain.baselines.gradients import GradientInput, IntegratedGradients, Saliency
from proofmap.explain.baselines.guided import GuidedBackprop
from proofmap.explain.baselines.lrp import LRP
from proofmap.explain.baselines.noise import SmoothGrad, VarGrad
from proofmap.explain.baselines.occlusion import Occlusion
from proofmap.explain.baselines.rise import RISE
from proofmap.explain.baselines.rollout import AttentionRollout
from proofmap.explain.baselines.sensitivity import HSIC, Sobol
from proofmap.explain.baselines.surrogate import LIME, KernelSHAP
from proofmap.explain.baselines.table import BASELINES, make

__all__ = [
    "BASELINES",
    "HSIC",
    "LIME",
    "LRP",
    "RISE",
    "AttentionRollout",
    "Baseline",
    "DeepLIFT",
    "ExpectedGradients",
    "FirstOrder",
    "GradCAM",
    "GradCAMPlusPlus",
    "GradientInput",
    "GuidedBackprop",
    "IntegratedGradients",
    "KernelSHAP",
    "Occlusion",
    "Saliency",
    "SmoothGrad",
    "Sobol",
    "VarGrad",
    "make",
]
