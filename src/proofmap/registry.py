"""The methods of explanation by name, and the metrics that judge them: two tables, from which all lists are derived.

They load nothing: who asks for help on the command line sees the names without waiting for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import MappingProxyType
from typing import Any

__all__ = ["COMPARED", "EXPLAINERS", "JUDGES", "METHODS", "READY", "Judge", "Method", "objective_of"]


@dataclass(frozen=True)
class Method:
    """Where the class of a method is, and what it takes; the tests hold it against the class itself."""

    path: str  # its module under proofmap.explainers, and its name there
    ball: bool = False  # it looks for adversaries in a ball, and scores its groups: an `Explainer`
    target: bool = False  # it needs a class to move to
    needs: tuple[str, ...] = ()  # settings without a default
    norm: float | None = None  # of the only balls that it takes

    @property
    def kind(self) -> type[Any]:
        """The class, an `Explainer` or a `Baseline`."""
        return _loaded("explainers", self.path)


@dataclass(frozen=True)
class Judge:
    """Where the class of a metric is, and whether it judges any method's maps; the tests hold it against the class."""

    path: str  # its module under proofmap.metrics, and its name there
    maps: bool = True  # or only overlaps that are proven

    @property
    def kind(self) -> type[Any]:
        """The class, a `Metric`."""
        return _loaded("metrics", self.path)


def _loaded(part: str, path: str) -> type[Any]:
    module, _, name = path.partition(":")
    kind: type[Any] = getattr(import_module(f"proofmap.{part}.{module}"), name)
    return kind


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "saliency": Method("baselines.gradients:Saliency"),
        "gradient-input": Method("baselines.gradients:GradientInput"),
        "integrated-gradients": Method("baselines.gradients:IntegratedGradients"),
        "expected-gradients": Method("baselines.expected_gradients:ExpectedGradients"),
        "deeplift": Method("baselines.deeplift:DeepLIFT"),
        "guided-backprop": Method("baselines.guided_backprop:GuidedBackprop"),
        "lrp": Method("baselines.lrp:LRP"),
        "smoothgrad": Method("baselines.noisy_gradients:SmoothGrad"),
        "vargrad": Method("baselines.noisy_gradients:VarGrad"),
        "occlusion": Method("baselines.occlusion:Occlusion"),
        "grad-cam": Method("baselines.grad_cam:GradCAM"),
        "grad-cam++": Method("baselines.grad_cam:GradCAMPlusPlus"),
        "rise": Method("baselines.rise:RISE"),
        "lime": Method("baselines.surrogate:LIME"),
        "kernel-shap": Method("baselines.surrogate:KernelSHAP"),
        "sobol": Method("baselines.global_sensitivity:Sobol"),
        "hsic": Method("baselines.global_sensitivity:HSIC"),
        "first-order": Method("baselines.first_order:FirstOrder", ball=True),
        "greedy-as": Method("methods.greedy:GreedyAS", ball=True),
        "greedy-ao": Method("methods.greedy:GreedyAO", ball=True),
        "empirical": Method("methods.empirical:EmpiricalEVA", ball=True),
        "hybrid": Method("methods.hybrid:HybridEVA", ball=True, needs=("split",)),
        "smooth": Method("methods.smooth:SmoothEVA", ball=True),
        "path": Method("methods.path:PathEVA", ball=True),
        "nested": Method("methods.nested:NestedEVA", ball=True),
        "noise": Method("methods.noise:NoiseEVA", ball=True),
        "blend": Method("methods.blend:BlendEVA", ball=True),
        "probable": Method("probable.probable_eva:ProbableEVA", ball=True, norm=2.0),
        "eva": Method("methods.eva:EVA", ball=True),
        "targeted": Method("methods.eva:TargetedEVA", ball=True, target=True),
    }
)


def objective_of(name: str, settings: Mapping[str, Any]) -> str:
    """What the overlaps of a method are of, with these settings or by default; "margin" where it has no other."""
    usual = {field.name: field.default for field in fields(METHODS[name].kind)} if name in METHODS else {}
    return str(settings.get("objective", usual.get("objective", "margin")))


COMPARED = tuple(name for name, method in METHODS.items() if not method.target)  # explain what was decided
READY = tuple(  # need nothing but a model and any ball
    name for name in COMPARED if not METHODS[name].needs and METHODS[name].norm is None
)
EXPLAINERS = tuple(name for name, method in METHODS.items() if method.ball and not method.needs)

JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "deletion": Judge("removal.deletion_insertion:Deletion"),
        "insertion": Judge("removal.deletion_insertion:Insertion"),
        "mu-fidelity": Judge("mu_fidelity:MuFidelity"),
        "robustness-sr": Judge("robustness_sr:RobustnessSr"),
        "stability": Judge("stability:Stability"),
        "max-sensitivity": Judge("max_sensitivity:MaxSensitivity"),
        "sparseness": Judge("sparseness:Sparseness"),
        "randomisation": Judge("randomisation:Randomisation"),
        "deletion-mean": Judge("removal.deletion_fills:DeletionMean"),
        "deletion-blur": Judge("removal.deletion_fills:DeletionBlur"),
        "insertion-mean": Judge("removal.deletion_fills:InsertionMean"),
        "insertion-blur": Judge("removal.deletion_fills:InsertionBlur"),
        "road": Judge("removal.road:ROAD"),
        "f-fidelity": Judge("removal.f_fidelity:FFidelity"),
        "adversarial-deletion": Judge("removal.adversarial_deletion:AdversarialDeletion"),
        "tightness": Judge("tightness:Tightness", maps=False),
    }
)
