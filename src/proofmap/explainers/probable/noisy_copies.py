"""Noisy copies of one input: what a network answers at them, and their noise along one direction of each group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softmax

from proofmap.execution import base_elements
from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.runtime.memory import bytes_of, in_pieces, piece_of

__all__ = ["Copies", "Directions"]

_HELD = 4  # copies of the noise itself: drawn, scaled, added, along its directions


@dataclass(frozen=True, eq=False)
class Directions:
    """One of length 1 within each group of variables, all in one (d,), and how much the mean answer rises along it."""

    unit: Tensor
    rise: Tensor  # (G,) float64

    def scaled(self, answers: Tensor, along: Tensor) -> Tensor:
        """The rises times one factor that fits what was asked of other copies: E[h t], (G,)."""
        met = ((answers - answers.mean())[:, None] * along).mean(0)
        return (met @ self.rise / self.rise.square().sum().clamp(min=1e-300)).clamp(min=0) * self.rise


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies x + σξ of one input, asked whether the network fails to put class c strictly first at them."""

    graph: Graph
    x: Tensor  # (*shape)
    target: Tensor  # () the class c
    mask: Tensor  # (d,)
    groups: int
    sigma: float
    room: int  # bytes

    def directions(self, noise: Iterable[Tensor]) -> Directions:
        """Those of the mean gradient of 1 - softmax_c, by Stein's identity what the noise moves the mean by most."""
        total, seen = torch.zeros_like(self.x, dtype=torch.float64), 0
        elements = sum(node.size + node.inside for node in self.graph.nodes)
        for block in noise:

            def work(start: int, stop: int, block: Tensor = block) -> None:
                with torch.enable_grad():
                    points = (self.x + self.sigma * block[start:stop]).requires_grad_()
                    other = 1 - softmax(self.graph(points).flatten(1), 1)[:, self.target]
                    (slope,) = torch.autograd.grad(other.sum(), points)
                total.add_(slope.double().sum(0).nan_to_num(0.0, 0.0, 0.0))

            in_pieces(len(block), self._piece(bytes_of("gradient", elements, self.x.element_size())), work)
            seen += len(block)
        slope = self.sigma * total.flatten() / seen
        size = torch.zeros(self.groups, dtype=slope.dtype, device=slope.device)
        size = size.index_add(0, self.mask, slope.square()).sqrt()
        unit = slope / size.clamp(min=1e-300)[self.mask]
        return Directions(unit.to(self.x.dtype), size)

    def ask(self, noise: Iterable[Tensor], directions: Directions) -> tuple[Tensor, Tensor]:
        """Answers h (n,), 1 where c is not strictly first or nothing is, and noise t along each direction (n, G)."""
        answers, along = [], []
        for block in noise:
            found = torch.empty(len(block), dtype=torch.float64, device=block.device)

            def work(start: int, stop: int, block: Tensor = block, found: Tensor = found) -> None:
                logits = self.graph(self.x + self.sigma * block[start:stop]).flatten(1)
                found[start:stop] = (~(margins(logits, self.target) < 0)).double()

            with torch.no_grad():
                in_pieces(len(block), self._piece(self.x.element_size() * base_elements(self.graph, ())), work)
            parts = block.flatten(1) * directions.unit
            each = torch.zeros(len(block), self.groups, dtype=parts.dtype, device=parts.device)
            answers.append(found)
            along.append(each.index_add(1, self.mask, parts))
        return torch.cat(answers), torch.cat(along).double()

    def _piece(self, each: int) -> int:
        """How many copies to run at a time."""
        held = _HELD * self.x.numel() * self.x.element_size()
        return piece_of(self.room, self.x.device) // (each + held)
