"""A model as data: read from torch or from ONNX, then run and walked by everything else.

`ops` holds the operations, one record each; `ir` and `walk` a graph and the walks through it. Readers write a graph
down by `build` and its words: `picks`, `moves`, `layers`, `pools`, `sums`, `scalars`. `fold`, `axes`, `last`, `pairs`
and `cut` make graphs simpler, or part them. `torch` and `onnx` read; `agree` and `foreign` hold what both do with a
model that has been read.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.onnx import load
from proofmap.graph.opaque import bounded
from proofmap.graph.torch import trace

__all__ = ["Graph", "Network", "Node", "as_graph", "bounded", "load", "trace"]

Network: TypeAlias = nn.Module | Graph  # what a user hands over: a module, or a graph that was traced or loaded before


def as_graph(model: Any, x: Tensor) -> Graph:
    """A graph as it is, a torch module traced for inputs like x (N, *shape).

    A module is traced on every public call. Its forward may depend on anything that Python code can read (attributes of
    functions and classes, files, the environment), so a graph kept from an earlier call could prove something about
    another function. A user who knows that the model does not change holds the graph that `pm.trace` returns.
    """
    if isinstance(model, Graph):
        return model
    if isinstance(model, nn.Module):
        return trace(model, x)
    raise InputError(
        f"got a model of type {type(model).__name__}, expected a torch.nn.Module or what pm.load('net.onnx') or "
        "pm.from_sklearn(estimator) returns"
    )
