"""Noisy copies of one input (randomised smoothing): the network's answers, and the noise along one axis per group."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softmax

from proofmap.execution import base_elements
from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.runtime.memory import bytes_needed, chunk_bytes, run_in_chunks

_NOISE_TENSORS = 4  # tensors of the size of the noise: drawn, scaled, added, projected


@dataclass(frozen=True, eq=False)
class GroupDirections:
    """A unit vector within each group of variables, all in one (d,), and the slope of the mean answer along it."""

    unit: Tensor
    rise: Tensor  # (G,) float64

    def scaled(self, answers: Tensor, along: Tensor) -> Tensor:
        """Return the slopes times one factor, fitted to E[h t] of other copies: (G,)."""
        met = ((answers - answers.mean())[:, None] * along).mean(0)
        return (met @ self.rise / self.rise.square().sum().clamp(min=1e-300)).clamp(min=0) * self.rise


@dataclass(frozen=True, eq=False)
class NoisyCopies:
    """Copies x + σξ of one input. The answer h is 1 if the network does not put class c strictly first."""

    graph: Graph
    x: Tensor  # (*shape)
    target: Tensor  # () the class c
    mask: Tensor  # (d,)
    groups: int
    sigma: float
    room: int  # bytes

    def directions(self, noise: Iterable[Tensor]) -> GroupDirections:
        """Return the directions of the mean gradient of 1 - softmax_c.

        By Stein's identity, the noise changes the mean most along these directions.
        """
        total, seen = torch.zeros_like(self.x, dtype=torch.float64), 0
        elements = sum(node.size + node.inside for node in self.graph.nodes)
        for block in noise:

            def work(start: int, stop: int, block: Tensor = block) -> None:
                with torch.enable_grad():
                    points = (self.x + self.sigma * block[start:stop]).requires_grad_()
                    other = 1 - softmax(self.graph(points).flatten(1), 1)[:, self.target]
                    (slope,) = torch.autograd.grad(other.sum(), points)
                total.add_(slope.double().sum(0).nan_to_num(0.0, 0.0, 0.0))

            run_in_chunks(
                len(block), self._copies_per_pass(bytes_needed("gradient", elements, self.x.element_size())), work
            )
            seen += len(block)
        slope = self.sigma * total.flatten() / seen
        size = torch.zeros(self.groups, dtype=slope.dtype, device=slope.device)
        size = size.index_add(0, self.mask, slope.square()).sqrt()
        unit = slope / size.clamp(min=1e-300)[self.mask]
        return GroupDirections(unit.to(self.x.dtype), size)

    def ask(self, noise: Iterable[Tensor], directions: GroupDirections) -> tuple[Tensor, Tensor]:
        """Return the answers h (n,) and the noise t along each direction (n, G). NaN logits count as h = 1."""
        answers, along = [], []
        for block in noise:
            found = torch.empty(len(block), dtype=torch.float64, device=block.device)

            def work(start: int, stop: int, block: Tensor = block, found: Tensor = found) -> None:
                logits = self.graph(self.x + self.sigma * block[start:stop]).flatten(1)
                found[start:stop] = (~(margins(logits, self.target) < 0)).double()

            with torch.no_grad():
                run_in_chunks(
                    len(block), self._copies_per_pass(self.x.element_size() * base_elements(self.graph, ())), work
                )
            parts = block.flatten(1) * directions.unit
            each = torch.zeros(len(block), self.groups, dtype=parts.dtype, device=parts.device)
            answers.append(found)
            along.append(each.index_add(1, self.mask, parts))
        return torch.cat(answers), torch.cat(along).double()

    def _copies_per_pass(self, each: int) -> int:
        """Return how many copies fit into the memory at once."""
        held = _NOISE_TENSORS * self.x.numel() * self.x.element_size()
        return chunk_bytes(self.room, self.x.device) // (each + held)
