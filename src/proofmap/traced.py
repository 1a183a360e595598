"""One traced model for all that ask for it: a module is traced again only when it may compute something else.

A stale graph would prove something of another model. So a graph is reused where nothing that its module computes by has
changed (`fingerprint`), for samples of the same shape, type and device; a module of which that cannot be said is traced
anew each time. Code of installed packages is taken for what it was: should a variable in there change, the output at a
sample tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from proofmap.digest import hash_graph
from proofmap.fingerprint import Fingerprint
from proofmap.graph import Graph, as_graph
from proofmap.precision import full_precision

__all__ = ["Network", "Traced", "traced"]

Network: TypeAlias = nn.Module | Graph  # what a user hands over: as it is, or traced or loaded already


@dataclass(frozen=True, eq=False)
class Traced:
    """A model's graph, and what it was traced from."""

    graph: Graph
    source: Fingerprint | None = None

    @property
    def digest(self) -> str:
        """The model's name."""
        if self.graph not in _DIGESTS:
            _DIGESTS[self.graph] = hash_graph(self.graph)
        return _DIGESTS[self.graph]


_KEPT: WeakKeyDictionary[nn.Module, Traced] = WeakKeyDictionary()  # the last of each module
_DIGESTS: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()  # a graph never changes


def traced(model: Network, x: Tensor) -> Traced:
    """The graph of a model for inputs like x (N, *shape), as `as_graph` gives it."""
    if not isinstance(model, nn.Module) or type(model).__hash__ is None:
        return Traced(as_graph(model, x))
    like = f"{tuple(x.shape[1:])} {x.dtype} {x.device} {torch.get_default_dtype()}"
    source = Fingerprint.of(model, like)
    if source is None:
        return Traced(as_graph(model, x))
    kept = _KEPT.get(model)
    if kept is None or kept.source != source or not _same_at(x[:1], model, kept.graph):
        kept = _KEPT[model] = Traced(as_graph(model, x), source)
    return kept


def _same_at(x: Tensor, model: nn.Module, graph: Graph) -> bool:
    """Whether the module puts out at x what its graph does, but for rounding."""
    with full_precision(x.device), torch.no_grad():
        try:
            now = model(x)
            then = graph.as_model(graph.to(x.device, x.dtype)(x).flatten(1))
            return torch.allclose(now.reshape(then.shape), then, rtol=1e-3, atol=1e-4)
        except Exception:  # of whatever kind: tracing says it
            return False
