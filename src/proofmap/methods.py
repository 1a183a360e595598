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

    path: str  # its module under proofmap.explain, and its name there
    ball: bool = False  # it looks for adversaries in a ball, and scores its groups: an `Explainer`
    target: bool = False  # it needs a class to move to
    needs: tuple[str, ...] = ()  # settings without a default
    norm: float | None = None  # of the only balls that it takes

    @property
    def kind(self) -> type[Any]:
        """The class, an `Explainer` or a `Baseline`."""
        return _loaded("explain", self.path)


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
        "expected-gradients": Method("baselines.expected:ExpectedGradients"),
        "deeplift": Method("baselines.deeplift:DeepLIFT"),
        "guided-backprop": Method("baselines.guided:GuidedBackprop"),
        "lrp": Method("baselines.lrp:LRP"),
        "smoothgrad": Method("baselines.noise:SmoothGrad"),
        "vargrad": Method("baselines.noise:VarGrad"),
        "occlusion": Method("baselines.occlusion:Occlusion"),
        "grad-cam": Method("baselines.cam:GradCAM"),
        "grad-cam++": Method("baselines.cam:GradCAMPlusPlus"),
        "rise": Method("baselines.rise:RISE"),
        "lime": Method("baselines.surrogate:LIME"),
        "kernel-shap": Method("baselines.surrogate:KernelSHAP"),
        "sobol": Method("baselines.sensitivity:Sobol"),
        "hsic": Method("baselines.sensitivity:HSIC"),
        "first-order": Method("baselines.first_order:FirstOrder", ball=True),
        "greedy-as": Method("greedy:GreedyAS", ball=True),
        "greedy-ao": Method("greedy:GreedyAO", ball=True),
        "empirical": Method("empirical:EmpiricalEVA", ball=True),
        "hybrid": Method("hybrid:HybridEVA", ball=True, needs=("split",)),
        "smooth": Method("smooth:SmoothEVA", ball=True),
        "path": Method("path:PathEVA", ball=True),
        "nested": Method("nested:NestedEVA", ball=True),
        "noise": Method("noise:NoiseEVA", ball=True),
        "blend": Method("blend:BlendEVA", ball=True),
        "probable": Method("probable:ProbableEVA", ball=True, norm=2.0),
        "eva": Method("eva:EVA", ball=True),
        "targeted": Method("eva:TargetedEVA", ball=True, target=True),
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
        "deletion": Judge("curves:Deletion"),
        "insertion": Judge("curves:Insertion"),
        "mu-fidelity": Judge("fidelity:MuFidelity"),
        "robustness-sr": Judge("robustness:RobustnessSr"),
        "stability": Judge("stability:Stability"),
        "max-sensitivity": Judge("sensitivity:MaxSensitivity"),
        "sparseness": Judge("sparseness:Sparseness"),
        "randomisation": Judge("randomisation:Randomisation"),
        "deletion-mean": Judge("fills:DeletionMean"),
        "deletion-blur": Judge("fills:DeletionBlur"),
        "insertion-mean": Judge("fills:InsertionMean"),
        "insertion-blur": Judge("fills:InsertionBlur"),
        "road": Judge("road:ROAD"),
        "f-fidelity": Judge("random_removal:FFidelity"),
        "adversarial-deletion": Judge("adversarial:AdversarialDeletion"),
        "tightness": Judge("tightness:Tightness", maps=False),
    }
)
