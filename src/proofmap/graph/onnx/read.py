"""Conversion of an ONNX file to a graph, node by node.

The operator table converts operators; onnx's own evaluator computes constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import onnx
import torch
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto
from torch import Tensor

from proofmap.errors import FileError, ModelError, ProofmapError, UnsupportedError, first_line
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, TooLargeError, Value
from proofmap.graph.builder.scatter import EntryPositions, gather_entries, merge_entries
from proofmap.graph.ir import Graph
from proofmap.graph.onnx import message_fields
from proofmap.graph.onnx.message_fields import FLOAT_TYPES, Array, attribute_of, name_of
from proofmap.graph.onnx.operators.comparisons import check_whole, mark_whole
from proofmap.graph.onnx.operators.linear import without_repeats
from proofmap.graph.onnx.operators.node_inputs import Call
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from proofmap.graph.onnx.single_sample import SingleSampleBuilder

_RANDOM_OPERATORS = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
_MOVING_OPERATORS = {
    *("Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Squeeze", "Transpose"),
    *("Compress", "ReverseSequence", "Unsqueeze"),
}
_MAX_CONSTANT_ENTRIES = 2**24  # largest computed constant, in entries: beyond it the file is damaged
_WRITING_OPERATORS = {"ScatterND"}  # operators that write entries of the third input into the first


@dataclass(frozen=True)
class _MovedEntries:
    """Entries in an order in which the samples are not on axis 0.

    Exporters write an index, and an assignment, as a transpose, a gather or scatter, and a transpose back. `error` is
    raised by any other use of these entries.
    """

    entries: EntryPositions
    error: MixedSamplesError


class Reader:
    """Reads one file: computed values, constants, and values that are unknown after operations without a rule."""

    input_info: ValueInfoProto
    dtype: torch.dtype
    fixed_batch: int | None  # the number of samples, None if it is free
    nodes: list[NodeProto]
    wanted: set[str]
    builder: Builder

    def __init__(self, model: ModelProto, batch: int, *, single_sample: bool = False) -> None:
        """batch: the number of samples if the file leaves it free. single_sample: use a `SingleSampleBuilder`."""
        self.model = model
        self.opset: int = message_fields.opset_of(model)
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.input_info, self.dtype = message_fields.input_of(model, stored)
        self.fixed_batch, shape = message_fields.sizes_of(self.input_info)
        self.batch: int = self.fixed_batch or batch
        self.output: str = message_fields.output_of(model)
        self.nodes, self.wanted = message_fields.needed_for(model.graph.node, self.output)
        name = self.input_info.name
        self.builder = (
            SingleSampleBuilder(shape, name, self.dtype)
            if single_sample
            else Builder(shape, self.batch, name, self.dtype)
        )
        start = self.builder.reshape(f"{name}.whole", name, (1, *shape)) if single_sample else name
        self.computed: dict[str, str] = {name: start}
        self.constants: dict[str, Array] = {
            n: message_fields.weights_of(t) for n, t in stored.items() if n in self.wanted
        }
        self.moved: dict[str, _MovedEntries] = {}
        self.unknown: set[str] = set()
        self.mixed: MixedSamplesError | None = None
        self.missing_positions: dict[str, int] = {}  # the index of the node, for placeholders without a rule

    def graph(self) -> Graph:
        for place, node in enumerate(self.nodes):
            self._read(node)
            self.missing_positions.update(
                (name, place) for name in self.builder.missing if name not in self.missing_positions
            )
        if self.output in self.moved:
            raise self.moved[self.output].error
        if self.output not in {*self.computed, *self.constants, *self.unknown}:
            raise FileError(f"nothing in the file computes its output {self.output!r}")
        if self.output in self.unknown:
            if self.mixed is not None and not self.builder.missing:
                raise self.mixed
            raise UnsupportedError(tuple(self.builder.missing.items()))
        output = self._value(self.output)
        assert output is not None
        if isinstance(output, str) and self.builder.shape(output):
            shape = self.builder.shape(output)
            if prod(shape) == max(shape):  # (N, classes, 1, 1) and the like
                output = self.builder.reshape(f"{output}.flat", output, (prod(shape),))
            elif not self.builder.batch_axes and shape[0] == 1:  # the axis of the samples
                output = self.builder.reshape(f"{output}.sample", output, shape[1:])
        return self.builder.finish(output, torch.device("cpu"), self.dtype)

    def _read(self, node: NodeProto) -> None:
        name = name_of(node)
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        if not op.isprintable():
            raise FileError(f"node {name!r} has the operation {op!r}, expected a name that can be printed")
        for missing in {*node.input} - {"", *self.computed, *self.constants, *self.moved, *self.unknown}:
            raise FileError(f"{op} (node {name!r}) reads {missing!r}, which nothing before it computes")
        if op == "If" and node.input[0] in self.constants:
            return self._inline_if(name, node)
        fixed = all(i in self.constants or not i for i in node.input)
        nested = any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute)
        try:
            if (
                nested
                or op in _RANDOM_OPERATORS
                or (op not in CONVERTERS and not fixed and op not in _MOVING_OPERATORS)
            ):
                raise NoRule
            if self.unknown.intersection(node.input):
                self.unknown.update(node.output)
            elif fixed:
                self.constants.update(zip(filter(None, node.output), self._evaluate(name, node, {}), strict=True))
            elif op not in CONVERTERS or self.moved.keys() & {*node.input}:
                self._move(name, op, node)
            else:
                self._store_results(name, op, node, self._convert(name, op, node))
        except NoRule as reason:
            self._add_placeholders(name, " ".join((op, *map(str, reason.args))), node, node.output)
        except ModelError as error:
            self._recover(name, op, node, error)
        return None

    def _inline_if(self, name: str, node: NodeProto) -> None:
        """Read the subgraph of an If whose condition is a constant, in place of the If."""
        condition = self.constants[node.input[0]]
        side = "then_branch" if condition.size == 1 and bool(condition.item()) else "else_branch"
        graph = next((a.g for a in node.attribute if a.name == side), None)
        if condition.size != 1 or graph is None or len(graph.output) != len(node.output):
            raise FileError(f"If (node {name!r}) is not as ONNX has it, expected one condition and two branches")
        self.constants.update((tensor.name, message_fields.weights_of(tensor)) for tensor in graph.initializer)
        for inner in graph.node:
            self._read(inner)
        for outer, own in zip(node.output, graph.output, strict=True):
            known: tuple[dict[str, Any], ...] = (self.computed, self.constants, self.moved)
            for values in known:
                if own.name in values:
                    values[outer] = values[own.name]
            if own.name in self.unknown:
                self.unknown.add(outer)

    def _recover(self, name: str, op: str, node: NodeProto, error: ModelError) -> None:
        """Handle an error of a node.

        If the samples left axis 0, try to track the entries. Otherwise the outputs are unknown, and reading goes on
        only to find operations without a rule. If none was found before, another error is raised.
        """
        if isinstance(error, MixedSamplesError):
            try:
                return self._move(name, op, node, error)
            except MixedSamplesError as again:
                self.mixed = self.mixed or again
        elif isinstance(error, TooLargeError) or (not self.builder.missing and self.mixed is None):
            raise error
        self.unknown.update(filter(None, node.output))
        return None

    def _convert(self, name: str, op: str, node: NodeProto) -> Any:
        call = Call(name, op, self.opset, {a.name: attribute_of(a) for a in node.attribute}, len(node.output))
        since = len(self.builder.nodes)
        try:
            inputs = [*map(self._value, node.input)]
            check_whole(self.builder, op, inputs)
            made = CONVERTERS[op](self.builder, call, *inputs)
            if call.ignored:
                raise NoRule(f"with {', '.join(call.ignored)}")
            made = self.builder.name_result(name, made, since)
            mark_whole(self.builder, op, inputs, made, to_float=op == "Cast" and call.get("to") in FLOAT_TYPES)
            return made
        except (NoRule, ProofmapError):
            raise
        except Exception as error:  # an attribute of another type, a missing input, ...
            raise ModelError(f"{op} (node {name!r}) is not as ONNX has it: {first_line(error)}") from error

    def _store_results(self, name: str, op: str, node: NodeProto, results: Any) -> None:
        results = results if isinstance(results, list) else [results]
        for key, result in zip(node.output, results, strict=False):
            if isinstance(result, Tensor):
                self.constants[key] = result.numpy()
            else:
                self.computed[key] = result
        rest = [key for key in node.output[len(results) :] if key in self.wanted]
        self._add_placeholders(name, f"{op} with its further outputs", node, rest)

    def _move(self, name: str, op: str, node: NodeProto, error: MixedSamplesError | None = None) -> None:
        """Apply the operation to the positions of the entries; add a node once the samples are on axis 0 again."""
        moving = (0, 2) if op in _WRITING_OPERATORS else (0,)
        error = error or next((self.moved[i].error for i in node.input if i in self.moved), None)
        rest = [i for k, i in enumerate(node.input) if k not in moving]
        over = all(attribute_of(a) == "none" for a in node.attribute)  # no reduction
        plain = op in _MOVING_OPERATORS or (op in _WRITING_OPERATORS and over and node.input[0] != node.input[2])
        if not plain or not all(i in self.constants or not i for i in rest):
            raise error or NoRule("with computed positions")
        entries, *others = (self._entries(node.input[k]) for k in moving)

        def moved(*positions: Tensor) -> Tensor:
            feeds = {node.input[k]: p.numpy() for k, p in zip(moving, positions, strict=True)}
            return torch.from_numpy(self._evaluate(name, node, feeds)[0].copy())

        if others:
            entries = merge_entries(self.builder, entries, others[0], without_repeats(moved))
        else:
            entries = EntryPositions(entries.values, moved(entries.positions))
        since = len(self.builder.nodes)
        back = gather_entries(self.builder, name, entries)
        if back is None:
            self.moved[node.output[0]] = _MovedEntries(entries, error or MixedSamplesError(name, op))
        else:
            self._store_results(name, op, node, self.builder.name_result(name, back, since))

    def _entries(self, name: str) -> EntryPositions:
        if name in self.moved:
            return self.moved[name].entries
        value = self._value(name)
        assert value is not None
        return EntryPositions.of(self.builder, value)

    def _add_placeholders(self, name: str, op: str, node: NodeProto, outputs: Sequence[str]) -> None:
        """Add placeholders. If a shape is unknown, the values that follow are unknown too."""
        inputs = [self.computed[i] for i in node.input if i in self.computed]
        for key in outputs:
            shape = self.shapes.get(key)
            placeholder = self.builder.add_unsupported(name, op, inputs, shape or ())
            if shape is None:
                self.unknown.add(key)
            else:
                self.computed[key] = placeholder

    @cached_property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes for one sample that onnx can infer."""
        try:
            graph = onnx.shape_inference.infer_shapes(self.model, data_prop=True).graph
            infos = filter(message_fields.has_fixed_shape, (*graph.value_info, *graph.output))
            return {info.name: message_fields.sizes_of(info)[1] for info in infos}
        except Exception:  # only needed for a longer list in an error
            return {}

    def _value(self, name: str) -> Value | None:
        if not name:
            return None
        return self.computed[name] if name in self.computed else torch.from_numpy(np.array(self.constants[name]))

    def _evaluate(self, name: str, node: NodeProto, also: dict[str, Array]) -> list[Array]:
        """Compute a node with onnx's reference implementation, from constants and the values in `also`."""
        from proofmap.graph.onnx.reference_evaluation import (
            reference_evaluator,
        )  # slow to import, and not needed by many

        feeds = {i: also[i] if i in also else self.constants[i] for i in node.input if i}
        if _output_entries(node.op_type, list(feeds.values())) > _MAX_CONSTANT_ENTRIES:
            raise TooLargeError(
                f"{node.op_type} (node {name!r}) makes a constant of more than {_MAX_CONSTANT_ENTRIES} numbers"
            )
        infos = [onnx.helper.make_empty_tensor_value_info(i) for i in feeds]
        outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o]
        graph = onnx.helper.make_graph([node], "constant", infos, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(result) for result in reference_evaluator(model).run(None, feeds)]
        except Exception as error:
            reason = f"of constants cannot be computed: {first_line(error)}"
            raise ModelError(f"{node.op_type} (node {name!r}) {reason}") from error


def _output_entries(op: str, inputs: list[Array]) -> int:
    """Return the output size of an operation whose output size depends on the values of its inputs; 0 for others."""
    if op in ("ConstantOfShape", "Expand") and inputs:
        return prod(max(1, int(n)) for n in inputs[-1].flatten())
    if op == "Tile" and len(inputs) == 2:
        return inputs[0].size * prod(max(1, int(n)) for n in inputs[1].flatten())
    if op == "Range" and len(inputs) == 3:
        start, stop, step = (float(i.flatten()[0]) for i in inputs)
        return int(abs((stop - start) / step)) if step else 0
    if op in ("Pad", "OneHot", "Resize", "Upsample", "EyeLike"):
        large = any(i.dtype.kind in "iu" and i.size and int(np.abs(i).max()) > 2**16 for i in inputs)
        return _MAX_CONSTANT_ENTRIES + 1 if large else 0
    return 0
