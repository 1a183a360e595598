"""Baselines: published attribution methods behind one call, with the settings of their papers."""

from proofmap.explainers.baselines.baseline import Baseline
from proofmap.explainers.baselines.deeplift import DeepLIFT
from proofmap.explainers.baselines.expected_gradients import ExpectedGradients
from proofmap.explainers.baselines.first_order import FirstOrder
from proofmap.explainers.baselines.global_sensitivity import HSIC, Sobol
from proofmap.explainers.baselines.grad_cam import GradCAM, GradCAMPlusPlus
from proofmap.explainers.baselines.gradients import GradientInput, IntegratedGradients, Saliency
from proofmap.explainers.baselines.guided_backprop import GuidedBackprop
from proofmap.explainers.baselines.lrp import LRP
from proofmap.explainers.baselines.noisy_gradients import SmoothGrad, VarGrad
from proofmap.explainers.baselines.occlusion import Occlusion
from proofmap.explainers.baselines.rise import RISE
from proofmap.explainers.baselines.surrogate import LIME, KernelSHAP

__all__ = [
    "HSIC", "LIME", "LRP", "RISE", "Baseline", "DeepLIFT", "ExpectedGradients", "FirstOrder", "GradCAM",
    "GradCAMPlusPlus", "GradientInput", "GuidedBackprop", "IntegratedGradients", "KernelSHAP", "Occlusion",
    "Saliency", "SmoothGrad", "Sobol", "VarGrad",
]  # fmt: skip
