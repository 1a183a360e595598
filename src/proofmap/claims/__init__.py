"""Proven bounds written as ONNX and VNN-LIB, for other verifiers to confirm."""
