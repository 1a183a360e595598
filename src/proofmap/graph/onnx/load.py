"""`pm.load`: an ONNX file as a graph, compared with onnxruntime."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, inliner
from torch import Tensor

from proofmap.errors import FileError, ModelError, ProofmapError, ProofmapWarning, UnsupportedError, first_line
from proofmap.graph.builder.graph_builder import MixedSamplesError
from proofmap.graph.ir import Graph, ModelFile
from proofmap.graph.onnx.file import parse_with_hash
from proofmap.graph.onnx.low_precision import in_single_precision
from proofmap.graph.onnx.message_fields import name_of
from proofmap.graph.onnx.model_agreement import check
from proofmap.graph.onnx.opaque_part import run_as_is
from proofmap.graph.onnx.read import Reader
from proofmap.graph.onnx.single_input import with_joined_inputs, with_samples_axis

_PROBE_BATCH_SIZES = (29, 31)  # used for a free number of samples: rare primes, so that no other axis has this size


def load(path: str | os.PathLike[str]) -> Graph:
    """Return the graph of an ONNX file (opset 7 or newer, float32 or float64) with one output.

    The graph of a file with several inputs takes their joined vector (`Graph.parts`). pm.overlap and explainers take
    the inputs as a tuple.

    If the file's input has no axis for samples, the graph adds one: an input (12, 8) with an output (1, 1) is one
    sample.

    External weights are read if they are in the folder of `path`. The number of samples may differ afterwards, even if
    the file fixes it. Operations without a rule are in one opaque node, which onnxruntime computes. Bounds
    refuse it with UnsupportedError. If onnxruntime is installed and can run the file, its logits are compared with the
    graph's.

    A file that computes in float16 or bfloat16 is read as the float32 network with the same weights, with a warning.
    Nothing is stated about float16 or bfloat16 arithmetic.

    >>> found = pm.EVA(model, ball, groups=cells).explain(x[:1])
    >>> found.certificate().save("digit.proof")        # which writes the network too
    (PosixPath('digit.proof'), PosixPath('digit.onnx'), PosixPath('digit.npy'))
    >>> pm.load("digit.onnx").classes
    10
    """
    path = Path(path)
    model, sha256 = parse_with_hash(path)
    try:
        model = inliner.inline_local_functions(model) if model.functions else model
        single = in_single_precision(model)
        model, parts = with_joined_inputs(single or model)
        whole = with_samples_axis(model)
        graph = replace(_read(whole or model), parts=parts)
        if sha256 is None or parts or single is not None or whole is not None:  # the file itself has another input
            return graph
        return replace(graph, file=ModelFile(path, sha256=sha256))
    except (ProofmapError, ProofmapWarning, MemoryError):
        raise
    except Exception as error:  # a damaged file may fail anywhere
        raise FileError(f"{path} is not a sound ONNX file: {first_line(error)}") from error


def _read(model: ModelProto) -> Graph:
    """Return the graph of a file, with an opaque node if operations have no rule."""
    reader = Reader(model, _PROBE_BATCH_SIZES[0])
    try:
        graph = _graph_for_any_batch(model, reader)
    except (UnsupportedError, MixedSamplesError) as error:
        mixed = isinstance(error, MixedSamplesError) or reader.mixed is not None
        graph = (_single_sample_graph(model, reader.fixed_batch) if mixed else None) or _opaque_graph(reader, error)
    check(graph, model, reader.nodes, reader.output, reader.fixed_batch)
    return graph


def _single_sample_graph(model: ModelProto, batch: int | None) -> Graph | None:
    """Read the file as a function of one sample, in which the samples may leave axis 0. None if that fails.

    If the number of samples is free, onnxruntime must confirm that the file computes every sample on its own.
    """
    if batch not in (None, 1):
        return None
    reader = Reader(model, 1, single_sample=True)
    try:
        graph = reader.graph()
        alone = batch == 1 or check(graph, model, reader.nodes, reader.output, None, batch_first=True)
    except UnsupportedError as error:
        return _opaque_graph(reader, error) if batch == 1 else None
    except ModelError:
        return None
    return graph if alone else None


def _opaque_graph(reader: Reader, error: UnsupportedError | MixedSamplesError) -> Graph:
    if isinstance(error, MixedSamplesError):
        return run_as_is(reader, 0, _read_bounded, error.missing, error)
    names = {name_of(node) for node in reader.nodes}  # a node with several outputs has several placeholders
    missing = dict.fromkeys((n if n in names else n.rpartition("#")[0], op) for n, op in error.nodes)
    last = max((reader.missing_positions[name] for name, _ in error.nodes), default=0)
    return run_as_is(reader, last, _read_bounded, tuple(missing), reader.mixed)


def _read_bounded(model: ModelProto) -> Graph:
    """Return the graph of a file in which every operation has a rule."""
    return _graph_for_any_batch(model, Reader(model, _PROBE_BATCH_SIZES[0]))


def _graph_for_any_batch(model: ModelProto, reader: Reader) -> Graph:
    """Return the graph. Raise if it depends on the number of samples: it is read for two of them and compared."""
    graph = reader.graph()
    if reader.fixed_batch or not any(node.op_type in ("Shape", "Size") for node in reader.nodes):
        return graph
    other = Reader(model, _PROBE_BATCH_SIZES[1]).graph()
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
