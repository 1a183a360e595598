"""Fingerprints of models and inputs by SHA-256, and the versions of the software."""

import platform
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from proofmap.errors import FileError
from proofmap.graph import Graph
from proofmap.graph.opaque import OpaqueFunction, opaque_node

_READ_BYTES = 2**20  # bytes per read
_GRAPH_HASHES: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()  # valid because a graph is immutable


def versions() -> dict[str, str]:
    """Return the versions of Proofmap, torch and Python."""
    proofmap = str(sys.modules["proofmap"].__version__)  # modules may not import the package root
    return {"proofmap": proofmap, "torch": str(torch.__version__), "python": platform.python_version()}


def digest(parts: Iterable[str | Tensor]) -> str:
    """Return the SHA-256, in hex, of texts and tensors (type, shape and bytes), on any device.

    Each part is preceded by its kind and length, so that different lists have different inputs of the hash.
    """
    seen = sha256()
    for part in parts:
        if isinstance(part, Tensor):
            head = f"tensor {str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}"
            body = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        else:
            head, body = "text", memoryview(part.encode("utf-8", "surrogatepass"))
        seen.update(f"{head} {body.nbytes}\n".encode())
        seen.update(body)
    return seen.hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as printed by `sha256sum`."""
    seen = sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                seen.update(piece)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    return seen.hexdigest()


def hash_tensor(x: Tensor) -> str:
    """Return the fingerprint of an input: it depends on its entries, shape and type, and on nothing else."""
    return digest([x])


def hash_values(x: Tensor) -> str:
    """Return the SHA-256 of a sample's values, little-endian and in order, as stated in a certificate."""
    values = x.detach().cpu().contiguous().numpy()
    return sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


def hash_graph(graph: Graph) -> str:
    """Return the fingerprint of a model.

    It covers the operations with their names, order, shapes and attributes, every weight, the part that was removed
    from the end, and the description `OpaqueFunction.hash_parts` of each opaque part.
    """
    if opaque_node(graph) is not None:  # an opaque part may change
        return digest(_graph_parts(graph))
    if graph not in _GRAPH_HASHES:
        _GRAPH_HASHES[graph] = digest(_graph_parts(graph))
    return _GRAPH_HASHES[graph]


def _graph_parts(graph: Graph) -> Iterator[str | Tensor]:
    yield graph.output
    if graph.taken_off is not None:
        yield f"taken off {graph.taken_off}"
    for node in graph.nodes:
        yield repr((node.name, node.op, node.inputs, tuple(node.shape)))
        tensors = {"weight": node.weight, "bias": node.bias}
        for key, value in [*tensors.items(), *sorted(node.attributes.items())]:
            yield key
            yield from _value_parts(value)


def _value_parts(value: Any) -> Iterator[str | Tensor]:
    """Yield tensors as a whole, also inside tuples, because their printed form omits entries."""
    if isinstance(value, OpaqueFunction):
        yield from value.hash_parts()
    elif isinstance(value, list | tuple):
        yield f"{len(value)} entries"
        for entry in value:
            yield from _value_parts(entry)
    else:
        yield value if isinstance(value, Tensor) else repr(value)
