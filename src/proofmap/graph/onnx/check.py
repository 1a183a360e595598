"""A graph against onnxruntime, which runs the file that it was read from: where it is installed, and knows the file."""

from __future__ import annotations

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
    """Raise where onnxruntime computes something else from these nodes: two points together, and one of them alone.
    Whether it could be asked.

    `batch` is the number of samples that the file fixes, if it does. `model` is cut down to the nodes: whatever else is
    in the file is not run. Double precision decides whether single precision's rounding is at fault, which is no error:
    the points are drawn here, and a user's own need not be so unlucky. It is the word of another implementation: where
    the two are further apart than rounding leads, it is not known what the file means. `batch_first`: it cannot be asked
    where its output does not have the samples first.
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
        whose = "onnxruntime's logits and those of the graph that was read differ by {} of the largest"
        require_agreement(graph, Reference(run, run.double, other=True), points, whose, _ADVICE)
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
    """onnxruntime's logits, and those of onnx's own evaluator, which has everything in double precision."""

    session: Any
    model: ModelProto
    name: str  # of the input
    batch: int | None
    batch_first: bool  # whether the output has to have the samples first

    def __call__(self, x: Tensor) -> Tensor:
        return self._run_in_batches(lambda feeds: self.session.run(None, feeds), x)

    def double(self, x: Tensor) -> Tensor:
        from onnx.reference import ReferenceEvaluator  # slow to import, and hardly ever needed

        evaluator = ReferenceEvaluator(_in_double_precision(self.model))
        return self._run_in_batches(lambda feeds: evaluator.run(None, feeds), x)

    def _run_in_batches(self, run: Any, x: Tensor) -> Tensor:
        """Batch by batch where the file fixes their size, the last one filled up."""
        size = self.batch or len(x)
        full = x[torch.arange(-(-len(x) // size) * size) % len(x)]
        try:
            with np.errstate(all="ignore"):
                parts = [np.asarray(run({self.name: part.numpy()})[0]) for part in full.split(size)]
            if self.batch_first and any(part.shape[:1] != (size,) for part in parts):
                raise _NotRunError
            parts = [part.reshape(size, -1) for part in parts]
        except Exception as error:  # what it has no kernel for, sizes that do not fit, ...
            raise _NotRunError from error
        return torch.from_numpy(np.concatenate(parts)[: len(x)])


def _start_session(model: ModelProto, nodes: Sequence[NodeProto], output: str) -> Any:
    """One that runs these nodes on one thread and says nothing, or None where there can be none."""
    _keep_only(model, nodes, output)
    try:
        return start_session(model.SerializeToString(), plain=True)
    except Exception:  # onnxruntime missing, an opset too new, no kernel in double precision, over two gigabytes, ...
        return None


def _keep_only(model: ModelProto, nodes: Sequence[NodeProto], output: str) -> None:
    """Leave nothing in the model but what the output needs."""
    graph = model.graph
    if len(nodes) < len(graph.node):
        kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)
    if [one.name for one in graph.output] != [output]:
        del graph.output[:]
        graph.output.append(onnx.ValueInfoProto(name=output))


def _in_double_precision(model: ModelProto) -> ModelProto:
    """The same model with every number in double precision."""
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
