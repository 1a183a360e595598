"""Builder of a random ONNX file: onnxruntime runs every node as soon as it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from fuzz.hunting.draw import Draw, Undrawn
from fuzz.hunting.sketch import MAX_VALUE_SCALARS
from tests.graph.onnx.files import Array

onnxruntime.set_default_logger_severity(4)  # no warnings about old opsets, which are drawn on purpose

ELEMENT_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


class File:
    """Nodes and constants that start from x, with the value of every name for a few inputs."""

    def __init__(self, draw: Draw, opset: int, x: Array, batch: int | str) -> None:
        self.draw, self.opset, self.batch, self.dtype = draw, opset, batch, x.dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[str, Array] = {"x": x}
        self.last = "x"

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one sample; raise Undrawn if it has no axes."""
        if self.values[name].ndim < 2:
            raise Undrawn("one number a sample")
        return self.values[name].shape[1:]

    def floats(self, *shape: int) -> Array:
        array: Array = self.draw.tensor(*shape).numpy().astype(self.dtype)
        return array

    def number(self, value: float) -> Array:
        return np.array(value, dtype=self.dtype)

    def samples(self) -> int:
        """Return the number of samples, for constants with a row for each; raise Undrawn if it is not fixed."""
        if not isinstance(self.batch, int):
            raise Undrawn("any number of samples")
        return self.batch

    def names(self) -> list[str]:
        """Return the values that a node may read: floats, with the samples in front."""
        return [name for name, value in self.values.items() if value.dtype == self.dtype and value.ndim > 1]

    def add(self, op: str, *inputs: str | Array, outputs: int = 1, sound: bool = True, **attributes: Any) -> str:
        """Add a node; arrays among its inputs become constants. Raise Undrawn if onnxruntime refuses it.

        Of several outputs, a random one becomes the current value. `sound=False` keeps a node that may be damaged.
        """
        known = onnx.defs.has(op, max_inclusive_version=self.opset)
        if not known:
            raise Undrawn(f"opset {self.opset} has no {op}")
        places = [value if isinstance(value, str) else self._constant(np.asarray(value)) for value in inputs]
        names = [f"v{len(self.values)}", *(f"v{len(self.values)}_{k}" for k in range(1, outputs))]
        node = helper.make_node(op, places, names, **attributes)
        self.nodes.append(node)
        results = self._run(node) if sound else [self.values["x"]] * outputs
        self.values.update(zip(names, results, strict=True))
        name = self.draw.pick(names)
        value = self.values[name]
        if value.dtype == self.dtype and value.ndim:  # a single number is not a current value
            self._useful(value)
            self.last = name
        return name

    def moved(self, op: str, x: str, since: int, values: dict[str, Array], outputs: int = 1, **attributes: Any) -> str:
        """Add a node whose settings are attributes before opset `since`, and inputs from then on."""
        if self.opset >= since:
            return self.add(op, x, *values.values(), outputs=outputs, **attributes)
        plain = {key: value.tolist() for key, value in values.items()}
        return self.add(op, x, outputs=outputs, **plain, **attributes)

    def _constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _useful(self, value: Array) -> None:
        if not 0 < value.size <= MAX_VALUE_SCALARS * len(self.values["x"]):
            raise Undrawn("no value of a useful size")
        if not np.isfinite(value).all() or (not self.draw.odd and np.abs(value).max() > 1e4):
            raise Undrawn("values that are too large")

    def _run(self, node: onnx.NodeProto) -> list[Array]:
        read = [name for name in dict.fromkeys(node.input) if name]
        feeds = {name: self.values[name] for name in read if name in self.values}
        stored = {name: self.constants[name] for name in read if name in self.constants}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        try:
            return run(packed([node], inputs, outputs, stored, self.opset), feeds)
        except Exception as error:  # onnxruntime's own exceptions have no common root
            raise Undrawn(str(error)) from error

    def model(self) -> onnx.ModelProto:
        """Return the whole file, from x to y; y is flattened if necessary."""
        kind = ELEMENT_TYPES[self.dtype]
        x = helper.make_tensor_value_info("x", kind, [self.batch, *self.values["x"].shape[1:]])
        y = helper.make_tensor_value_info("y", kind, None)
        end = helper.make_node("Flatten", [self.last], ["y"])
        return packed([*self.nodes, end], [x], [y], self.constants, self.opset)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Remove the nodes that the block has added if it raises Undrawn."""
        before = len(self.nodes), dict(self.constants), dict(self.values), self.last
        try:
            yield
        except Undrawn:
            del self.nodes[before[0] :]
            _, self.constants, self.values, self.last = before
            raise

    def described(self) -> list[str]:
        """Write one line for each node, with short constants by value."""
        return [self._word(node) for node in self.nodes]

    def _word(self, node: onnx.NodeProto) -> str:
        inputs = [self._seen(name) for name in node.input]
        settings = [f"{a.name}={_plain(helper.get_attribute_value(a))}" for a in node.attribute]
        return f"{', '.join(node.output)} = {node.op_type}({', '.join([*inputs, *settings])})"

    def _seen(self, name: str) -> str:
        value = self.constants.get(name)
        if value is None:
            return name or "''"
        return f"{value.tolist()}" if value.size <= 8 else f"{value.dtype}{value.shape}"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return numpy_helper.to_array(value).tolist() if isinstance(value, TensorProto) else value


def packed(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: dict[str, Array],
    opset: int,
) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in read]
    opsets = [helper.make_opsetid("", opset)]
    version = max(helper.find_min_ir_version_for(opsets), 4)
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=version)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Run all outputs by onnxruntime without rewriting the graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, feeds)]
