"""Files of claims: ONNX networks, VNN-LIB properties, and instances.csv, which lists them in the format of VNN-COMP."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from proofmap.claims.claim import BoundClaim, vnnlib_text
from proofmap.graph import Graph
from proofmap.graph.onnx import as_onnx, parse, with_rows
from proofmap.sources import Model
from proofmap.sources.named_model import check_unchanged
from proofmap.storage.exported_tables import one_line
from proofmap.storage.hashing import hash_values

if TYPE_CHECKING:
    from onnx import ModelProto

LIST = "instances.csv"
_TIMEOUT_SECONDS = 300  # per property, as stated in instances.csv


@dataclass(eq=False)
class VnnlibFiles:
    """The files of all claims about one model; each network is written once."""

    model: Model
    instances: list[str] = field(default_factory=list)  # lines of instances.csv
    _made: set[str] = field(default_factory=set)  # names of the networks that were written

    def files(self, claim: BoundClaim, x: Tensor, sample: str, graph: Graph, digest: str) -> dict[str, bytes]:
        """Return the property of a claim by its path, preceded by its network unless an earlier claim used it.

        Args:
            x: (*shape), the values of the sample with the name `sample`.
            graph: The network as it was explained, with its digest.
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
        made[question] = vnnlib_text(claim, net, about).encode()
        self.instances.append(f"{net},{question},{_TIMEOUT_SECONDS}\n")
        return made

    @property
    def listed(self) -> bytes:
        """The content of instances.csv."""
        return "".join(self.instances).encode()


def _network(model: Model, graph: Graph) -> ModelProto:
    """Return the user's ONNX file if it maps the explained values to logits; otherwise export the traced network."""
    preparation = model.preparation
    bare = preparation.mean is None and preparation.std is None and preparation.layout == "NCHW"
    if Path(model.name).suffix == ".onnx" and bare and graph.taken_off is None:
        file = parse(Path(model.name))
        check_unchanged(model.files)
        ends = file.graph.output
        if len(ends) == 1 and len(ends[0].type.tensor_type.shape.dim) == 2:
            return file
    return as_onnx(graph)
