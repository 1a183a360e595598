"""Claims: proven bounds exported as ONNX networks and VNN-LIB properties, which other verifiers can confirm."""
