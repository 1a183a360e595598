"""Parsing of ONNX files and their external weight files. No file outside the model's folder is opened."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from proofmap.errors import FileError, first_line


def parse(path: Path) -> ModelProto:
    """Return the model with all external weights."""
    return parse_with_hash(path)[0]


def parse_with_hash(path: Path) -> tuple[ModelProto, str | None]:
    """Return the model with all external weights, and the SHA-256 of the file; None if weights are in other files."""
    try:
        data = path.read_bytes()
        model = onnx.load_model_from_string(data)
    except MemoryError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # the parser raises its own types
        raise FileError(f"{path} is not an ONNX file, or only a part of one: {first_line(error)}") from error
    if not model.graph.node or not model.graph.output or not model.opset_import:
        raise FileError(f"{path} is not an ONNX file, or only a part of one: it holds no network")
    whole = not _external_tensors(model)
    _load_external(model, path)
    return model, sha256(data).hexdigest() if whole else None


def external_data_files(path: Path) -> list[Path]:
    """Return the files with external weights of a model, each once."""
    model = onnx.load_model_from_string(path.read_bytes())
    names = [
        entry.value for tensor in _external_tensors(model) for entry in tensor.external_data if entry.key == "location"
    ]
    return [path.parent / name for name in dict.fromkeys(names)]


def _external_tensors(model: ModelProto) -> list[TensorProto]:
    """Return the tensors that are stored in other files."""
    outside = [t for t in _graph_tensors(model.graph) if t.data_location == TensorProto.EXTERNAL]
    return outside + [
        t for f in model.functions for t in _node_tensors(f.node) if t.data_location == TensorProto.EXTERNAL
    ]


def _load_external(model: ModelProto, path: Path) -> None:
    """Read the external weights, after all their file names have been checked."""
    tensors = _external_tensors(model)
    for tensor in tensors:
        _check_location(tensor, path)
    for tensor in tensors:
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except Exception as error:  # onnx makes further checks
            raise FileError(
                f"{path} keeps {tensor.name!r} in a file that cannot be read: {first_line(error)}"
            ) from error
        tensor.data_location = TensorProto.DEFAULT


def _check_location(tensor: TensorProto, path: Path) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    kept = f"{path} keeps {tensor.name!r} in {location!r}"
    folder = path.parent.resolve()
    try:
        target = (folder / location).resolve()
        start, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
        inside = bool(location) and ".." not in Path(location).parts and target.is_relative_to(folder)
        if not inside or Path(location).is_absolute():
            raise FileError(f"{kept}, which leaves the model's folder: only files beside the model are opened")
        if not target.is_file():
            raise FileError(f"{kept}, which is missing: copy both files together")
        if start < 0 or length < 0 or start + length > target.stat().st_size:
            raise FileError(f"{kept}, which is too short: copy both files again")
    except (OSError, ValueError) as error:
        raise FileError(f"{kept}, which cannot be opened: {first_line(error)}") from error


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every tensor, including those in attributes and subgraphs."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)
