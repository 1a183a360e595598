"""A model as its user runs it, to confirm what was found: an ONNX file by onnxruntime, a module by torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proofmap.graph import Graph
from proofmap.graph.onnx import parse, start_session
from proofmap.sources.named_model import Model, check_unchanged
from proofmap.sources.prepared_network import wrapped


@dataclass(frozen=True, eq=False)
class Rerun:
    """Samples (N, *shape) in the user's own values -> outputs (N, classes), and by whom."""

    by: str  # "onnxruntime" or "torch"; "proofmap" where an ONNX file can be run by nobody else here
    network: nn.Module | Graph | _Session

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The outputs, in the precision of the model."""
        return torch.cat([self._one(sample) for sample in x.split(1)])

    def _one(self, x: Tensor) -> Tensor:
        if isinstance(self.network, nn.Module):
            like = next((p for p in self.network.parameters() if p.is_floating_point()), x)
            outputs: Tensor = self.network(x.to(like.device, like.dtype))
        else:
            outputs = self.network(x.cpu().to(self.network.dtype))
        return outputs.flatten(1).to(x.device)


def rerun(model: Model) -> Rerun:
    """How a model is run without our reading of it."""
    if isinstance(model.network, nn.Module):
        return Rerun("torch", model.network)
    session = _session(Path(model.name))
    check_unchanged(model.files)
    if session is None:
        return Rerun("proofmap", model.network)
    return Rerun("onnxruntime", _Session(session, wrapped(nn.Identity(), model.preparation)))


@dataclass(frozen=True, eq=False)
class _Session:
    """One sample at a time, through the same preparation as in front of our graph."""

    session: Any
    prepare: nn.Module

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the file."""
        return torch.float64 if self.session.get_inputs()[0].type == "tensor(double)" else torch.float32

    def __call__(self, x: Tensor) -> Tensor:
        given = self.session.get_inputs()[0]
        batch, *shape = given.shape  # the first may be a name
        count = batch if isinstance(batch, int) and batch > 0 else 1
        sample = self.prepare(x).to(self.dtype).reshape(1, *shape).expand(count, *shape)
        outputs = torch.from_numpy(self.session.run(None, {given.name: sample.contiguous().numpy()})[0])
        return outputs.reshape(count, -1)[:1]


def _session(path: Path) -> Any | None:
    """None where onnxruntime is not installed, or cannot run the file."""
    try:
        return start_session(parse(path).SerializeToString())
    except Exception:  # it has its own, such as for an opset that it does not know yet
        return None
