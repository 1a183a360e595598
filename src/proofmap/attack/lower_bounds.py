"""Lower bounds of overlaps by attacks: points of B and of every B_u, and the network's values there.

A point counts as it is stored: numbers of x's type that lie exactly in their ball, with the frozen group at x. Its
value is that of the network there, computed in float64. An attack does not prove that the value is the maximum.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd, symmetric_step
from proofmap.attack.restarts import random_restarts
from proofmap.graph import Graph
from proofmap.graph.opaque import differentiable
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_ball
from proofmap.runtime.memory import bytes_needed, chunk_bytes, run_in_chunks
from proofmap.runtime.precision import full_precision

# PGD starts and steps for each sample. On the packaged MLP, radii .01 to .04, doubling both hardly improves the values.
_PGD_STARTS, _PGD_STEPS = 144, 20
_AIMED_FORMS = 9  # forms that starts are aimed at
_REFINED_STARTS = 8  # best starts of each sample, which are refined and start its members


def _falling_sizes(first: float, last: float, count: int) -> list[float]:
    """Return step sizes that fall geometrically from the first to the last."""
    return [first * (last / first) ** (k / (count - 1)) for k in range(count)]


_REFINING_SIZES, _MEMBER_SIZES, _SHORT_SIZES = (
    _falling_sizes(0.1, 0.0005, 80),
    _falling_sizes(0.1, 0.0005, 40),
    _falling_sizes(0.05, 0.001, 8),
)


@dataclass(frozen=True, eq=False)
class _AttackProblem:
    """The attacked problem: maximise the largest of a sample's linear forms of the logits, over its balls."""

    graph: Graph
    precise: Graph  # the graph in float64
    family: Family
    exact: Family  # the balls in float64 that the points must lie in
    forms: Tensor  # (N, R, classes)
    available: int

    @property
    def elements(self) -> int:
        """The number of values in the network at a point."""
        return sum(node.size + node.inside for node in self.graph.nodes) + self.forms[0].numel()

    def pieces(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call work(start, stop) over `count` points, in chunks that fit."""
        elements = self.elements
        point = 2 * bytes_needed("gradient", elements, self.forms.element_size())  # and balls and values in float64
        run_in_chunks(count, chunk_bytes(self.available, self.forms.device) // point, work)

    def rows(self, points: Tensor, samples: Tensor) -> Tensor:
        """Return the values of each form, (K, R), at points of these samples, in the precision of the points."""
        graph = self.graph if points.dtype == self.graph.dtype else self.precise
        return (self.forms[samples].to(points) @ graph(points).flatten(1).unsqueeze(2)).squeeze(2)

    def value(self, points: Tensor, samples: Tensor) -> Tensor:
        """Return the largest form's value at each point, (K,)."""
        return self.rows(points, samples).amax(1)

    def row(self, points: Tensor, samples: Tensor, aim: Tensor) -> Tensor:
        """Return the value of one form at each point, (K,)."""
        return self.rows(points, samples).gather(1, aim[:, None]).squeeze(1)


@dataclass(eq=False)
class AttackBounds:
    """The largest values found in B and in every B_u, in this order, and their points.

    A point of B_u also lies in B, and in every other B_v whose group it leaves at x. So no value exceeds that of B.
    """

    problem: _AttackProblem
    value: Tensor  # (N, 1 + G) float64
    points: Tensor  # (N, 1 + G, *shape) of x's type
    until: float = inf  # deadline on the clock of `time.monotonic`

    def refine(self, points: Tensor, index: Tensor) -> None:
        """Add points (K, *shape) of members `index` (K,), as `Family.split` counts them, after a short PGD from each.

        If B gets a better point, every member tries it with its group restored. Other samples are neither read nor
        written, so threads may add points of different samples.
        """
        family = self.problem.family
        owner = index // family.members
        samples = owner.unique()
        with full_precision(family.x.device), torch.no_grad():
            start = self._round_into(points, index) - family.x[owner]
            _, delta = self._run_pgd(index, start.to(family.x.dtype), _SHORT_SIZES)
            before = self.value[samples, 0]
            self._store_better(family.x[owner] + delta, index)
            self._share_points(samples)
            better = samples[self.value[samples, 0] > before]
            self._attack_members(better, self.points[better, :1] - family.x[better, None], ())
            self._share_points(better)

    def _run_pgd(self, index: Tensor, delta: Tensor, sizes: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Run PGD from δ (K, *shape) in the members `index` (K,), as `Family.split` counts them: (values, δ)."""
        family = self.problem.family
        best, at = torch.full_like(delta.flatten(1)[:, 0], -inf), torch.empty_like(delta)

        def work(start: int, stop: int) -> None:
            piece = index[start:stop]
            value = partial(self.problem.value, samples=piece // family.members)
            best[start:stop], at[start:stop] = run_pgd(
                value, family.split(piece), delta[start:stop], sizes, gradient_step, self.until
            )

        self.problem.pieces(len(index), work)
        return _replace_nonfinite(best), at

    def _restart(self, index: Tensor, delta: Tensor, starts: int) -> Tensor:
        """Run random restarts from δ (K, *shape) in the members `index` (K,). starts: the starts of each sample."""
        problem = self.problem
        return random_restarts(
            self._run_pgd, problem.family, index, delta, starts * problem.elements, problem.available // 8
        )

    def _round_into(self, points: Tensor, index: Tensor) -> Tensor:
        """Round points into the members `index` exactly, (K, *shape) float64."""
        return round_into_ball(points, self.problem.exact.split(index), self.points.dtype)

    def _store_better(self, points: Tensor, index: Tensor) -> None:
        """Store those points (K, *shape) that improve the values of their members `index` (K,)."""
        value, kept = self.value.view(-1), self.points.view(-1, *self.points.shape[2:])

        def work(start: int, stop: int) -> None:
            piece = index[start:stop]
            inside = self._round_into(points[start:stop], piece)
            found = _replace_nonfinite(self.problem.value(inside, piece // self.value.shape[1]))
            best = _first_best(found, piece, len(value))
            best = best[found[best] > value[piece[best]]]
            # Write the point first: after an interrupt in between, its true value is above the stored one.
            kept[piece[best]] = inside[best].to(kept.dtype)
            value[piece[best]] = found[best]

        self.problem.pieces(len(index), work)

    def _attack_members(self, samples: Tensor, starts: Tensor, sizes: Sequence[float]) -> None:
        """In every member of samples (n,), run PGD from the best of their δ (n, S, *shape) with the group restored."""
        family = self.problem.family
        members = torch.arange(1, family.members, device=samples.device)
        index = (samples[:, None] * family.members + members).flatten()
        row = torch.arange(len(samples), device=samples.device).repeat_interleave(len(members))

        def work(start: int, stop: int) -> None:
            if start and time.monotonic() > self.until:
                return
            piece, of = index[start:stop], row[start:stop]
            ball, value = family.split(piece), partial(self.problem.value, samples=samples[of])
            best, at = torch.full_like(ball.eps, -inf), torch.zeros_like(ball.x)
            for k in range(starts.shape[1]):
                delta = starts[of, k].clamp(ball.lower, ball.upper)
                reached = value(ball.x + delta)
                better = reached > best
                best[better], at[better] = reached[better], delta[better]
            _, delta = run_pgd(value, ball, at, sizes, gradient_step, self.until)
            self._store_better(ball.x + delta, piece)

        self.problem.pieces(len(index), work)

    def _restart_members(self, samples: Tensor) -> None:
        """In every member of samples (n,), run random restarts from its own point."""
        family = self.problem.family
        if not family.groups or time.monotonic() > self.until:
            return
        index = (samples[:, None] * family.members + torch.arange(1, family.members, device=samples.device)).flatten()
        here = family.x[index // family.members]
        delta = self.points[samples, 1:].flatten(0, 1) - here
        _, delta = self._run_pgd(index, self._restart(index, delta, family.groups), _MEMBER_SIZES)
        self._store_better(here + delta, index)
        self._share_points(samples)

    def _share_points(self, samples: Tensor) -> None:
        """Copy a member's point to B, and to every member that contains it, where its value is larger."""
        family = self.problem.family
        for n in samples.tolist():
            value, points = self.value[n], self.points[n]
            apart = family.x.new_zeros(family.members, family.members)  # [m, v] > 0: m's point is not in v
            if family.mask is not None:
                moved = (points != family.x[n]).flatten(1).to(apart.dtype)
                apart[:, 1:].scatter_add_(1, family.mask[n].flatten().expand_as(moved), moved)
            best, whose = value[:, None].masked_fill(apart > 0, -inf).max(0)
            better = best > value
            points[better] = points[whose[better]]
            value[better] = best[better]


def attack_lower_bounds(
    graph: Graph, family: Family, forms: Tensor, available: int, until: float = inf
) -> AttackBounds:
    """Search the largest values max over r of forms_r · f(x + δ) in B and in every B_u by PGD.

    graph in x's type; forms (N, R, classes). Starts are x and points drawn from B. For half of its steps, a start
    maximises one of the forms that are largest at x, then the largest of all forms. On the way to another class it
    reaches maxima that the largest form alone does not lead to. B_u starts from the best points of B with u restored.

    until: deadline on the clock of `time.monotonic`. After it, found points are not improved, and no further samples
        are attacked.
    """
    differentiable(graph, "an attack")
    with full_precision(family.x.device), torch.no_grad():
        problem = _AttackProblem(
            graph, graph.to(family.x.device, torch.float64), family, inner_family(family), forms, available
        )
        samples = torch.arange(family.count, device=family.x.device)
        nominal = problem.value(family.x.double(), samples)
        bounds = AttackBounds(
            problem,
            nominal[:, None].repeat(1, family.members),
            family.x[:, None].repeat(1, family.members, *[1] * len(family.shape)),
            until,
        )
        room = _PGD_STARTS * family.x[0].numel() * family.x.element_size()
        for number, some in enumerate(samples.split(max(1, available // 8 // room))):
            if number and time.monotonic() > until:
                break
            _attack_samples(bounds, some)
    bounds.until = inf
    return bounds


def _attack_samples(bounds: AttackBounds, samples: Tensor) -> None:
    """Attack B, then its members from the points found in B."""
    family = bounds.problem.family
    delta = _best_starts(bounds.problem, samples, bounds.until)  # (n, S, *shape)
    owner = samples.repeat_interleave(delta.shape[1])
    index, start = owner * family.members, delta.flatten(0, 1)
    leapt = start if time.monotonic() > bounds.until else bounds._restart(index, start, _REFINED_STARTS)
    value, finished = bounds._run_pgd(index, leapt, _REFINING_SIZES)
    best = value.view(delta.shape[:2]).argmax(1)
    delta = finished.view(delta.shape)
    bounds._store_better(
        family.x[samples] + delta[torch.arange(len(samples), device=best.device), best], samples * family.members
    )
    bounds._attack_members(samples, delta, _MEMBER_SIZES)
    bounds._share_points(samples)
    bounds._restart_members(samples)
    bounds._attack_members(samples, bounds.points[samples, :1] - family.x[samples, None], ())
    bounds._share_points(samples)


def _best_starts(problem: _AttackProblem, samples: Tensor, until: float) -> Tensor:
    """Return the best δ of B found from many starts, for each of the samples (n,): (n, _KEPT, *shape)."""
    family = problem.family
    generator = torch.Generator(family.x.device).manual_seed(0)
    nominal = problem.rows(family.x[samples], samples)
    largest = nominal.sort(dim=1, descending=True, stable=True).indices[:, :_AIMED_FORMS]
    number = torch.arange(_PGD_STARTS, device=samples.device)
    aims, number = largest[:, number % largest.shape[1]].flatten(), number.repeat(len(samples))
    owner = samples.repeat_interleave(_PGD_STARTS)
    value, delta = nominal.new_full((len(owner),), -inf), family.x.new_zeros(len(owner), *family.shape)
    sizes = [1 - k / _PGD_STEPS for k in range(_PGD_STEPS)]

    def work(start: int, stop: int) -> None:
        if start and time.monotonic() > until:
            return
        of = owner[start:stop]
        ball = family.pick(of)
        drawn = ball.sample(1, generator)[0]
        drawn[number[start:stop] < largest.shape[1]] = 0  # the first starts are x itself
        aside = partial(problem.row, samples=of, aim=aims[start:stop])
        _, half = run_pgd(aside, ball, drawn, sizes[: _PGD_STEPS // 2], symmetric_step)
        over = partial(problem.value, samples=of)
        value[start:stop], delta[start:stop] = run_pgd(over, ball, half, sizes[_PGD_STEPS // 2 :], symmetric_step)

    problem.pieces(len(owner), work)
    best = _replace_nonfinite(value).view(-1, _PGD_STARTS).topk(_REFINED_STARTS, dim=1).indices  # (n, _KEPT)
    row = torch.arange(len(samples), device=samples.device)[:, None]
    kept: Tensor = delta.unflatten(0, (-1, _PGD_STARTS))[row, best]
    return kept


def _replace_nonfinite(value: Tensor) -> Tensor:
    """Replace values that are not finite by -inf."""
    return value.nan_to_num(nan=-inf, posinf=-inf)


def _first_best(value: Tensor, index: Tensor, count: int) -> Tensor:
    """Return the position of the first largest value of each index below `count` that occurs."""
    top = value.new_full((count,), -inf).scatter_reduce(0, index, value, "amax")
    place = torch.arange(len(value), device=value.device).masked_fill(value < top[index], len(value))
    first = place.new_full((count,), len(value)).scatter_reduce(0, index, place, "amin")
    return first[first < len(value)]
