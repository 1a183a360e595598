"""Writer of ONNX files: a graph for one sample, in operators that other verifiers read.

In exact arithmetic the file computes the same function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.ir import Graph, Node

_OPSET = 13  # old enough for other tools, new enough for all operators that are written here
_ELEMENT_TYPES = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}
_ONNX_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def as_onnx(graph: Graph) -> ModelProto:
    """Return the graph as an ONNX model: samples (1, *shape) -> logits (1, classes), in its weights' precision."""
    kind = _ELEMENT_TYPES.get(graph.dtype)
    if kind is None:
        raise ModelError(f"got a network in {graph.dtype}, expected float32 or float64 to write it as ONNX")
    writer = _Writer(graph)
    for node in graph.nodes[1:]:
        if node.op not in _WRITERS:
            raise ModelError(
                f"{node.op} (node {node.name!r}) cannot be written as ONNX, expected {', '.join(_WRITERS)}: hand over "
                "the ONNX file of the network itself, without mean, std or layout"
            )
        _WRITERS[node.op](writer, node)
    ends = [helper.make_tensor_value_info(v.name, kind, [1, *v.shape]) for v in (graph.input, graph[graph.output])]
    made = helper.make_graph(writer.nodes, "network", ends[:1], ends[1:], writer.constants)
    opsets = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(made, opset_imports=opsets, ir_version=7, producer_name="proofmap")


def with_rows(model: ModelProto, rows: Tensor) -> ModelProto:
    """Return the model with a product at its end: Y = rows · logits, with rows (R, classes) of whole numbers.

    The product is a separate layer, because multiplying it into the weights before would round them.
    """
    whole = ModelProto()
    whole.CopyFrom(model)
    graph, (logits,) = whole.graph, whole.graph.output
    kind, batch = logits.type.tensor_type.elem_type, logits.type.tensor_type.shape.dim[0]
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    matrix, result = (_free_name(name, taken) for name in ("claim.rows", "claim.Y"))
    values = rows.T.contiguous().numpy().astype(helper.tensor_dtype_to_np_dtype(kind))
    graph.initializer.append(numpy_helper.from_array(values, matrix))
    graph.node.append(helper.make_node("MatMul", [logits.name, matrix], [result], name=result))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(result, kind, [1, len(rows)]))
    graph.output[0].type.tensor_type.shape.dim[0].CopyFrom(batch)
    onnx.checker.check_model(whole)
    return whole


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name


@dataclass
class _Writer:
    """Collects the nodes and constants of a file; a value has the name of its node."""

    graph: Graph
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, node: Node, what: str, value: Any) -> str:
        """Add a constant of a node; return its name."""
        name = f"{node.name}/{what}"
        array = value.detach().cpu().contiguous().numpy() if isinstance(value, Tensor) else np.array(value, np.int64)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def number(self, node: Node, what: str, value: float) -> str:
        """Add a constant with one number, in the precision of the network; return its name."""
        return self.constant(node, what, torch.tensor(value, dtype=self.graph.dtype))

    def emit(self, node: Node, kind: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Add the operator that computes the node's value."""
        self.nodes.append(helper.make_node(kind, list(inputs), [node.name], name=node.name, **attributes))

    def within(self, node: Node, what: str, kind: str, inputs: Sequence[str]) -> str:
        """Add an operator for an intermediate value of a node; return its name."""
        name = f"{node.name}/{what}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name))
        return name

    def shifted(self, node: Node, kind: str, inputs: Sequence[str]) -> None:
        """Add the operator, and the node's bias if it has one."""
        if node.bias is None:
            self.emit(node, kind, inputs)
        else:
            product = self.within(node, "product", kind, inputs)
            self.emit(node, "Add", [product, self.constant(node, "bias", node.bias)])


def _linear(w: _Writer, node: Node) -> None:
    assert node.weight is not None
    if len(node.shape) == 1 and node.bias is not None:
        inputs = [*node.inputs, w.constant(node, "weight", node.weight), w.constant(node, "bias", node.bias)]
        w.emit(node, "Gemm", inputs, transB=1)
    else:
        w.shifted(node, "MatMul", [*node.inputs, w.constant(node, "weight", node.weight.T)])


def _matmul(w: _Writer, node: Node) -> None:
    weight = w.constant(node, "weight", node.weight)
    left = node.attributes["side"] == "left"
    w.shifted(node, "MatMul", [weight, *node.inputs] if left else [*node.inputs, weight])


def _conv(w: _Writer, node: Node) -> None:
    _write_conv(w, node, "Conv")


def _conv_transpose(w: _Writer, node: Node) -> None:
    _write_conv(w, node, "ConvTranspose", output_padding=_per_axis(node, "output_padding"))


def _write_conv(w: _Writer, node: Node, kind: str, **more: Any) -> None:
    assert node.weight is not None
    inputs = [*node.inputs, w.constant(node, "weight", node.weight)]
    if node.bias is not None:
        inputs.append(w.constant(node, "bias", node.bias.flatten()))
    attributes = {"kernel_shape": tuple(node.weight.shape[2:]), "group": node.attributes["groups"], **more}
    w.emit(node, kind, inputs, **attributes, **_window_attributes(node, "stride", "padding", "dilation"))


def _window_attributes(node: Node, *names: str) -> dict[str, tuple[int, ...]]:
    """Return ONNX attributes of a sliding window; pads are listed before all axes, then after all axes."""
    onnx_names = {"stride": "strides", "padding": "pads", "dilation": "dilations", "kernel": "kernel_shape"}
    return {onnx_names[name]: _per_axis(node, name) * (2 if name == "padding" else 1) for name in names}


def _per_axis(node: Node, name: str) -> tuple[int, ...]:
    """Return one number for each spatial axis."""
    value = node.attributes[name]
    return (value,) * (len(node.shape) - 1) if isinstance(value, int) else tuple(value)


def _affine(w: _Writer, node: Node) -> None:
    if node.weight is not None:
        w.shifted(node, "Mul", [*node.inputs, w.constant(node, "weight", node.weight)])
    else:
        w.emit(node, "Add", [*node.inputs, w.constant(node, "bias", node.bias)])


def _add(w: _Writer, node: Node) -> None:
    first, *between, last = node.inputs
    for k, name in enumerate(between):
        first = w.within(node, f"sum{k}", "Add", [first, name])
    w.emit(node, "Add", [first, last])


def _summed(w: _Writer, node: Node) -> None:
    axes = w.constant(node, "axes", [axis + 1 for axis in node.attributes["axes"]])
    w.emit(node, "ReduceSum", [*node.inputs, axes], keepdims=int(node.attributes["keepdim"]))


def _avg_pool(w: _Writer, node: Node) -> None:
    a = node.attributes
    if (a["ceil"] and a["count_padding"]) or not a["mean"]:  # for the former, runtimes differ in the divisor
        raise ModelError(f"avg_pool (node {node.name!r}) of windows that are cut or summed cannot be written as ONNX")
    attributes = _window_attributes(node, "kernel", "stride", "padding")
    whole = {"ceil_mode": int(a["ceil"]), "count_include_pad": int(a["count_padding"])}
    w.emit(node, "AveragePool", node.inputs, **attributes, **whole)


def _adaptive_avg_pool(w: _Writer, node: Node) -> None:
    (source,) = node.inputs
    before, after = w.graph[source].shape[1:], node.shape[1:]
    if any(n % m for n, m in zip(before, after, strict=True)):
        raise ModelError(
            f"adaptive_avg_pool (node {node.name!r}) of windows of several sizes cannot be written as ONNX"
        )
    kernel = [n // m for n, m in zip(before, after, strict=True)]
    w.emit(node, "AveragePool", node.inputs, kernel_shape=kernel, strides=kernel)


def _max_pool(w: _Writer, node: Node) -> None:
    attributes = _window_attributes(node, "kernel", "stride", "padding", "dilation")
    w.emit(node, "MaxPool", node.inputs, **attributes, ceil_mode=int(node.attributes["ceil"]))


def _reshape(w: _Writer, node: Node) -> None:
    w.emit(node, "Reshape", [*node.inputs, w.constant(node, "shape", [1, *node.shape])])


def _expand(w: _Writer, node: Node) -> None:
    (source,) = node.inputs
    shape = w.graph[source].shape
    if len(shape) < len(node.shape):
        wider = [1, *(1,) * (len(node.shape) - len(shape)), *shape]
        source = w.within(node, "axes", "Reshape", [source, w.constant(node, "from", wider)])
    w.emit(node, "Expand", [source, w.constant(node, "shape", [1, *node.shape])])


def _permute(w: _Writer, node: Node) -> None:
    w.emit(node, "Transpose", node.inputs, perm=[0, *(axis + 1 for axis in node.attributes["axes"])])


def _index(w: _Writer, node: Node) -> None:
    index = w.constant(node, "index", node.attributes["index"].long())
    w.emit(node, "Gather", [*node.inputs, index], axis=node.attributes["axis"] + 1)


def _slice(w: _Writer, node: Node) -> None:
    start, stop, step = node.attributes["range"]
    named = {"starts": start, "ends": stop, "axes": node.attributes["axis"] + 1, "steps": step}
    w.emit(node, "Slice", [*node.inputs, *(w.constant(node, name, [value]) for name, value in named.items())])


def _pad(w: _Writer, node: Node) -> None:
    pads, rank = node.attributes["pads"], len(node.shape) + 1
    pairs = [*((0, 0),) * (rank - len(pads) // 2), *reversed(list(zip(pads[::2], pads[1::2], strict=True)))]
    around = [before for before, _ in pairs] + [after for _, after in pairs]
    w.emit(node, "Pad", [*node.inputs, w.constant(node, "pads", around)], mode=_ONNX_PAD_MODES[node.attributes["mode"]])


def _leaky_relu(w: _Writer, node: Node) -> None:
    w.emit(node, "PRelu", [*node.inputs, w.constant(node, "slope", node.weight)])


def _clamp(w: _Writer, node: Node) -> None:
    ends = [w.number(node, name, node.attributes[name]) for name in ("low", "high")]
    w.emit(node, "Clip", [*node.inputs, *ends])


def _rsqrt(w: _Writer, node: Node) -> None:
    w.emit(node, "Reciprocal", [w.within(node, "sqrt", "Sqrt", node.inputs)])


def _round(w: _Writer, node: Node) -> None:
    step, low, high = (w.number(node, name, node.attributes[name]) for name in ("step", "low", "high"))
    scaled = w.within(node, "scaled", "Div", [*node.inputs, step])
    w.emit(node, "Clip", [w.within(node, "whole", "Round", [scaled]), low, high])


def _sign(w: _Writer, node: Node) -> None:
    """Write sign(x), or sign(sign(x) + at_zero / 2), which is `at_zero` at 0."""
    at_zero = node.attributes["at_zero"]
    if at_zero == 0:
        return w.emit(node, "Sign", node.inputs)
    inner = w.within(node, "sign", "Sign", node.inputs)
    return w.emit(node, "Sign", [w.within(node, "moved", "Add", [inner, w.number(node, "half", at_zero / 2)])])


def _unary(kind: str) -> Callable[[_Writer, Node], None]:
    return lambda w, node: w.emit(node, kind, node.inputs)


_WRITERS: dict[str, Callable[[_Writer, Node], None]] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "affine": _affine,
    "add": _add,
    "concat": lambda w, node: w.emit(node, "Concat", node.inputs, axis=node.attributes["axis"] + 1),
    "sum": _summed,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
    "max_pool": _max_pool,
    "maximum": _unary("Max"),
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "index": _index,
    "slice": _slice,
    "pad": _pad,
    "relu": _unary("Relu"),
    "leaky_relu": _leaky_relu,
    "clamp": _clamp,
    "round": _round,
    "floor": _unary("Floor"),
    "sign": _sign,
    "sin": _unary("Sin"),
    "cos": _unary("Cos"),
    "abs": _unary("Abs"),
    "sigmoid": _unary("Sigmoid"),
    "tanh": _unary("Tanh"),
    "elu": lambda w, node: w.emit(node, "Elu", node.inputs, alpha=float(node.attributes["alpha"])),
    "softsign": _unary("Softsign"),
    "erf": _unary("Erf"),
    "exp": _unary("Exp"),
    "log": _unary("Log"),
    "sqrt": _unary("Sqrt"),
    "rsqrt": _rsqrt,
    "reciprocal": _unary("Reciprocal"),
    "square": lambda w, node: w.emit(node, "Mul", [*node.inputs, *node.inputs]),
    "product": _unary("Mul"),
    "contract": _unary("MatMul"),
    "softmax": lambda w, node: w.emit(node, "Softmax", node.inputs, axis=node.attributes["axis"] + 1),
}
