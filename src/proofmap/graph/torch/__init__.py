"""The reader for torch modules: torch.export, a table of converters, and opaque parts that torch itself runs."""

from proofmap.graph.torch.compiled import eager, uncompiled
from proofmap.graph.torch.hooked_module import HookedModule
from proofmap.graph.torch.trace import logits_module, trace

__all__ = ["HookedModule", "eager", "logits_module", "trace", "uncompiled"]
