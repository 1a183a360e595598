"""Relaxation of the sign, y = -1 for x < 0 and 1 for x > 0, as in binarised networks.

On [l, u] with l < 0 < u, a line s·x + b with s >= 0 is

    above y if b >= 1 and b >= -1 - s l,    below y if b <= -1 and b <= 1 - s u.

The value at 0 is -1, 0 or 1. All numbers between -1 and 1 count as values there, and within the room

    ρ = r + 2⁻¹⁷ max(|l|, |u|) + 2⁻¹¹⁸

of 0, because a rounding error of x may decide between the two sides. r is an attribute of the node: 0, or a width in
which rounded numbers may be compared otherwise. Lines are moved outward by slope · ρ. The values themselves are exact.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.rules.rule import FreeParameters, Interval
from proofmap.rules.scalar_lines import Lines, Scalar

_RELATIVE_ROOM, _LEAST_ROOM = 2.0**-17, 2.0**-118  # ρ above; also for bounds in float64
STEEPEST = 4.0  # largest |slope · x| of a line: rounding errors of lines grow with it


class Sign(Scalar):
    """Lines above and below the jump at 0; the slopes of both are free parameters."""

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        """Return no points: the sign never falls."""
        return []

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        (x,) = inputs
        room, one = self._room(node, x), torch.ones_like(x.lower)
        return Interval(torch.where(x.lower > room, one, -one), torch.where(x.upper < -room, -one, one))

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Return lines that also hold for rounded x; by default those that are best at the middle of the interval."""
        y, room, free = self.interval(node, x), self._room(node, x), self.free(node, x)
        below, above = (free.start if slopes is None else free.within(slopes)).unbind(1)
        return Lines(below, y.lower - below * room, above, y.upper + above * room)

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        """Return the range of slopes: the upper line passes (0, 1) and is above -1 at l, the lower one likewise."""
        (x,) = inputs
        room, both = self._room(node, x), self.unstable(node, x)[0]
        size = torch.maximum(x.lower.abs(), x.upper.abs())
        limit = STEEPEST / torch.where(size > 0, size, 1)
        most = []
        for length in (x.upper, -x.lower):  # the length of the side on which the line leaves its level
            known = both & (length > room)
            steepest = 2 / torch.where(known, length + room, 1)
            most.append(torch.where(known, steepest.minimum(limit), 0))
        below, above = most
        middle, zero = x.lower + x.upper, torch.zeros_like(below)
        # a steep line is better at the middle if that is on its side by more than the room
        start = [
            torch.where(middle / 2 > room, below, zero),
            torch.where(middle / 2 < -room, above, zero),
        ]
        return FreeParameters(torch.stack(start, 1), torch.stack([zero, zero], 1), torch.stack(most, 1))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        y = self.interval(node, *inputs)
        return (y.lower < y.upper,)

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Across the jump, the secant slopes are unbounded; the sign never falls."""
        return Interval(torch.zeros_like(x.lower), torch.where(self.unstable(node, x)[0], inf, 0).to(x.lower))

    def _room(self, node: Node, x: Interval) -> Tensor:
        own: float = node.attributes["room"]
        return own + _RELATIVE_ROOM * torch.maximum(x.lower.abs(), x.upper.abs()) + _LEAST_ROOM
