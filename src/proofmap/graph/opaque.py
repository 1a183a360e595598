"""Opaque parts: operations without a bounding rule, which are run by the original framework.

A graph has at most one opaque node, directly after the input. `bounded` raises if there is one; `differentiable`
raises if gradients do not pass through it. Both messages name all operations concerned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph.ir import Graph, Node

Missing = tuple[tuple[str, str], ...]  # the operations without a rule: (node, operation)

_FEW_POINTS, _MANY_POINTS = 3, 31  # points at which a function is tried; many if an operation is known to mix samples
_SAMPLE_TOLERANCE = 1e-4  # allowed relative difference between a sample alone and in a batch

Key = TypeVar("Key", bound=Hashable)
Self = TypeVar("Self", bound="OpaqueFunction")


@dataclass(frozen=True, eq=False)
class OpaqueFunction(ABC):
    """A function of samples that another framework computes: (N, *input) -> (N, *shape).

    elements: the scalars that the computation of one sample holds. gradients: whether autograd passes through.
    """

    missing: Missing
    elements: int
    gradients: bool

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Return the value for each sample, in the precision and on the device of x."""

    @abstractmethod
    def to(self: Self, device: torch.device, dtype: torch.dtype) -> Self:
        """Return the function for inputs of that precision on that device."""

    @abstractmethod
    def hash_parts(self) -> Iterator[str | Tensor]:
        """Yield everything that the values depend on, for a hash."""

    def missing_in_words(self) -> str:
        """Return the operations without a rule as text."""
        return ", ".join(f"{operation} (node {node!r})" for node, operation in self.missing)


def opaque_node(graph: Graph) -> tuple[Node, OpaqueFunction] | None:
    """Return the opaque node and its function, or None."""
    for node in graph.nodes:
        if node.op == "foreign":
            run: OpaqueFunction = node.attributes["run"]
            return node, run
    return None


def bounded(graph: Graph) -> Graph:
    """Return the graph if every operation has a rule. Otherwise raise; the message names methods that still work."""
    part = opaque_node(graph)
    if part is None:
        return graph
    node, run = part
    gradients = "SmoothEVA, PathEVA, GreedyAS, GreedyAO, saliency, rise, occlusion and most other baselines"
    others = gradients if run.gradients else _SAMPLING_METHODS
    raise UnsupportedError(
        run.missing,
        f"add one under proofmap/rules, or explain with HybridEVA(split={node.name!r}), which bounds only what follows "
        f"there; EmpiricalEVA, {others} need no rules",
    )


_SAMPLING_METHODS = "rise, occlusion"


def differentiable(graph: Graph, who: str) -> Graph:
    """Return the graph if gradients pass through it; otherwise raise."""
    part = opaque_node(graph)
    if part is None or part[1].gradients:
        return graph
    raise ModelError(
        f"{who} needs gradients, and there are none through {part[1].missing_in_words()}: choose a method that does "
        f"without, such as EmpiricalEVA, {_SAMPLING_METHODS}"
    )


def prepend_opaque(name: str, start: Node, run: OpaqueFunction, tail: Graph) -> Graph:
    """Return the graph that applies `run`, then `tail`."""
    assert tail.input.name == name != start.name
    node = Node(name, "foreign", (start.name,), tail.input.shape, attributes={"run": run})
    return Graph((start, node, *tail.nodes[1:]), tail.output, tail.taken_off, output_shape=tail.output_shape)


def bottlenecks(
    steps: Sequence[tuple[Sequence[Key], Sequence[Key]]], start: Key, end: Key
) -> Iterator[tuple[int, Key]]:
    """Yield the places (k, value) at which a network can be cut.

    Each step is (outputs, inputs). A value of step k is such a place if it is the only earlier value that later steps,
    and the end, read.
    """
    last = {name: k for k, (_, inputs) in enumerate(steps) for name in inputs} | {end: len(steps)}
    open_ = {start}
    for k, (outputs, _) in enumerate(steps):
        open_ = {name for name in (*open_, *outputs) if last.get(name, -1) > k}
        if len(open_) == 1 and open_.intersection(outputs):
            yield k, next(iter(open_))


def trial_points(x: Tensor, *, mixed: bool) -> Tensor:
    """Return x (1, *shape) and points around it; more of them if an operation is known to mix samples."""
    return points_around(x, _MANY_POINTS if mixed else _FEW_POINTS)


def points_around(x: Tensor, count: int) -> Tensor:
    """Return x (1, *shape) and points drawn in a wide box around 0: (count, *shape)."""
    noise = torch.rand(count - 1, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)
    return torch.cat([x, (x.abs().max() + 1) * (3 * noise - 1.5)])


def sample_dependence(function: Callable[[Tensor], Tensor], points: Tensor, sizes: Sequence[int]) -> str | None:
    """Return why the function does not treat each sample on its own; None if these points show no dependence.

    sizes: the batch sizes that the function takes. Each point is run in a batch, at two positions, and in batches of
    these sizes.
    """
    whole = function(points)
    if whole.ndim < 1 or len(whole) != len(points):
        return f"turns a batch of {len(points)} into {tuple(whole.shape)}, expected the samples on dimension 0"
    scale = whole.abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp(min=1e-6)

    def differs(other: Tensor) -> bool:
        if other.shape != whole.shape:
            return True
        off = torch.where(other == whole, 0.0, (other - whole).abs())  # equal infinities differ by 0
        both = torch.isnan(other) & torch.isnan(whole)
        return not bool((off.masked_fill(both, 0.0) <= _SAMPLE_TOLERANCE * scale).all())

    if differs(function(points)):
        return "gives another output each time: does it draw random numbers or keep state?"
    turned = function(points.flip(0)).flip(0)
    alone = [torch.cat([function(part) for part in points.split(size)]) for size in sizes]
    if any(map(differs, (turned, *alone))):
        return "computes a sample differently alone and beside others, expected every sample on its own"
    return None
