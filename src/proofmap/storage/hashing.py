"""Names for what an explanation is about: hashes of models and inputs, and the versions at work."""

from __future__ import annotations

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

_PIECE = 2**20  # bytes read at a time
_NAMES: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()  # a graph never changes


def versions() -> dict[str, str]:
    """What an explanation was made with."""
    proofmap = str(sys.modules["proofmap"].__version__)  # the front door is nothing that a part may import
    return {"proofmap": proofmap, "torch": str(torch.__version__), "python": platform.python_version()}


def digest(parts: Iterable[str | Tensor]) -> str:
    """SHA-256, in hex, of texts and of tensors (type, shape and bytes), wherever they are stored.

    Each part goes in behind its kind and length, so that no two different lists read the same.
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
    """SHA-256 of a file's bytes, as `sha256sum` prints it."""
    seen = sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                seen.update(piece)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    return seen.hexdigest()


def hash_tensor(x: Tensor) -> str:
    """A name for an input: it changes with any entry, the shape or the type, and with nothing else."""
    return digest([x])


def hash_values(x: Tensor) -> str:
    """SHA-256 of a sample's values, little-endian and in their order, as a certificate states it."""
    values = x.detach().cpu().contiguous().numpy()
    return sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


def hash_graph(graph: Graph) -> str:
    """A name for a model: its operations, their names, order, shapes and attributes, and every weight; what was taken
    off its end; and of a part that is run as it is, what `OpaqueFunction.hash_parts` says.
    """
    if opaque_node(graph) is not None:  # that part may change
        return digest(_described(graph))
    if graph not in _NAMES:
        _NAMES[graph] = digest(_described(graph))
    return _NAMES[graph]


def _described(graph: Graph) -> Iterator[str | Tensor]:
    yield graph.output
    if graph.taken_off is not None:
        yield f"taken off {graph.taken_off}"
    for node in graph.nodes:
        yield repr((node.name, node.op, node.inputs, tuple(node.shape)))
        tensors = {"weight": node.weight, "bias": node.bias}
        for key, value in [*tensors.items(), *sorted(node.attributes.items())]:
            yield key
            yield from _spelled(value)


def _spelled(value: Any) -> Iterator[str | Tensor]:
    """Tensors go in whole, inside tuples too: what they print leaves entries out."""
    if isinstance(value, OpaqueFunction):
        yield from value.hash_parts()
    elif isinstance(value, list | tuple):
        yield f"{len(value)} entries"
        for entry in value:
            yield from _spelled(entry)
    else:
        yield value if isinstance(value, Tensor) else repr(value)
