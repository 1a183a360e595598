"""Proofmap: what a neural network decided, and why, with proofs."""

from __future__ import annotations

from proofmap import bounds, data, groups, zoo
from proofmap.ball import Ball, Family
from proofmap.errors import BoundError, FileError, InputError, ModelError, ProofmapError, UnsupportedError
from proofmap.graph import Graph, load, trace
from proofmap.overlap import Overlap, certified_radius, overlap

__version__ = "0.1.0"

__all__ = [
    "Ball",
    "BoundError",
    "Family",
    "FileError",
    "Graph",
    "InputError",
    "ModelError",
    "Overlap",
    "ProofmapError",
    "UnsupportedError",
    "bounds",
    "certified_radius",
    "data",
    "groups",
    "load",
    "overlap",
    "trace",
    "zoo",
]
