"""Intermediate representation: a model as an immutable graph of named nodes over one sample.

Every shape is that of one sample; tensors that flow through a graph carry the sample dimension in front, of any size.
A graph never changes: passes return new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph.ops import UNSIGNED, compute
from proofmap.graph.rewrite.probability_head import PROBABILITY_HEADS
from proofmap.graph.walk import push
from proofmap.inputs.several_inputs import InputPart


@dataclass(frozen=True, eq=False)
class Folded:
    """Error data of the operations that were folded into one node. The model itself still runs them one by one.

    rounding_errors: the number of rounding errors of these operations beyond the node's own.
    constants: the sum of the absolute constants that the bias was computed from, |b_1| + |b_2| + ...
    gain: an error of a value between these operations grows at most by this factor in the node's value.
    reach: no value between them is larger than reach · (m + 1), with m the largest |x| that the node reads.
    """

    rounding_errors: int
    constants: Tensor | None  # broadcasts as the bias does
    gain: float = 1.0
    reach: float = 0.0


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. Linear operations are y = L(inputs; weight) + bias, with L linear in the inputs.

    The bias broadcasts against one sample's value (a convolution's is (C, 1, ...)), and so does the weight of an
    operation that works entry by entry. |L| is L with |weight|: nothing else in a linear operation is negative. A
    linear operation without a weight multiplies by no numbers, not even by numbers in its attributes.

    A "foreign" node stands for an opaque part of the model: its attribute `run` computes it (`graph.opaque`).
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    weight: Tensor | None = None
    bias: Tensor | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    folded: Folded | None = None

    def __post_init__(self) -> None:
        if self.op in UNSIGNED:
            factors = [key for key, value in self.attributes.items() if _is_real(value)]
            assert self.weight is None, f"{self.op} ({self.name!r}) multiplies by a weight of either sign"
            assert not factors, f"{self.op} ({self.name!r}) has {factors}: numbers of either sign belong into a weight"

    @property
    def size(self) -> int:
        """The number of scalars in one sample's value."""
        return prod(self.shape)

    @property
    def inside(self) -> int:
        """The number of extra scalars that are held while one sample's value is computed."""
        return self.attributes["run"].elements if self.op == "foreign" else 0

    def to(self, device: torch.device, dtype: torch.dtype) -> Node:
        """Return the node with its tensors on a device and in a precision; index tensors keep their integer type."""

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)

        if self.op == "foreign":
            return replace(self, attributes={"run": self.attributes["run"].to(device, dtype)})
        attributes = {key: move(value) for key, value in self.attributes.items()}
        folded = self.folded and replace(self.folded, constants=move(self.folded.constants))
        return replace(self, weight=move(self.weight), bias=move(self.bias), attributes=attributes, folded=folded)


def _is_real(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file, and the preparation of its inputs that is computed outside the file.

    prepare: {"mean": [...] or None, "std": [...] or None, "layout": "NCHW" or "NHWC"}. An input x has its channels
    first. The network gets (x - mean) / std; for "NHWC", the channels are moved to the end. None: it gets x itself.
    sha256: the SHA-256 of the file's bytes when it was loaded; None: not known.
    """

    path: Path
    prepare: Mapping[str, Any] | None = None
    sha256: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes in topological order; the first is the input, one is the output.

    A graph can be called like the module it was made from, and returns logits. `taken_off` names the function from
    logits to probabilities that the model itself ends in. `file` names the ONNX file that computes exactly this graph:
    code that changes the nodes must set it to None. `parts` are the inputs of a model with several, whose joined vector
    is the graph's input.

    >>> graph = pm.trace(model, x)
    >>> len(graph.nodes), graph.classes, graph(x).shape
    (11, 10, torch.Size([2, 10]))
    """

    nodes: tuple[Node, ...]
    output: str
    taken_off: str | None = None
    file: ModelFile | None = None
    parts: tuple[InputPart, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            assert node.name not in seen, f"two nodes are named {node.name!r}"
            assert all(name in seen for name in node.inputs), f"{node.name!r} stands before its inputs"
            seen.add(node.name)
        assert self.nodes[0].op == "input"
        assert self.output in seen

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def drops(self) -> dict[str, list[str]]:
        """For each node, the names of the values that no later node reads."""
        last: dict[str, str] = {}
        for node in self.nodes:
            last.update((name, node.name) for name in (*node.inputs, node.name))
        drops: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for name, user in last.items():
            if name != self.output:
                drops[user].append(name)
        return drops

    @property
    def input(self) -> Node:
        return self.nodes[0]

    @property
    def classes(self) -> int:
        """The number of logits: the size of the output."""
        return self[self.output].size

    @cached_property
    def _weighted(self) -> list[Tensor]:
        return [tensor for node in self.nodes for tensor in (node.weight, node.bias) if tensor is not None]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights (float32 if there are none)."""
        return self._weighted[0].dtype if self._weighted else torch.float32

    def to(self, device: torch.device, dtype: torch.dtype) -> Graph:
        """Return the graph with its tensors on a device and in a precision."""
        return replace(self, nodes=tuple(node.to(device, dtype) for node in self.nodes))

    def as_model(self, logits: Tensor) -> Tensor:
        """Return the outputs of the original model for these logits (N, classes)."""
        return logits if self.taken_off is None else PROBABILITY_HEADS[self.taken_off](logits)

    def __repr__(self) -> str:
        lines = (f"  {n.name}: {n.op}({', '.join(n.inputs)}) -> {n.shape}" for n in self.nodes)
        return "\n".join(["Graph(", *lines, f"  -> {self.output}", ")"])

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits at x (N, *input shape). Differentiable."""
        if tuple(x.shape[1:]) != self.input.shape or x.ndim < 1:
            raise InputError(
                f"got an input of shape {tuple(x.shape)}, expected (N, {', '.join(map(str, self.input.shape))}): "
                "add the sample dimension in front, or reshape"
            )
        if x.dtype != self.dtype and (self._weighted or not x.is_floating_point()):
            raise InputError(f"got an input of type {x.dtype}, expected {self.dtype}: convert it with x.to(...)")
        return push(self, x, compute)
