"""ONNX files read as graphs: each operator written in our operations; what has no rule is run by onnxruntime."""

from proofmap.graph.onnx.file import beside, parse
from proofmap.graph.onnx.load import load
from proofmap.graph.onnx.session import started

__all__ = ["beside", "load", "parse", "started"]
