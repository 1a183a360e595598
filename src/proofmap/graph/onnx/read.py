"""An ONNX file as a graph: its nodes through the table of `onnx_ops`, its constants through onnx's own evaluator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, inliner
from torch import Tensor

from proofmap.errors import FileError, ModelError, ProofmapError, UnsupportedError, first_line
from proofmap.graph.build import Builder, LargeError, MixedError, NoRule, Value
from proofmap.graph.ir import Graph
from proofmap.graph.moves import Entries, gather, merge
from proofmap.graph.onnx.boxed import Read, box_file
from proofmap.graph.onnx.call import Call
from proofmap.graph.onnx.check import check
from proofmap.graph.onnx.file import parse
from proofmap.graph.onnx.linear import once
from proofmap.graph.onnx.ops import CONVERT

Array = npt.NDArray[Any]

_OLDEST = 7
_BATCHES = (29, 31)  # stand for a free number of samples: primes that are no usual sizes, not taken for another axis
_COMPUTED = 2**24  # numbers in a constant that a file has computed; beyond it the file is damaged
_DTYPES: dict[int, torch.dtype] = {TensorProto.FLOAT: torch.float32, TensorProto.DOUBLE: torch.float64}
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


_MOVES = {
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}


_WRITES = {"ScatterND"}  # from the third input into the first


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph of an ONNX file (opset 7 or newer, float32 or float64) with one input and one output.

    Weights in files of their own are read if they lie in the folder of `path`. The number of samples is free
    afterwards, even where the file has fixed it. What has no rule is one node of the graph, run by onnxruntime:
    `bounded` says whether there is any. Checked on the spot, where onnxruntime is installed and knows the file: it
    gives the same logits.
    """
    path = Path(path)
    model = parse(path)
    try:
        return _read(inliner.inline_local_functions(model) if model.functions else model)
    except ProofmapError:
        raise
    except Exception as error:  # a damaged file breaks its reader anywhere
        raise FileError(f"{path} is not a sound ONNX file: {first_line(error)}") from error


def _read(model: ModelProto) -> Graph:
    """The graph of a file; parts without a rule are run (`onnx_boxed`)."""
    reader = _Reader(model, _BATCHES[0])
    try:
        graph = _one_graph(model, reader)
    except UnsupportedError as error:
        own = {_name(node) for node in reader.nodes}  # a node with several outputs has several placeholders
        said = dict.fromkeys((n if n in own else n.rpartition("#")[0], op) for n, op in error.nodes)
        graph = box_file(reader.so_far(error.nodes), tuple(said), reader.mixed)
    except MixedError as error:
        graph = box_file(reader.so_far(()), (), error)
    check(graph, model, reader.nodes, reader.output, reader.fixed)
    return graph


@dataclass(frozen=True)
class _Moved:
    """Entries in an order in which the samples do not come first: exporters write an index as a transpose, a gather and
    a transpose back, and an assignment alike. `error` is for those who do anything else with them.
    """

    entries: Entries
    error: MixedError


class _Reader:
    """What has been read so far, by the file's names: branches, constants, and what operations without a rule gave."""

    def __init__(self, model: ModelProto, batch: int) -> None:
        self.model = model
        self.opset = _opset(model)
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        given, self.dtype = _input(model, stored)
        self.fixed, shape = _sizes(given)
        self.batch = self.fixed or batch
        self.output = model.graph.output[0].name
        self.nodes, self.wanted = _needed(model.graph.node, self.output)
        self.builder = Builder(shape, self.batch, given.name, self.dtype)
        self.branches: dict[str, str] = {given.name: given.name}
        self.constants: dict[str, Array] = {n: _weights(t) for n, t in stored.items() if n in self.wanted}
        self.moved: dict[str, _Moved] = {}
        self.lost: set[str] = set()
        self.mixed: MixedError | None = None
        self.places: dict[str, int] = {}  # of nodes without a rule

    def graph(self) -> Graph:
        for place, node in enumerate(self.nodes):
            self._read(node)
            self.places.update((name, place) for name in self.builder.missing if name not in self.places)
        if self.output in self.moved:
            raise self.moved[self.output].error
        if self.output not in {*self.branches, *self.constants, *self.lost}:
            raise FileError(f"nothing in the file computes its output {self.output!r}")
        if self.output in self.lost:
            if self.mixed is not None and not self.builder.missing:
                raise self.mixed
            raise UnsupportedError(tuple(self.builder.missing.items()))
        output = self._value(self.output)
        assert output is not None
        if isinstance(output, str) and self.builder.shape(output):
            shape = self.builder.shape(output)
            if prod(shape) == max(shape):  # (N, classes, 1, 1) and the like
                output = self.builder.reshape(f"{output}.flat", output, (prod(shape),))
        return self.builder.finish(output, torch.device("cpu"), self.dtype)

    def _read(self, node: NodeProto) -> None:
        name = _name(node)
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        if not op.isprintable():
            raise FileError(f"node {name!r} has the operation {op!r}, expected a name that can be printed")
        for missing in {*node.input} - {"", *self.branches, *self.constants, *self.moved, *self.lost}:
            raise FileError(f"{op} (node {name!r}) reads {missing!r}, which nothing before it computes")
        fixed = all(i in self.constants or not i for i in node.input)
        nested = any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute)
        try:
            if nested or op in _RANDOM or (op not in CONVERT and not fixed and op not in _MOVES):
                raise NoRule
            if self.lost.intersection(node.input):
                if op in ("Softmax", "LogSoftmax"):
                    raise NoRule
                if op == "MatMul" and not self.constants.keys() & {*node.input}:
                    raise NoRule("of two branches")
                self.lost.update(node.output)
            elif fixed:
                self.constants.update(zip(filter(None, node.output), self._evaluate(name, node, {}), strict=True))
            elif op not in CONVERT or self.moved.keys() & {*node.input}:
                self._move(name, op, node)
            else:
                self._keep(name, op, node, self._convert(name, op, node))
        except NoRule as reason:
            self._place(name, " ".join((op, *map(str, reason.args))), node, node.output)
        except ModelError as error:
            self._lose(name, op, node, error)

    def _lose(self, name: str, op: str, node: NodeProto, error: ModelError) -> None:
        """Follow the samples off their axis where that can be; else what comes after is only searched for operations
        without a rule. Where there is none yet, an error of another kind is raised.
        """
        if isinstance(error, MixedError):
            try:
                return self._move(name, op, node, error)
            except MixedError as again:
                self.mixed = self.mixed or again
        elif isinstance(error, LargeError) or (not self.builder.missing and self.mixed is None):
            raise error
        self.lost.update(filter(None, node.output))
        return None

    def so_far(self, missing: Sequence[tuple[str, str]]) -> Read:
        """What has been read, for who runs the file up to the last of the missing operations."""
        last = max((self.places[name] for name, _ in missing), default=0)
        given = next(i for i in self.model.graph.input if i.name == self.builder.input)
        shape = self.builder.shape(self.builder.input)
        constants, sizes = self.constants, self._shapes
        fixed = self.fixed or 0
        return Read(self.model, given, shape, fixed, self.output, self.nodes, constants, last, sizes, _read_whole)

    def _convert(self, name: str, op: str, node: NodeProto) -> Any:
        call = Call(name, op, self.opset, {a.name: _attribute(a) for a in node.attribute}, len(node.output))
        since = len(self.builder.nodes)
        try:
            return self.builder.settle(name, CONVERT[op](self.builder, call, *map(self._value, node.input)), since)
        except (NoRule, ProofmapError):
            raise
        except Exception as error:  # an attribute of another kind, an input too few, ...
            raise ModelError(f"{op} (node {name!r}) is not as ONNX has it: {first_line(error)}") from error

    def _keep(self, name: str, op: str, node: NodeProto, results: Any) -> None:
        results = results if isinstance(results, list) else [results]
        for key, result in zip(node.output, results, strict=False):
            if isinstance(result, Tensor):
                self.constants[key] = result.numpy()
            else:
                self.branches[key] = result
        rest = [key for key in node.output[len(results) :] if key in self.wanted]
        self._place(name, f"{op} with its further outputs", node, rest)

    def _move(self, name: str, op: str, node: NodeProto, error: MixedError | None = None) -> None:
        """The same operation on the positions of the entries; a branch again as soon as the samples come first."""
        moving = (0, 2) if op in _WRITES else (0,)
        error = error or next((self.moved[i].error for i in node.input if i in self.moved), None)
        rest = [i for k, i in enumerate(node.input) if k not in moving]
        over = all(_attribute(a) == "none" for a in node.attribute)  # its reduction
        plain = op in _MOVES or (op in _WRITES and over and node.input[0] != node.input[2])
        if not plain or not all(i in self.constants or not i for i in rest):
            raise error or NoRule("with computed positions")
        entries, *others = (self._entries(node.input[k]) for k in moving)

        def moved(*positions: Tensor) -> Tensor:
            feeds = {node.input[k]: p.numpy() for k, p in zip(moving, positions, strict=True)}
            return torch.from_numpy(self._evaluate(name, node, feeds)[0].copy())

        if others:
            found = merge(self.builder, entries, others[0], once(moved))
        else:
            found = Entries(entries.values, moved(entries.positions))
        since = len(self.builder.nodes)
        back = gather(self.builder, name, found)
        if back is None:
            self.moved[node.output[0]] = _Moved(found, error or MixedError(name, op))
        else:
            self._keep(name, op, node, self.builder.settle(name, back, since))

    def _entries(self, name: str) -> Entries:
        if name in self.moved:
            return self.moved[name].entries
        value = self._value(name)
        assert value is not None
        return Entries.of(self.builder, value)

    def _place(self, name: str, op: str, node: NodeProto, outputs: Sequence[str]) -> None:
        """Placeholders; where a shape is not known, what follows is lost, and only searched for more of them."""
        inputs = [self.branches[i] for i in node.input if i in self.branches]
        for key in outputs:
            shape = self._shapes.get(key)
            placeholder = self.builder.unsupported(name, op, inputs, shape or ())
            if shape is None:
                self.lost.add(key)
            else:
                self.branches[key] = placeholder

    @cached_property
    def _shapes(self) -> dict[str, list[int]]:
        """The shapes of one sample that onnx can infer."""
        try:
            graph = onnx.shape_inference.infer_shapes(self.model, data_prop=True).graph
            return {info.name: _sizes(info)[1] for info in (*graph.value_info, *graph.output) if _known(info)}
        except Exception:  # of use for a longer list in an error, no more
            return {}

    def _value(self, name: str) -> Value | None:
        if not name:
            return None
        return self.branches[name] if name in self.branches else torch.from_numpy(np.array(self.constants[name]))

    def _evaluate(self, name: str, node: NodeProto, also: dict[str, Array]) -> list[Array]:
        """The value of an operation on constants, as onnx's reference implementation has it."""
        from onnx.reference import ReferenceEvaluator  # slow to import, and not needed by many

        feeds = {i: also[i] if i in also else self.constants[i] for i in node.input if i}
        if _growth(node.op_type, list(feeds.values())) > _COMPUTED:
            raise LargeError(f"{node.op_type} (node {name!r}) makes a constant of more than {_COMPUTED} numbers")
        infos = [onnx.helper.make_empty_tensor_value_info(i) for i in feeds]
        outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o]
        graph = onnx.helper.make_graph([node], "constant", infos, outputs)
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)).run(None, feeds)
        except Exception as error:
            raise ModelError(
                f"{node.op_type} (node {name!r}) of constants cannot be computed: {first_line(error)}"
            ) from error
        return [np.asarray(result) for result in results]


def _name(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), node.op_type)


def _read_whole(model: ModelProto) -> Graph:
    """The graph of a file in which every operation has a rule."""
    return _one_graph(model, _Reader(model, _BATCHES[0]))


def _one_graph(model: ModelProto, reader: _Reader) -> Graph:
    """Read for two numbers of samples, a file gives one graph, unless it takes their number for something else."""
    graph = reader.graph()
    if reader.fixed or not any(node.op_type in ("Shape", "Size") for node in reader.nodes):
        return graph
    other = _Reader(model, _BATCHES[1]).graph()
    for node, twin in zip(graph.nodes, other.nodes, strict=False):
        pairs = [(node.weight, twin.weight), (node.bias, twin.bias)]
        pairs += [(value, twin.attributes.get(key)) for key, value in node.attributes.items()]
        named = (node.name, node.op, node.inputs, node.shape) == (twin.name, twin.op, twin.inputs, twin.shape)
        if not named or not all(_equal(a, b) for a, b in pairs):
            raise ModelError(
                f"{node.op} (node {node.name!r}) depends on the number of samples, expected every sample to be "
                "computed on its own: use the size of dimension 0 for shapes alone"
            )
    return graph


def _equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else bool(a == b)


def _opset(model: ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not _OLDEST <= version <= newest:
        raise ModelError(
            f"got a file of opset {version}, expected {_OLDEST} to {newest}: convert it with onnx.version_converter, "
            "or install a newer onnx"
        )
    return version


def _input(model: ModelProto, stored: dict[str, TensorProto]) -> tuple[ValueInfoProto, torch.dtype]:
    """The one input that is no initializer (files of IR version 3 list those as well), and its type."""
    inputs = [i for i in model.graph.input if i.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        names = ", ".join(i.name for i in inputs)
        raise ModelError(
            f"got a file with {len(inputs)} inputs ({names}) and {len(model.graph.output)} outputs, "
            "expected one of each"
        )
    if model.graph.sparse_initializer:
        raise ModelError("got a file with sparse weights, expected dense ones")
    kind = inputs[0].type.tensor_type.elem_type
    if kind not in _DTYPES:
        raise ModelError(f"got a file whose input has type {_type_name(kind)}, expected FLOAT or DOUBLE")
    return inputs[0], _DTYPES[kind]


def _type_name(kind: int) -> str:
    return TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else str(kind)


def _known(info: ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) > 0 and all(d.HasField("dim_value") for d in dims[1:])


def _sizes(info: ValueInfoProto) -> tuple[int | None, list[int]]:
    """(the number of samples, None where it is free; the shape of one) of the input."""
    dims = info.type.tensor_type.shape.dim
    if len(dims) < 2 or not _known(info) or any(d.dim_value < 1 for d in dims[1:]):
        shape = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims)
        raise ModelError(
            f"the input {info.name!r} has shape ({shape}), expected the samples first and then fixed sizes: export the "
            "model with fixed ones"
        )
    return max(dims[0].dim_value, 0) or None, [d.dim_value for d in dims[1:]]


def _needed(nodes: Sequence[NodeProto], output: str) -> tuple[list[NodeProto], set[str]]:
    """The nodes that the output depends on, and the names that they read."""
    wanted = {output}
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1], wanted


def _weights(tensor: TensorProto) -> Array:
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.kind == "f" and (np.isnan(array).any() or (array.size > 1 and np.isinf(array).any())):
        raise ModelError(
            f"the file's {tensor.name!r} has NaN or infinite entries, expected finite weights: "
            "check how the model was trained or exported"
        )
    return array


def _attribute(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _growth(op: str, inputs: list[Array]) -> int:
    """How many numbers an operation makes whose output does not follow from the sizes of its inputs."""
    if op in ("ConstantOfShape", "Expand") and inputs:
        return prod(max(1, int(n)) for n in inputs[-1].flatten())
    if op == "Tile" and len(inputs) == 2:
        return inputs[0].size * prod(max(1, int(n)) for n in inputs[1].flatten())
    if op == "Range" and len(inputs) == 3:
        start, stop, step = (float(i.flatten()[0]) for i in inputs)
        return int(abs((stop - start) / step)) if step else 0
    if op in ("Pad", "OneHot", "Resize", "Upsample", "EyeLike"):
        return (
            _COMPUTED + 1
            if any(i.dtype.kind in "iu" and i.size and int(np.abs(i).max()) > 2**16 for i in inputs)
            else 0
        )
    return 0
