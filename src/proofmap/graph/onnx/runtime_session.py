"""Opaque part of an ONNX file, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.graph.opaque import OpaqueFunction

# Operators of quantisation. onnxruntime's optimisation merges their steps, which changes values by whole steps.
_QUANTISING = (b"QuantizeLinear", b"DequantizeLinear", b"QLinear", b"MatMulInteger", b"ConvInteger")


@dataclass(frozen=True, eq=False)
class RuntimeSession(OpaqueFunction):
    """The outputs of an ONNX model with one input, in its own precision on the CPU; without gradients.

    batch: the number of samples that the file fixes; 0 if it is free. The hash covers the file's operations and weights
    up to the output.
    """

    content: bytes
    batch: int

    @cached_property
    def _session(self) -> Any:
        return start_session(self.content, optimised=not any(op in self.content for op in _QUANTISING))

    def __getstate__(self) -> dict[str, Any]:
        """Omit the session: it is started again in the process that gets the graph."""
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def __call__(self, x: Tensor) -> Tensor:
        return self.outputs(x)[0].to(x)

    def outputs(self, x: Tensor) -> list[Tensor]:
        """Return every output of the model for samples (N, *shape), on the CPU in the model's precision."""
        (entry,) = self._session.get_inputs()
        kind = np.float64 if entry.type == "tensor(double)" else np.float32
        values = x.detach().cpu().numpy().astype(kind)
        size = self.batch or max(1, len(values))
        parts = []
        for start in range(0, max(1, len(values)), size):
            piece = values[start : start + size]
            missing = size - len(piece) if self.batch else 0
            filled = np.concatenate([piece, np.repeat(piece[-1:], missing, axis=0)]) if missing else piece
            outputs = self._session.run(None, {entry.name: filled})
            parts.append([_sample_rows(torch.from_numpy(np.array(one)), len(filled), len(piece)) for one in outputs])
        return [torch.cat(one) for one in zip(*parts, strict=True)]

    def to(self, device: torch.device, dtype: torch.dtype) -> RuntimeSession:
        return self

    def hash_parts(self) -> Iterator[str | Tensor]:
        yield f"onnx {self.batch} {sha256(self.content).hexdigest()}"


def _sample_rows(value: Tensor, fed: int, wanted: int) -> Tensor:
    """Return the first `wanted` rows; all rows if they do not belong to samples."""
    rows = value if value.ndim else value[None]
    return rows[:wanted] if len(rows) == fed else rows


def start_session(content: bytes, *, plain: bool = False, optimised: bool = True) -> Any:
    """Start a silent onnxruntime session that does not spin while it waits.

    optimised: False runs every operation as in the file. plain: the same on one thread, for few runs.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1 if plain else torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if plain:
        options.enable_cpu_mem_arena = False
    if plain or not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
