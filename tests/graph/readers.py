"""Networks for both readers: as a torch module, or as the nodes of an ONNX file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from proofmap.graph import Graph, trace
from tests.graph.onnx.files import Array, loaded, make, run
from tests.models import Apply

_KINDS = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}


class Source(ABC):
    """The input of a reader."""

    @abstractmethod
    def read(self, folder: Path, dtype: torch.dtype = torch.float32) -> Graph:
        """Return the graph in this precision; a file is written to the folder."""

    @abstractmethod
    def run(self, x: Tensor) -> Tensor:
        """Return the outputs of the network itself."""


@dataclass(frozen=True)
class Module(Source):
    """A torch module or function, of samples (4,) by default."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4,)

    @staticmethod
    def of(function: Callable[[Tensor], Tensor], *shape: int) -> Module:
        return Module(lambda: Apply(function), shape or (4,))

    def read(self, folder: Path, dtype: torch.dtype = torch.float32) -> Graph:
        return trace(self.make().to(dtype), torch.rand(1, *self.shape, dtype=dtype))

    def run(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            value: Tensor = self.make().to(x.dtype)(x)
        return value


@dataclass(frozen=True)
class File(Source):
    """An ONNX file with nodes from x to y and constants; constants that no node reads are omitted."""

    nodes: Sequence[onnx.NodeProto]
    constants: dict[str, Array] = field(default_factory=dict)
    shape: Sequence[int | str] = ("n", 4)
    opset: int = 13

    def model(self, dtype: torch.dtype = torch.float32) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        constants = {name: np.asarray(value) for name, value in self.constants.items() if name in used}
        if dtype == torch.float64:
            constants = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in constants.items()}
        return make(self.nodes, self.shape, constants, opset=self.opset, kind=_KINDS[dtype])

    def read(self, folder: Path, dtype: torch.dtype = torch.float32) -> Graph:
        return loaded(self.model(dtype), folder)

    def run(self, x: Tensor) -> Tensor:
        model = self.model(x.dtype)
        if x.dtype == torch.float64:  # onnxruntime has few kernels for float64
            results: Any = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
            return torch.from_numpy(results[0])
        return torch.from_numpy(run(model, x.numpy()))


def through_both(cases: Mapping[str, Iterable[tuple[Any, ...]]]) -> pytest.MarkDecorator:
    """Return a parametrization: each row of a case is a source and the expected result."""
    rows = [
        pytest.param(*row, id=f"{name}-{'onnx' if isinstance(row[0], File) else 'torch'}")
        for name, rows_of in cases.items()
        for row in rows_of
    ]
    return pytest.mark.parametrize(("source", "expected"), rows)
