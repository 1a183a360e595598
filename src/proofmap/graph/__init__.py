"""A model as data: read from torch or from ONNX, then run and walked by everything else."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph.foreign import bounded
from proofmap.graph.ir import Graph, Node
from proofmap.graph.onnx import load
from proofmap.graph.torch import trace

__all__ = ["Graph", "Node", "as_graph", "bounded", "load", "trace"]


def as_graph(model: Any, x: Tensor) -> Graph:
    """A graph as it is, a torch module traced for inputs like x (N, *shape)."""
    if isinstance(model, Graph):
        return model
    if isinstance(model, nn.Module):
        return trace(model, x)
    raise InputError(
        f"got a model of type {type(model).__name__}, expected a torch.nn.Module or what pm.load('net.onnx') returns"
    )
