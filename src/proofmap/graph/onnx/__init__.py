"""ONNX files read as graphs."""
