"""Gradients of an objective of the logits, and their integrals along straight paths (as in integrated gradients)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.runtime.memory import budget, bytes_needed, chunk_bytes, run_in_chunks
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part

_GAIN_TOLERANCE = 5e-5  # relative to max(1, |gain|): allowed error of the sum of an integral
_MAX_INTERVALS = 1024  # intervals of one path

# The objectives of `pm.overlap` that have a gradient, and the cross-entropy -log softmax_c.
Objective = Literal["margin", "class", "mean", "log-softmax"]


def objective_of(logits: Tensor, target: Tensor, objective: Objective) -> Tensor:
    """Return the objective (n,) of logits (n, C): the larger it is, the less the class is ahead."""
    decided = logits.gather(1, target[:, None]).squeeze(1)
    match objective:
        case "margin":
            return margins(logits, target)
        case "class":
            return -decided
        case "mean":
            return (logits.sum(1) - decided) / (logits.shape[1] - 1) - decided
        case "log-softmax":
            return logits.logsumexp(1) - decided


def value_at(graph: Graph, target: Tensor, objective: Objective) -> Callable[[Tensor], Tensor]:
    """Return the objective as a function of points (n, *shape), for classes (n,)."""
    return partial(_value, graph, target, objective)


def _value(graph: Graph, target: Tensor, objective: Objective, points: Tensor) -> Tensor:
    return objective_of(graph(points).flatten(1), target, objective)


def value_and_gradient(graph: Graph, points: Tensor, target: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the objective (n,) at points (n, *shape), and its gradient there."""
    with full_precision(points.device), torch.enable_grad():
        points = points.detach().requires_grad_()
        value = _value(graph, target, objective, points)
        (slope,) = torch.autograd.grad(value.sum(), points)
    return value.detach(), slope


def gradients_per_pass(graph: Graph, like: Tensor, memory: int | None) -> int:
    """Return how many gradients at points like these fit into the memory at once."""
    elements = sum(node.size + node.inside for node in graph.nodes)
    each = bytes_needed("gradient", elements, like.element_size())
    return max(1, chunk_bytes(budget(memory, like.device), like.device) // each)


@dataclass(frozen=True, eq=False)
class _PathMesh:
    """Points t in [0, 1] on N paths, and intervals between neighbouring points."""

    owner: Tensor  # (m,) int64: the index of the path
    at: Tensor  # (m,) float64: t
    value: Tensor  # (m,) the objective f at the point
    derivative: Tensor  # (m,) <g, δ>, the derivative along the path
    left: Tensor  # (k,) int64: the left endpoints of the intervals
    right: Tensor  # (k,) int64: the right endpoints

    @property
    def right_share(self) -> Tensor:
        """The weight of the right endpoint's gradient on each interval (k,); the left endpoint has the rest.

        With this weight, the mean derivative equals the mean slope (f(b) - f(a)) / (b - a), or comes as close as
        possible. The integral is exact if f is linear with one kink on the interval.
        """
        start, end = self.derivative[self.left], self.derivative[self.right]
        turn = end - start
        wanted = (self.value[self.right] - self.value[self.left]) / self.width - start
        return torch.where(turn == 0, 0.5, wanted / torch.where(turn == 0, 1.0, turn)).clamp(0, 1)

    @property
    def width(self) -> Tensor:
        return self.at[self.right] - self.at[self.left]

    @property
    def residual(self) -> Tensor:
        """The difference (k,) between the change of f on each interval and the change that the gradients give."""
        start, end = self.derivative[self.left], self.derivative[self.right]
        return self.value[self.right] - self.value[self.left] - self.width * torch.lerp(start, end, self.right_share)

    @property
    def weight(self) -> Tensor:
        """The weight of the gradient at each point: (m,)."""
        weight = torch.zeros_like(self.at).index_add(0, self.left, self.width * (1 - self.right_share))
        return weight.index_add(0, self.right, self.width * self.right_share)

    def inexact(self, allowed: Tensor) -> Tensor:
        """Return (k,) bool: the intervals to halve, on paths whose residuals sum to more than allowed (N,).

        These are the intervals with more than an equal share of the allowed residual. Paths with `_MAX_INTERVALS` are
        skipped.
        """
        owner = self.owner[self.left]
        total = torch.zeros_like(allowed).index_add(0, owner, self.residual)
        count = torch.bincount(owner, minlength=len(allowed))
        open_ = (total.abs() > allowed) & (count < _MAX_INTERVALS)
        return open_[owner] & (self.residual.abs() > (allowed / count)[owner])


@dataclass(frozen=True, eq=False)
class PathIntegral:
    """The integral of the gradient from points x (N, *shape) straight to x + delta; size: points per pass."""

    graph: Graph
    x: Tensor
    delta: Tensor
    target: Tensor
    objective: Objective
    size: int

    def integrate(self, steps: int) -> tuple[Tensor, Tensor]:
        """Return (δ_i ∫ g_i(x + t δ) dt over t in [0, 1] as (N, *shape), f(x) as (N,)), with g the gradient of f.

        Both are in float64. The integral begins with `steps` intervals and gradients at their endpoints. Intervals
        whose gradients do not explain the change of f are halved. A path has at most about 1024 intervals, even if its
        sum is not exact then.
        """
        count, device = len(self.x), self.x.device
        first = torch.arange(count, device=device)
        ends = torch.arange(steps + 1, dtype=torch.float64, device=device) / steps
        owner, at = first.repeat_interleave(steps + 1), ends.repeat(count)
        left = torch.arange(len(at), device=device).view(count, -1)[:, :-1].flatten()
        with part(0.0, 0.5):
            mesh = _PathMesh(owner, at, *self._evaluate(owner, at), left, left + 1)
            known = mesh.value.view(count, -1)
            allowed = _GAIN_TOLERANCE * (known[:, -1] - known[:, 0]).abs().clamp(min=1)
            while bool((inexact := mesh.inexact(allowed)).any()):
                mesh = self._bisect(mesh, inexact)
        total = torch.zeros_like(self.x, dtype=torch.float64)
        with part(0.5, 1.0):
            self._evaluate(mesh.owner, mesh.at, total, mesh.weight)
        return total, known[:, 0]

    def midpoint_rule(self, steps: int) -> Tensor:
        """Return the same integral by the midpoint rule with `steps` gradients, (N, *shape) in float64.

        Its sum need not equal the change of f.
        """
        count, device = len(self.x), self.x.device
        middles = (torch.arange(steps, dtype=torch.float64, device=device) + 0.5) / steps
        owner = torch.arange(count, device=device).repeat_interleave(steps)
        total = torch.zeros_like(self.x, dtype=torch.float64)
        self._evaluate(owner, middles.repeat(count), total, torch.full_like(middles, 1 / steps).repeat(count))
        return total

    def _bisect(self, mesh: _PathMesh, which: Tensor) -> _PathMesh:
        """Return the mesh with the given intervals halved."""
        left, right = mesh.left[which], mesh.right[which]
        owner, at = mesh.owner[left], (mesh.at[left] + mesh.at[right]) / 2
        value, derivative = self._evaluate(owner, at)
        new = len(mesh.at) + torch.arange(len(at), device=at.device)
        return _PathMesh(
            torch.cat([mesh.owner, owner]),
            torch.cat([mesh.at, at]),
            torch.cat([mesh.value, value]),
            torch.cat([mesh.derivative, derivative]),
            torch.cat([mesh.left[~which], left, new]),
            torch.cat([mesh.right[~which], new, right]),
        )

    def _evaluate(
        self, owner: Tensor, at: Tensor, total: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return f and <g, δ> at points of the paths, (m,) each; add weight · g δ to `total`, if it is given."""
        value, derivative = torch.empty_like(at), torch.empty_like(at)
        each = [1] * (self.x.ndim - 1)

        def work(start: int, stop: int) -> None:
            some = owner[start:stop]
            delta = self.delta[some]
            points = self.x[some] + at[start:stop].to(self.x.dtype).view(-1, *each) * delta
            found, slope = value_and_gradient(self.graph, points, self.target[some], self.objective)
            terms = slope.double() * delta.double()
            value[start:stop], derivative[start:stop] = found.double(), terms.flatten(1).sum(1)
            if total is not None and weight is not None:
                total.index_add_(0, some, terms * weight[start:stop].view(-1, *each))

        run_in_chunks(len(at), self.size, work)
        return value, derivative
