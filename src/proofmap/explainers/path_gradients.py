"""Gradients integrated along straight ways, so that they sum to what the objective gains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.explainers.tangent import Objective, slopes
from proofmap.graph import Graph
from proofmap.runtime.memory import in_pieces
from proofmap.runtime.progress import part

__all__ = ["Way"]

_OFF = 5e-5  # of max(1, |gain|): how far the sum may be from it
_MOST = 1024  # intervals of a way


@dataclass(frozen=True, eq=False)
class _Mesh:
    """Points t of N ways, and intervals between two of them."""

    owner: Tensor  # (m,) int64: of which way
    at: Tensor  # (m,) float64: t
    value: Tensor  # (m,) the objective f there
    rise: Tensor  # (m,) <g, δ>, its derivative along the way
    left: Tensor  # (k,) int64: the points between which the intervals are
    right: Tensor

    @property
    def lean(self) -> Tensor:
        """Which share of the right end's gradient counts on an interval, the left end's being the rest: (k,).

        The one by which the derivative is the mean slope, (f(b) - f(a)) / (b - a), or comes nearest to it. Where f is
        linear up to one kink between the ends, that is the exact integral.
        """
        start, end = self.rise[self.left], self.rise[self.right]
        turn = end - start
        wanted = (self.value[self.right] - self.value[self.left]) / self.width - start
        return torch.where(turn == 0, 0.5, wanted / torch.where(turn == 0, 1.0, turn)).clamp(0, 1)

    @property
    def width(self) -> Tensor:
        return self.at[self.right] - self.at[self.left]

    @property
    def off(self) -> Tensor:
        """What the intervals gain beyond what their gradients say: (k,)."""
        start, end = self.rise[self.left], self.rise[self.right]
        return self.value[self.right] - self.value[self.left] - self.width * torch.lerp(start, end, self.lean)

    @property
    def weight(self) -> Tensor:
        """How much the gradient at each point counts: (m,)."""
        weight = torch.zeros_like(self.at).index_add(0, self.left, self.width * (1 - self.lean))
        return weight.index_add(0, self.right, self.width * self.lean)

    def worst(self, allowed: Tensor) -> Tensor:
        """Of each way that is off by more than allowed (N,), the intervals that are off by more than they may each:
        (k,) bool. None of a way that has too many.
        """
        owner = self.owner[self.left]
        total = torch.zeros_like(allowed).index_add(0, owner, self.off)
        count = torch.bincount(owner, minlength=len(allowed))
        open_ = (total.abs() > allowed) & (count < _MOST)
        return open_[owner] & (self.off.abs() > (allowed / count)[owner])


@dataclass(frozen=True, eq=False)
class Way:
    """From points x (N, *shape) straight to x + delta; size: points that are evaluated together."""

    graph: Graph
    x: Tensor
    delta: Tensor
    target: Tensor
    objective: Objective
    size: int

    def integrate(self, steps: int) -> tuple[Tensor, Tensor]:
        """(δ_i ∫ g_i(x + t δ) dt over t in [0, 1] as (N, *shape), g the gradient of the objective; the objective at x
        (N,)); in float64.

        From `steps` intervals, with gradients at their ends; where these cannot give what the objective gains there,
        an interval is halved. A way ends with some 1024 intervals, complete or not.
        """
        count, device = len(self.x), self.x.device
        first = torch.arange(count, device=device)
        ends = torch.arange(steps + 1, dtype=torch.float64, device=device) / steps
        owner, at = first.repeat_interleave(steps + 1), ends.repeat(count)
        left = torch.arange(len(at), device=device).view(count, -1)[:, :-1].flatten()
        with part(0.0, 0.5):
            mesh = _Mesh(owner, at, *self._slopes(owner, at), left, left + 1)
            known = mesh.value.view(count, -1)
            allowed = _OFF * (known[:, -1] - known[:, 0]).abs().clamp(min=1)
            while bool((worst := mesh.worst(allowed)).any()):
                mesh = self._halved(mesh, worst)
        total = torch.zeros_like(self.x, dtype=torch.float64)
        with part(0.5, 1.0):
            self._slopes(mesh.owner, mesh.at, total, mesh.weight)
        return total, known[:, 0]

    def sketch(self, steps: int) -> Tensor:
        """The same integral by the gradients in the middles of so many intervals, (N, *shape) in float64: `steps`
        gradients, and sums that may be off.
        """
        count, device = len(self.x), self.x.device
        middles = (torch.arange(steps, dtype=torch.float64, device=device) + 0.5) / steps
        owner = torch.arange(count, device=device).repeat_interleave(steps)
        total = torch.zeros_like(self.x, dtype=torch.float64)
        self._slopes(owner, middles.repeat(count), total, torch.full_like(middles, 1 / steps).repeat(count))
        return total

    def _halved(self, mesh: _Mesh, which: Tensor) -> _Mesh:
        left, right = mesh.left[which], mesh.right[which]
        owner, at = mesh.owner[left], (mesh.at[left] + mesh.at[right]) / 2
        value, rise = self._slopes(owner, at)
        new = len(mesh.at) + torch.arange(len(at), device=at.device)
        return _Mesh(
            torch.cat([mesh.owner, owner]),
            torch.cat([mesh.at, at]),
            torch.cat([mesh.value, value]),
            torch.cat([mesh.rise, rise]),
            torch.cat([mesh.left[~which], left, new]),
            torch.cat([mesh.right[~which], new, right]),
        )

    def _slopes(
        self, owner: Tensor, at: Tensor, total: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """f and <g, δ> at points of the ways, (m,) each; weight · g δ is added to the total, where there is one."""
        value, rise = torch.empty_like(at), torch.empty_like(at)
        each = [1] * (self.x.ndim - 1)

        def work(start: int, stop: int) -> None:
            some = owner[start:stop]
            delta = self.delta[some]
            points = self.x[some] + at[start:stop].to(self.x.dtype).view(-1, *each) * delta
            found, slope = slopes(self.graph, points, self.target[some], self.objective)
            terms = slope.double() * delta.double()
            value[start:stop], rise[start:stop] = found.double(), terms.flatten(1).sum(1)
            if total is not None and weight is not None:
                total.index_add_(0, some, terms * weight[start:stop].view(-1, *each))

        in_pieces(len(at), self.size, work)
        return value, rise
