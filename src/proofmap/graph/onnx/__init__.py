"""ONNX files read as graphs: each operator written in our operations; what has no rule is run by onnxruntime.

Graphs written as ONNX files for other tools.
"""

from proofmap.graph.onnx.file import beside, parse
from proofmap.graph.onnx.load import load
from proofmap.graph.onnx.runtime_session import started
from proofmap.graph.onnx.write import as_onnx, with_rows

__all__ = ["as_onnx", "beside", "load", "parse", "started", "with_rows"]
