"""Parts of a model that can be run and not bounded: one node, right behind the input, computes them whole.

Whoever bounds asks `bounded` first, whoever differentiates asks `differentiable`: both name all that is in the way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph.ir import Graph, Node

FEW, MANY = 3, 31  # points to try a function at; many where something in it is known to mix samples
_TOLERANCE = 1e-4  # of the largest value, between a sample alone and beside others

Key = TypeVar("Key", bound=Hashable)
Self = TypeVar("Self", bound="Foreign")


@dataclass(frozen=True, eq=False)
class Foreign(ABC):
    """A function of samples that somebody else computes: (N, *input) -> (N, *shape).

    missing: pairs (node, operation) of what has no rule in it. elements: scalars that one sample takes inside.
    gradients: whether autograd goes through.
    """

    missing: tuple[tuple[str, str], ...]
    elements: int
    gradients: bool

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """The value for each sample, in the type of x and at its place."""

    @abstractmethod
    def to(self: Self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same for inputs of that type there."""

    @abstractmethod
    def spelled(self) -> Iterator[str | Tensor]:
        """All that its values depend on, for a hash."""

    def named(self) -> str:
        """What has no rule, in words."""
        return ", ".join(f"{operation} (node {node!r})" for node, operation in self.missing)


def foreign_of(graph: Graph) -> tuple[Node, Foreign] | None:
    """The node that is run and not bounded, where there is one."""
    for node in graph.nodes:
        if node.op == "foreign":
            run: Foreign = node.attributes["run"]
            return node, run
    return None


def bounded(graph: Graph) -> Graph:
    """The graph, if every operation in it has a rule; else an error that names those without, and what works."""
    part = foreign_of(graph)
    if part is None:
        return graph
    node, run = part
    gradients = "SmoothEVA, PathEVA, GreedyAS, GreedyAO, saliency, rise, occlusion and most other baselines"
    others = gradients if run.gradients else _SAMPLING
    raise UnsupportedError(
        run.missing,
        f"add one under proofmap/rules, or explain with HybridEVA(split={node.name!r}), which bounds only what follows "
        f"there; EmpiricalEVA, {others} need no rules",
    )


_SAMPLING = "rise, occlusion"


def differentiable(graph: Graph, who: str) -> Graph:
    """The graph, if gradients go through it."""
    part = foreign_of(graph)
    if part is None or part[1].gradients:
        return graph
    raise ModelError(
        f"{who} needs gradients, and there are none through {part[1].named()}: choose a method that does without, "
        f"such as EmpiricalEVA, {_SAMPLING}"
    )


def in_front(name: str, start: Node, run: Foreign, tail: Graph) -> Graph:
    """The graph whose first operation `run` gives what `tail` takes."""
    assert tail.input.name == name != start.name
    node = Node(name, "foreign", (start.name,), tail.input.shape, attributes={"run": run})
    return Graph((start, node, *tail.nodes[1:]), tail.output, tail.taken_off)


def straits(steps: Sequence[tuple[Sequence[Key], Sequence[Key]]], start: Key, end: Key) -> Iterator[tuple[int, Key]]:
    """Where a network can be cut: (k, value) of steps (outputs, inputs) such that an output of step k is all that the
    later ones, and the end, read of what came so far.
    """
    last = {name: k for k, (_, inputs) in enumerate(steps) for name in inputs} | {end: len(steps)}
    open_ = {start}
    for k, (outputs, _) in enumerate(steps):
        open_ = {name for name in (*open_, *outputs) if last.get(name, -1) > k}
        if len(open_) == 1 and open_.intersection(outputs):
            yield k, next(iter(open_))


def points_around(x: Tensor, count: int) -> Tensor:
    """x (1, *shape), and points drawn far around it, on both sides of zero: (count, *shape)."""
    noise = torch.rand(count - 1, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)
    return torch.cat([x, (x.abs().max() + 1) * (3 * noise - 1.5)])


def independent(function: Callable[[Tensor], Tensor], points: Tensor, sizes: Sequence[int]) -> str | None:
    """Why the function is none of each sample by itself; None where it is, as far as these points show.

    sizes: of the batches that it takes. Each point is run beside others, at two places, and alone where it can be.
    """
    whole = function(points)
    if whole.ndim < 1 or len(whole) != len(points):
        return f"turns a batch of {len(points)} into {tuple(whole.shape)}, expected the samples on dimension 0"
    scale = whole.abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp(min=1e-6)

    def differs(other: Tensor) -> bool:
        if other.shape != whole.shape:
            return True
        off = torch.where(other == whole, 0.0, (other - whole).abs())  # of what is infinite on both sides
        both = torch.isnan(other) & torch.isnan(whole)
        return not bool((off.masked_fill(both, 0.0) <= _TOLERANCE * scale).all())

    if differs(function(points)):
        return "gives another output each time: does it draw random numbers or keep state?"
    turned = function(points.flip(0)).flip(0)
    alone = [torch.cat([function(part) for part in points.split(size)]) for size in sizes]
    if any(map(differs, (turned, *alone))):
        return "computes a sample differently alone and beside others, expected every sample on its own"
    return None
