"""Confirm counterexamples: run an ONNX file with onnxruntime and a module with torch, as its user does."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proofmap.graph import Graph
from proofmap.graph.onnx import parse, start_session
from proofmap.inputs.several_inputs import InputPart, split_tensor
from proofmap.sources.named_model import Model, check_unchanged
from proofmap.sources.prepared_network import wrapped


@dataclass(frozen=True, eq=False)
class Rerun:
    """Runs a model on samples (N, *shape) without our graph; returns outputs (N, classes)."""

    by: str  # "onnxruntime" or "torch"; "proofmap" if onnxruntime cannot run the file
    network: nn.Module | Graph | _Session

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs, in the precision of the model."""
        return torch.cat([self._one(sample) for sample in x.split(1)])

    def _one(self, x: Tensor) -> Tensor:
        if isinstance(self.network, nn.Module):
            like = next((p for p in self.network.parameters() if p.is_floating_point()), x)
            outputs: Tensor = self.network(x.to(like.device, like.dtype))
        else:
            outputs = self.network(x.cpu().to(self.network.dtype))
        return outputs.flatten(1).to(x.device)


def rerun(model: Model) -> Rerun:
    """Choose the program that runs a model independently of our graph."""
    if isinstance(model.network, nn.Module):
        return Rerun("torch", model.network)
    session = _session(Path(model.name))
    check_unchanged(model.files)
    if session is None:
        return Rerun("proofmap", model.network)
    return Rerun("onnxruntime", _Session(session, wrapped(nn.Identity(), model.preparation), model.parts))


@dataclass(frozen=True, eq=False)
class _Session:
    """An onnxruntime session that takes one sample at a time, with the same preparation as our graph."""

    session: Any
    prepare: nn.Module
    parts: tuple[InputPart, ...] = ()  # several inputs, whose joined vector the sample is

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the file's input."""
        return torch.float64 if self.session.get_inputs()[0].type == "tensor(double)" else torch.float32

    def __call__(self, x: Tensor) -> Tensor:
        given = self.session.get_inputs()[0]
        if all(isinstance(n, int) for n in given.shape) and prod(given.shape) == x.numel():  # perhaps without samples
            values = self.prepare(x).to(self.dtype).reshape(given.shape).contiguous().numpy()
            return torch.from_numpy(self.session.run(None, {given.name: values})[0]).reshape(1, -1)
        batch, *shape = given.shape  # the batch size may be a name
        count = batch if isinstance(batch, int) and batch > 0 else 1
        if self.parts:
            pieces = split_tensor(x, self.parts)
            named = {part.name: value for part, value in zip(self.parts, pieces, strict=True)}
        else:
            named = {given.name: self.prepare(x).reshape(1, *shape)}
        values = {name: value.to(self.dtype).expand(count, *value.shape[1:]) for name, value in named.items()}
        feeds = {name: value.contiguous().numpy() for name, value in values.items()}
        return torch.from_numpy(self.session.run(None, feeds)[0]).reshape(count, -1)[:1]


def _session(path: Path) -> Any | None:
    """Start onnxruntime; return None if it is not installed or cannot run the file."""
    try:
        return start_session(parse(path).SerializeToString())
    except Exception:  # onnxruntime raises its own types, for instance for an unknown opset
        return None
