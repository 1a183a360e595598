"""Registry: one table of explainers and baselines, one table of metrics. All lists of names are derived from them.

The tables import nothing, so that the help of the command line shows the names without loading torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ExplainerEntry:
    """The location and the requirements of an explainer or baseline. The tests compare them with the class."""

    path: str  # "module:Class", the module relative to proofmap.explainers
    ball: bool = False  # True for an `Explainer`: it takes a ball and scores groups
    target: bool = False  # True if it needs a target class
    needs: tuple[str, ...] = ()  # settings without a default
    norm: float | None = None  # the only norm of the balls that it takes; None: any norm

    @property
    def kind(self) -> type[Any]:
        """The class, an `Explainer` or a `Baseline`."""
        return _loaded("explainers", self.path)


@dataclass(frozen=True)
class MetricEntry:
    """The location and the subject of a metric. The tests compare them with the class."""

    path: str  # "module:Class", the module relative to proofmap.metrics
    maps: bool = True  # True: it measures the maps of any method; False: proven overlaps or sets

    @property
    def kind(self) -> type[Any]:
        """The class, a `Metric`."""
        return _loaded("metrics", self.path)


def _loaded(part: str, path: str) -> type[Any]:
    module, _, name = path.partition(":")
    kind: type[Any] = getattr(import_module(f"proofmap.{part}.{module}"), name)
    return kind


EXPLAINER_ENTRIES: Mapping[str, ExplainerEntry] = MappingProxyType(
    {
        "saliency": ExplainerEntry("baselines.gradients:Saliency"),
        "gradient-input": ExplainerEntry("baselines.gradients:GradientInput"),
        "integrated-gradients": ExplainerEntry("baselines.gradients:IntegratedGradients"),
        "expected-gradients": ExplainerEntry("baselines.expected_gradients:ExpectedGradients"),
        "deeplift": ExplainerEntry("baselines.deeplift:DeepLIFT"),
        "guided-backprop": ExplainerEntry("baselines.guided_backprop:GuidedBackprop"),
        "lrp": ExplainerEntry("baselines.lrp:LRP"),
        "smoothgrad": ExplainerEntry("baselines.noisy_gradients:SmoothGrad"),
        "vargrad": ExplainerEntry("baselines.noisy_gradients:VarGrad"),
        "occlusion": ExplainerEntry("baselines.occlusion:Occlusion"),
        "grad-cam": ExplainerEntry("baselines.grad_cam:GradCAM"),
        "grad-cam++": ExplainerEntry("baselines.grad_cam:GradCAMPlusPlus"),
        "rise": ExplainerEntry("baselines.rise:RISE"),
        "lime": ExplainerEntry("baselines.surrogate:LIME"),
        "kernel-shap": ExplainerEntry("baselines.surrogate:KernelSHAP"),
        "sobol": ExplainerEntry("baselines.global_sensitivity:Sobol"),
        "hsic": ExplainerEntry("baselines.global_sensitivity:HSIC"),
        "first-order": ExplainerEntry("baselines.first_order:FirstOrder", ball=True),
        "greedy-as": ExplainerEntry("methods.greedy:GreedyAS", ball=True),
        "greedy-ao": ExplainerEntry("methods.greedy:GreedyAO", ball=True),
        "empirical": ExplainerEntry("methods.empirical:EmpiricalEVA", ball=True),
        "hybrid": ExplainerEntry("methods.hybrid:HybridEVA", ball=True, needs=("split",)),
        "smooth": ExplainerEntry("methods.smooth:SmoothEVA", ball=True),
        "path": ExplainerEntry("methods.path:PathEVA", ball=True),
        "nested": ExplainerEntry("methods.nested:NestedEVA", ball=True),
        "noise": ExplainerEntry("methods.noise:NoiseEVA", ball=True),
        "blend": ExplainerEntry("methods.blend:BlendEVA", ball=True),
        "probable": ExplainerEntry("probable.probable_eva:ProbableEVA", ball=True, norm=2.0),
        "eva": ExplainerEntry("methods.eva:EVA", ball=True),
        "sufficient": ExplainerEntry("methods.sufficient:Sufficient", ball=True),
        "contrastive": ExplainerEntry("methods.contrastive:Contrastive", ball=True),
        "targeted": ExplainerEntry("methods.eva:TargetedEVA", ball=True, target=True),
    }
)


def objective_of(name: str, settings: Mapping[str, Any]) -> Any:
    """Return the objective whose overlap a method bounds, from its settings or by default "margin".

    It is a word, or the record of an objective about one output.
    """
    entry = EXPLAINER_ENTRIES.get(name)
    usual = {} if entry is None else {field.name: field.default for field in fields(entry.kind)}
    return settings.get("objective", usual.get("objective", "margin"))


COMPARED = tuple(name for name, method in EXPLAINER_ENTRIES.items() if not method.target)  # they explain the prediction
# they need only a model and a ball of any norm
READY = tuple(name for name in COMPARED if not EXPLAINER_ENTRIES[name].needs and EXPLAINER_ENTRIES[name].norm is None)
EXPLAINERS = tuple(name for name, method in EXPLAINER_ENTRIES.items() if method.ball and not method.needs)

METRIC_ENTRIES: Mapping[str, MetricEntry] = MappingProxyType(
    {
        "deletion": MetricEntry("removal.deletion_insertion:Deletion"),
        "insertion": MetricEntry("removal.deletion_insertion:Insertion"),
        "mu-fidelity": MetricEntry("mu_fidelity:MuFidelity"),
        "robustness-sr": MetricEntry("robustness_sr:RobustnessSr"),
        "stability": MetricEntry("stability:Stability"),
        "max-sensitivity": MetricEntry("max_sensitivity:MaxSensitivity"),
        "sparseness": MetricEntry("sparseness:Sparseness"),
        "randomisation": MetricEntry("randomisation:Randomisation"),
        "deletion-mean": MetricEntry("removal.deletion_fills:DeletionMean"),
        "deletion-blur": MetricEntry("removal.deletion_fills:DeletionBlur"),
        "insertion-mean": MetricEntry("removal.deletion_fills:InsertionMean"),
        "insertion-blur": MetricEntry("removal.deletion_fills:InsertionBlur"),
        "road": MetricEntry("removal.road:ROAD"),
        "f-fidelity": MetricEntry("removal.f_fidelity:FFidelity"),
        "adversarial-deletion": MetricEntry("removal.adversarial_deletion:AdversarialDeletion"),
        "sufficient-size": MetricEntry("sufficient_size:SufficientSize"),
        "tightness": MetricEntry("tightness:Tightness", maps=False),
        "reason-size": MetricEntry("reason_metrics:ReasonSize", maps=False),
        "reason-undecided": MetricEntry("reason_metrics:ReasonUndecided", maps=False),
        "reason-seconds": MetricEntry("reason_metrics:ReasonSeconds", maps=False),
        "contrast-size": MetricEntry("reason_metrics:ContrastSize", maps=False),
        "contrast-proven": MetricEntry("reason_metrics:ContrastProven", maps=False),
    }
)
