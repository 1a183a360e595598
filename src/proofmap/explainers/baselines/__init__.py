"""What EVA is compared with: other methods behind the same call, with the settings of its paper or of their own."""

from __future__ import annotations

from proofmap.explainers.baselines.attention_rollout import AttentionRollout
from proofmap.explainers.baselines.baseline import Baseline
from proofmap.explainers.baselines.deeplift import DeepLIFT
from proofmap.explainers.baselines.expected_gradients import ExpectedGradients
from proofmap.explainers.baselines.first_order import FirstOrder
from proofmap.explainers.baselines.global_sensitivity import HSIC, Sobol
from proofmap.explainers.baselines.grad_cam import GradCAM, GradCAMPlusPlus
from proofmap.explainers.baselines.gradients import GradientInput, IntegratedGradients, Saliency
from proofmap.explainers.baselines.guided_backprop import GuidedBackprop
from proofmap.explainers.baselines.lrp import LRP
from proofmap.explainers.baselines.make import BASELINES, make
from proofmap.explainers.baselines.noisy_gradients import SmoothGrad, VarGrad
from proofmap.explainers.baselines.occlusion import Occlusion
from proofmap.explainers.baselines.rise import RISE
from proofmap.explainers.baselines.surrogate import LIME, KernelSHAP

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
