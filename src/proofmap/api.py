"""The public API: the names that `import proofmap as pm` offers, loaded with torch on first use."""

from proofmap import bounds, data, explainers, metrics, plots, zoo
from proofmap.bench.compare import compare
from proofmap.errors import (
    BoundError,
    FileError,
    InputError,
    ModelError,
    ProofmapError,
    ProofmapWarning,
    UnsupportedError,
)
from proofmap.explainers import (
    EVA,
    BlendEVA,
    Contrastive,
    EmpiricalEVA,
    Explanation,
    FirstOrder,
    GreedyAO,
    GreedyAS,
    HybridEVA,
    NestedEVA,
    NoiseEVA,
    PathEVA,
    ProbableEVA,
    SmoothEVA,
    Sufficient,
    TargetedEVA,
)
from proofmap.explainers.auto import explain
from proofmap.explainers.samples.concatenation import concat
from proofmap.graph import Graph, load, trace
from proofmap.graph.estimators import from_sklearn
from proofmap.inputs import groups
from proofmap.inputs.ball import Ball
from proofmap.inputs.domain import Domain
from proofmap.inputs.family import Family
from proofmap.plots.curves.overlap_curve import OverlapCurve, curve
from proofmap.verify import objectives
from proofmap.verify.model_comparison import ModelComparison, compare_models
from proofmap.verify.overlap import Overlap, overlap
from proofmap.verify.radius import Radius, certified_radius, radius

for _name in explainers.__all__:  # `pm.explain` was a module once: its names stay until 0.3, as `pm.explain.Explainer`
    setattr(explain, _name, getattr(explainers, _name))

__all__ = [
    "EVA",
    "Ball",
    "BlendEVA",
    "BoundError",
    "Contrastive",
    "Domain",
    "EmpiricalEVA",
    "Explanation",
    "Family",
    "FileError",
    "FirstOrder",
    "Graph",
    "GreedyAO",
    "GreedyAS",
    "HybridEVA",
    "InputError",
    "ModelComparison",
    "ModelError",
    "NestedEVA",
    "NoiseEVA",
    "Overlap",
    "OverlapCurve",
    "PathEVA",
    "ProbableEVA",
    "ProofmapError",
    "ProofmapWarning",
    "Radius",
    "SmoothEVA",
    "Sufficient",
    "TargetedEVA",
    "UnsupportedError",
    "bounds",
    "certified_radius",
    "compare",
    "compare_models",
    "concat",
    "curve",
    "data",
    "explain",
    "explainers",
    "from_sklearn",
    "groups",
    "load",
    "metrics",
    "objectives",
    "overlap",
    "plots",
    "radius",
    "trace",
    "zoo",
]
