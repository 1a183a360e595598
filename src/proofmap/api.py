"""What `import proofmap as pm` offers: loaded, with torch, when the first of these names is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofmap import bounds, data, groups, metrics, zoo
from proofmap.ball import Ball
from proofmap.bench.compare import compare
from proofmap.domain import Domain
from proofmap.errors import (
    BoundError,
    FileError,
    InputError,
    ModelError,
    ProofmapError,
    ProofmapWarning,
    UnsupportedError,
)
from proofmap.estimators import from_sklearn
from proofmap.explain import (
    EVA,
    BlendEVA,
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
    TargetedEVA,
)
from proofmap.family import Family
from proofmap.graph import Graph, load, trace
from proofmap.overlaps import Overlap, overlap
from proofmap.radii import Radius, certified_radius, radius

if TYPE_CHECKING:
    from proofmap.explain.called import explain
else:
    from proofmap import explain

__all__ = [
    "EVA",
    "Ball",
    "BlendEVA",
    "BoundError",
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
    "ModelError",
    "NestedEVA",
    "NoiseEVA",
    "Overlap",
    "PathEVA",
    "ProbableEVA",
    "ProofmapError",
    "ProofmapWarning",
    "Radius",
    "SmoothEVA",
    "TargetedEVA",
    "UnsupportedError",
    "bounds",
    "certified_radius",
    "compare",
    "data",
    "explain",
    "from_sklearn",
    "groups",
    "load",
    "metrics",
    "overlap",
    "radius",
    "trace",
    "zoo",
]
