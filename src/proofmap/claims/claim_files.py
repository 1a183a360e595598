"""Claims as files: networks in onnx, questions in vnnlib, and instances.csv, which lists them as VNN-COMP does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from proofmap.claims.claim import Claim, text_of
from proofmap.graph import Graph
from proofmap.graph.onnx import as_onnx, parse, with_rows
from proofmap.sources import Model
from proofmap.sources.named_model import check_unchanged
from proofmap.storage.csv_cells import one_line
from proofmap.storage.hashing import hash_values

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["LIST", "Questions"]

LIST = "instances.csv"
_TIMEOUT = 300  # seconds that the list gives a tool for each question


@dataclass(eq=False)
class Questions:
    """The files of claims about one model; a network that many ask about is made once."""

    model: Model
    instances: list[str] = field(default_factory=list)  # the lines of the list
    _made: set[str] = field(default_factory=set)  # networks

    def files(self, claim: Claim, x: Tensor, sample: str, graph: Graph, digest: str) -> dict[str, bytes]:
        """The question by its place, and before it its network where no claim before had that.

        x (*shape): the values of the sample of that name. graph: the network as it was explained, and its digest.
        """
        net, question = f"onnx/{claim.form.name}.onnx", f"vnnlib/{claim.name}.vnnlib"
        about = [
            *(f"model file {file.path}, sha256 {file.sha256}" for file in self.model.files),
            f"network as it was explained, proofmap's digest {digest}",
            f"input {sample}, sha256 of its values as {str(x.dtype).removeprefix('torch.')} {hash_values(x)}",
        ]
        about = [one_line(line) for line in about]
        made: dict[str, bytes] = {}
        if net not in self._made:
            made[net] = with_rows(_network(self.model, graph), claim.form.rows).SerializeToString()
            self._made.add(net)
        made[question] = text_of(claim, net, about).encode()
        self.instances.append(f"{net},{question},{_TIMEOUT}\n")
        return made

    @property
    def listed(self) -> bytes:
        """All of them, as a file."""
        return "".join(self.instances).encode()


def _network(model: Model, graph: Graph) -> ModelProto:
    """The user's own file where it takes the explained values and gives logits; else the network as it was traced."""
    preparation = model.preparation
    bare = preparation.mean is None and preparation.std is None and preparation.layout == "NCHW"
    if Path(model.name).suffix == ".onnx" and bare and graph.taken_off is None:
        file = parse(Path(model.name))
        check_unchanged(model.files)
        ends = file.graph.output
        if len(ends) == 1 and len(ends[0].type.tensor_type.shape.dim) == 2:
            return file
    return as_onnx(graph)
