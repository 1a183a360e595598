"""An ONNX file in the making: nodes, constants and the shapes that its values should have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.hunting.draw import Draw
from tests.graph.onnx.files import Array

Shape = tuple[int, ...]


@dataclass
class Sketch:
    """A graph from x on. `shapes` holds every value with its batch axis, as the makers expect it."""

    draw: Draw
    opset: int
    shape: Shape  # of one input, without the batch axis
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    last: str = "x"

    def __post_init__(self) -> None:
        self.shapes["x"] = (1, *self.shape)

    @property
    def now(self) -> Shape:
        return self.shapes[self.last]

    def floats(self, *shape: int, scale: float = 1.0) -> Array:
        """Normal numbers in float32, sometimes with zeros or far from 1."""
        return self.draw.tensor(*shape, scale=scale).numpy().astype(np.float32)

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        """One more node, the last value from now on. Attributes that are None are left out."""
        name = f"v{len(self.nodes)}"
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op, inputs, [name], **given))
        self.shapes[name], self.last = shape, name
        return name

    def model(self) -> onnx.ModelProto:
        """The file: constants are initializers, seldom nodes, and a few of these are listed as inputs as well."""
        draw, nodes = self.draw, list(self.nodes)
        read = {name for node in nodes for name in node.input} | {self.last}
        batch: int | str = 1 if draw.chance(0.7) else "n"
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *self.shape])]
        stored = []
        for name, value in self.constants.items():
            if name not in read and draw.chance(0.9):
                continue
            tensor = stored_tensor(draw, value, name)
            if draw.chance(0.1):
                nodes.insert(0, helper.make_node("Constant", [], [name], value=tensor))
                continue
            stored.append(tensor)
            if draw.chance(0.05):
                inputs.append(helper.make_tensor_value_info(name, tensor.data_type, value.shape))
        shape = None if draw.chance(0.6) else list(self.now)
        output = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, shape)
        middle = [name for name in self.shapes if name not in ("x", self.last) and draw.chance(0.1)]
        known = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in middle]
        graph = helper.make_graph(nodes, "net", inputs, [output], stored, value_info=known)
        version = 8 if draw.chance(0.8) else draw.pick([4, 5, 6, 7, 9, 10, 11, 12])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=version)


def stored_tensor(draw: Draw, value: Array, name: str) -> TensorProto:
    """Mostly raw bytes, sometimes the typed field."""
    if draw.chance(0.98):
        return numpy_helper.from_array(value, name)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor(name, kind, value.shape, value.ravel().tolist())
