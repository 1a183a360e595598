"""The reader for ONNX files: a table of converters, and opaque parts that onnxruntime runs. Also the ONNX writer."""

from proofmap.graph.onnx.file import external_data_files, parse
from proofmap.graph.onnx.load import load
from proofmap.graph.onnx.runtime_session import start_session
from proofmap.graph.onnx.write import as_onnx, with_rows

__all__ = ["as_onnx", "external_data_files", "load", "parse", "start_session", "with_rows"]
