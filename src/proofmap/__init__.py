"""Proofmap: what a neural network decided, and why, with proofs."""

from __future__ import annotations

from proofmap import bounds, data, explain, groups, zoo
from proofmap.ball import Ball, Family
from proofmap.errors import BoundError, FileError, InputError, ModelError, ProofmapError, UnsupportedError
from proofmap.explain import EVA, EmpiricalEVA, Explanation, GreedyAO, GreedyAS, HybridEVA, TargetedEVA
from proofmap.graph import Graph, load, trace
from proofmap.overlap import Overlap, certified_radius, overlap

__version__ = "0.1.0"

__all__ = [
    "EVA",
    "Ball",
    "BoundError",
    "EmpiricalEVA",
    "Explanation",
    "Family",
    "FileError",
    "Graph",
    "GreedyAO",
    "GreedyAS",
    "HybridEVA",
    "InputError",
    "ModelError",
    "Overlap",
    "ProofmapError",
    "TargetedEVA",
    "UnsupportedError",
    "bounds",
    "certified_radius",
    "data",
    "explain",
    "groups",
    "load",
    "overlap",
    "trace",
    "zoo",
]
