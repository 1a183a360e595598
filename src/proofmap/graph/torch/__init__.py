"""Torch modules read as graphs: exported, each operator written in our operations; what has no rule is run as it is."""

from proofmap.graph.torch.compiled import eager, uncompiled
from proofmap.graph.torch.hooked_module import Hooked
from proofmap.graph.torch.trace import trace

__all__ = ["Hooked", "eager", "trace", "uncompiled"]
