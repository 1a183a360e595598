"""Check of a graph against onnxruntime, which runs the file that the graph was read from."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto
from torch import Tensor

from proofmap.graph.agreement import Cause, Reference, require_agreement
from proofmap.graph.ir import Graph
from proofmap.graph.onnx.runtime_session import start_session


def check(
    graph: Graph,
    model: ModelProto,
    nodes: Sequence[NodeProto],
    output: str,
    batch: int | None,
    *,
    batch_first: bool = False,
) -> bool:
    """Raise if onnxruntime computes other logits from these nodes. Return False if it cannot run them.

    Two random points are compared, in one batch and one of them alone. `batch` is the number of samples that the file
    fixes, if any. `model` is reduced to the nodes. With `batch_first`, an output without the samples on axis 0 counts
    as not runnable.

    A difference that vanishes in double precision is due to rounding and is no error. Double precision is computed by
    onnx's own evaluator. If both implementations differ by more than rounding errors, the file's meaning is unclear,
    which is an error.
    """
    session = _start_session(model, nodes, output)
    if session is None:
        return False
    run = _ReferenceRuns(session, model, graph.input.name, batch, batch_first)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(2, *graph.input.shape, generator=generator, dtype=torch.float64)
    points = (drawn * torch.tensor([1.0, 4.0]).view(-1, *(1,) * (drawn.ndim - 1))).to(graph.dtype)
    points[1] -= 2
    try:
        # A rounding error may move a value by a whole step: then only double precision tells whether both agree.
        steps = any(node.op in ("round", "floor", "sign") for node in graph.nodes)
        whose = "onnxruntime's logits and those of the graph that was read differ by {} of the largest"
        require_agreement(graph, Reference(run, run.double, other=not steps), points, whose, _ADVICE)
    except _NotRunError:
        return False
    return True


_ADVICE = {
    Cause.RANDOM: f"{Cause.RANDOM.value}, expected a file that is a function",
    Cause.BATCH: f"{Cause.BATCH.value}, expected every sample to be computed on its own",
    Cause.REFERENCE: "onnxruntime, and onnx's own evaluator in double precision, give different logits for this file, "
    "so that its meaning is not settled: export it without what they take differently, for instance with pads in the "
    "place of auto_pad beside dilations",
    Cause.READING: "Proofmap has read the file wrongly, please report it with the file",
}


class _NotRunError(Exception):
    """The file cannot be run."""


@dataclass(frozen=True)
class _ReferenceRuns:
    """Logits by onnxruntime, and in double precision by onnx's own evaluator."""

    session: Any
    model: ModelProto
    name: str  # the name of the file's input
    batch: int | None
    batch_first: bool  # whether the output must have the samples first

    def __call__(self, x: Tensor) -> Tensor:
        return self._run_in_batches(lambda feeds: self.session.run(None, feeds), x)

    def double(self, x: Tensor) -> Tensor:
        from proofmap.graph.onnx.reference_evaluation import (
            reference_evaluator,
        )  # slow to import, and hardly ever needed

        evaluator = reference_evaluator(_in_double_precision(self.model))
        return self._run_in_batches(lambda feeds: evaluator.run(None, feeds), x)

    def _run_in_batches(self, run: Any, x: Tensor) -> Tensor:
        """Run batches of the size that the file fixes, if any; the last one is filled up."""
        size = self.batch or len(x)
        full = x[torch.arange(-(-len(x) // size) * size) % len(x)]
        try:
            with np.errstate(all="ignore"):
                parts = [np.asarray(run({self.name: part.numpy()})[0]) for part in full.split(size)]
            if self.batch_first and any(part.shape[:1] != (size,) for part in parts):
                raise _NotRunError
            parts = [part.reshape(size, -1) for part in parts]
        except Exception as error:  # a missing kernel, sizes that do not fit, ...
            raise _NotRunError from error
        return torch.from_numpy(np.concatenate(parts)[: len(x)])


def _start_session(model: ModelProto, nodes: Sequence[NodeProto], output: str) -> Any:
    """Return a silent session for these nodes on one thread, or None if it cannot be created."""
    _keep_only(model, nodes, output)
    try:
        return start_session(model.SerializeToString(), plain=True)
    except Exception:  # onnxruntime missing, an opset too new, no kernel in double precision, over two gigabytes, ...
        return None


def _keep_only(model: ModelProto, nodes: Sequence[NodeProto], output: str) -> None:
    """Remove the nodes that the output does not need."""
    graph = model.graph
    if len(nodes) < len(graph.node):
        kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)
    if [one.name for one in graph.output] != [output]:
        del graph.output[:]
        graph.output.append(onnx.ValueInfoProto(name=output))


def _in_double_precision(model: ModelProto) -> ModelProto:
    """Return the model with all numbers in double precision."""
    copied = copy.deepcopy(model)
    attributes = [(node, attribute) for node in copied.graph.node for attribute in node.attribute]
    for tensor in (*copied.graph.initializer, *(attribute.t for _, attribute in attributes)):
        if tensor.data_type == TensorProto.FLOAT:
            exact = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(exact, tensor.name))
    for node, attribute in attributes:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
    return copied
