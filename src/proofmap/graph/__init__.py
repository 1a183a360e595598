"""Computation graphs: a model as data, read from torch or from ONNX.

- `ir`: graphs and nodes. `ops`: the table of operations. `walk`: the two walks through a graph.
- `torch` and `onnx`: the two readers. Each has a table from the framework's operators to converters.
- `builder`: `graph_builder` collects nodes; the other modules write common layers in the operations of `ops`.
- `rewrite`: graphs that compute the same function in another form, and parts of graphs.
- `opaque`: parts of a model that can be run but not bounded. `agreement`: the check of a graph against its model.
"""

from typing import Any, TypeAlias

from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.onnx import load
from proofmap.graph.opaque import bounded
from proofmap.graph.rewrite.output_heads import with_two_logits
from proofmap.graph.torch import trace

__all__ = ["Graph", "Network", "Node", "as_graph", "bounded", "load", "trace"]

Network: TypeAlias = nn.Module | Graph  # a user's model: a module, or a traced or loaded graph


def as_graph(model: Any, x: Tensor) -> Graph:
    """Return the graph of a model for inputs like x (N, *shape): a given graph, or a traced torch module.

    A network with one output z gets the logits (0, z) of two classes.

    A module is traced on every public call. Its forward may depend on anything that Python code can read (attributes of
    functions and classes, files, the environment), so a graph kept from an earlier call could prove something about
    another function. A user who knows that the model does not change can pass the graph that `pm.trace` returns.
    """
    if isinstance(model, Graph):
        return with_two_logits(model)
    if isinstance(model, nn.Module):
        return with_two_logits(trace(model, x))
    raise InputError(
        f"got a model of type {type(model).__name__}, expected a torch.nn.Module or what pm.load('net.onnx') or "
        "pm.from_sklearn(estimator) returns"
    )
