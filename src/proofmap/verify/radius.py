"""How far a decision holds around each sample, from both sides: proven up to it, refuted by an adversary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries
from proofmap.bounds import Method
from proofmap.errors import BoundError, ProofmapError, RoomError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, margins, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.opaque import differentiable
from proofmap.graph.rewrite.probability_head import scores
from proofmap.graph.torch import eager, uncompiled
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import into_box, upwards, within
from proofmap.rounding.coverage import rigorous_on
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part, report
from proofmap.runtime.progress_bar import Bar
from proofmap.settings import check_count, check_flag
from proofmap.verify.overlap import OverlapSettings, family_overlap, method_of

__all__ = ["Radius", "RadiusTrials", "certified_radius", "radius", "radius_until"]

_RESTARTS = 2  # of an attack
_ATTACKS = 0.2  # of the work, where there is a search too
_WIDER = 8.0  # the next ball to attack where no adversary was found
_HALVINGS = 24  # of the way back from an adversary to x
# The search within a limited time.
_FIRST_SHARE = 1 / 16  # first trial, as a share of the linearised radius: provable radii are rarely below it
_FIRST_SHARE_PRODUCTS = 1 / 64  # the same with attention: for one input of cifar_vit 1/32 was proven, 1/16 was not
_LINEAR_RIVALS = 5  # rivals with the highest logits, whose gradients the linearised radius takes
_FACTOR = 4.0  # of a step up or down, while only one side is known
_LEAST_RADIUS = 1e-8  # smaller radii are not tried
_CLOSE = 1.02  # ratio of an unproven to a proven radius at which the search ends
_ENOUGH_TRIALS = 32  # trials after which the search ends in any case
_ROUNDING = 1e-4  # of a radius: what is proven that much beyond an adversary contradicts it


@dataclass(frozen=True, eq=False)
class Radius:
    """The decision holds up to `proven`, and no further than `refuted`, where `points` are of another class.

    >>> found = pm.radius(model, x, domain=(0.0, 1.0), steps=4)
    >>> bool((found.proven <= found.refuted).all())
    True
    >>> bool((model(found.points).argmax(1) != model(x).argmax(1)).all())
    True
    """

    proven: Tensor  # (N,) no input within it is classified otherwise
    refuted: Tensor  # (N,) the distance of the nearest adversary found; inf where none was
    points: Tensor  # (N, *shape) the adversaries; x itself where none was found
    rigorous: bool  # whether what is proven holds with all roundings


def radius(
    model: Network,
    x: Samples,
    *,
    norm: float = inf,
    domain: tuple[float | Tensor, float | Tensor] | None = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
    rigorous: bool | None = None,
    progress: bool = True,
) -> Radius:
    """For each sample how far the decision holds, from both sides: proven <= refuted.

    An attack looks for the nearest adversary; so many steps of bisection then prove radii below it. A method that
    searches (`Exact`) decides each of them, and both sides meet as far as it does. An adversary lies in the domain
    exactly; another class is ahead there in the network over the real numbers, computed in float64, and in the model as
    it runs. rigorous: what is proven holds with all roundings, by default where they are known (see `pm.overlap`);
    `Radius.rigorous` says whether it does. Both sides are 0 where x itself is
    not classified as the target.

    >>> pm.radius(model, x[:1], domain=(0.0, 1.0), steps=4).refuted
    tensor([0.0603])
    """
    search = _RadiusSearch.of(model, x, Ball(1.0, norm, domain), bounds, target, steps, memory, rigorous)
    differentiable(search.graph, "an attack")
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        with part(0.0, _ATTACKS):
            known = search.attacked(_RadiusInterval.at(search.x))
        with part(_ATTACKS, 1.0):
            known = search.bisected(known)
        return search.ordered(known)


def certified_radius(
    model: Network,
    x: Samples,
    *,
    norm: float = inf,
    domain: tuple[float | Tensor, float | Tensor] | None = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
    rigorous: bool | None = None,
    progress: bool = True,
) -> Tensor:
    """For each sample a radius (N,) with AO(B) < 0, proven: the largest that a search in so many steps met.

    The search begins at 1, doubles while the decision is proven, up to a ball that holds the whole domain, and then
    bisects; a radius without a finite bound, as of a logarithm that reaches 0, is not proven. Zero where x itself is
    not classified as the target. The bounds need not grow with the radius, so a larger radius may be provable too; the
    one returned was proven; rigorous: with all roundings, by default where they are known (see `pm.overlap`). `radius`
    has the other side too, how near an adversary is, and says whether roundings count.

    >>> pm.certified_radius(model, x, domain=(0.0, 1.0))
    tensor([0.0268, 0.0359])
    """
    search = _RadiusSearch.of(model, x, Ball(1.0, norm, domain), bounds, target, steps, memory, rigorous)
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        return search.ordered(search.bisected(_RadiusInterval.at(search.x))).proven


@dataclass(frozen=True, eq=False)
class RadiusTrials:
    """Radii that were proven in a time: proven (N,); how many were tried, and the smallest of them."""

    proven: Tensor
    count: int
    smallest: float


def radius_until(
    model: Network,
    x: Tensor,
    *,
    domain: tuple[float | Tensor, float | Tensor] | None,
    target: Tensor,
    until: float,
    end: float,
) -> RadiusTrials:
    """Search for the largest provable L∞ radius of each sample until `time.monotonic()` reaches `until`.

    The search is geometric. It begins at a share of the radius at which the network's linearisation at x changes its
    class. It goes up or down by a factor until both a proven and an unproven radius are known, and then takes their
    geometric mean. The first radius is tried in any case; another one only if it is expected to fit.

    end: while no radius is proven, the search goes on after `until`. Another trial, and scores that take as long, must
    then fit before `end`.
    """
    search = _RadiusSearch.of(model, x, Ball(1.0, inf, domain), None, target, _ENOUGH_TRIALS, None)
    proven = torch.zeros_like(x.flatten(1)[:, 0])
    edge = torch.full_like(proven, inf)
    share = _FIRST_SHARE_PRODUCTS if _multiplies(search.graph) else _FIRST_SHARE
    trial = (share * _linear_radius(search.graph, x, search.target)).minimum(search.farthest)
    count, smallest = 0, inf
    rows = (margins(logits_of(search.graph, x), search.target) < 0).nonzero().flatten()
    with full_precision(x.device), torch.no_grad():
        while len(rows) and count < _ENOUGH_TRIALS:
            begin = time.monotonic()
            holds, _ = search._decided(replace(search.ball, eps=trial).at(x).pick(rows), rows)
            count, smallest = count + 1, min(smallest, float(trial[rows].min()))
            proven[rows] = torch.where(holds, trial[rows], proven[rows])
            edge[rows] = torch.where(holds, edge[rows], trial[rows])
            middle = torch.where(proven > 0, (proven * edge).sqrt(), edge / _FACTOR)
            trial = torch.where(edge.isinf(), (_FACTOR * trial).minimum(search.farthest), middle)
            open_ = (edge > _CLOSE * proven) & (proven < search.farthest)
            rows = rows[open_[rows] & (trial[rows] > _LEAST_RADIUS)]
            report(count / _ENOUGH_TRIALS)
            now = time.monotonic()
            took = now - begin
            latest = until if bool((proven > 0).any()) else max(until, end - took)
            if now + took > latest:
                break
    return RadiusTrials(proven, count, smallest)


def _multiplies(graph: Graph) -> bool:
    """Whether the network multiplies values that both depend on the input, as attention does."""
    return any(node.op in ("product", "contract") for node in graph.nodes)


def _linear_radius(graph: Graph, x: Tensor, target: Tensor) -> Tensor:
    """(N,) the smallest L∞ radius at which the linearisation of the network at x gives another class.

    That is the minimum of (f_c - f_r) / ||∇(f_c - f_r)||_1 over the rivals r with the highest logits.
    """
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        logits = graph(point).flatten(1)
        own = logits.gather(1, target[:, None])
        others = logits.detach().scatter(1, target[:, None], -inf)
        rivals = others.topk(min(_LINEAR_RIVALS, logits.shape[1] - 1), dim=1).indices  # (N, R)
        gaps = own - logits.gather(1, rivals)
        slopes = [torch.autograd.grad(gap.sum(), point, retain_graph=True)[0].flatten(1).abs().sum(1) for gap in gaps.T]
    radii = gaps.detach() / torch.stack(slopes, dim=1).clamp(min=torch.finfo(x.dtype).tiny)
    return radii.amin(dim=1).clamp(_LEAST_RADIUS, 1.0 / _FIRST_SHARE)


@contextmanager
def _shown(count: int, show: bool) -> Iterator[None]:
    with Bar(count, "radius", show=show) as bar, bar.work(count):
        yield


@dataclass(frozen=True, eq=False)
class _RadiusInterval:
    """What is known so far."""

    proven: Tensor  # (N,)
    edge: Tensor  # (N,) the smallest radius that is refuted, or was not proven
    refuted: Tensor  # (N,) float64
    points: Tensor  # (N, *shape)

    @classmethod
    def at(cls, x: Tensor) -> _RadiusInterval:
        unknown = torch.full_like(x.flatten(1)[:, 0], inf)
        return cls(torch.zeros_like(unknown), unknown, unknown.double(), x)


@dataclass(frozen=True, eq=False)
class _RadiusSearch:
    """The question, the same for every radius."""

    model: Network
    graph: Graph
    x: Tensor
    ball: Ball
    target: Tensor
    how: OverlapSettings
    steps: int

    @classmethod
    def of(
        cls,
        model: Network,
        x: Samples,
        ball: Ball,
        bounds: Method | None,
        target: Target,
        steps: int,
        memory: int | None,
        rigorous: bool | None = None,
    ) -> _RadiusSearch:
        check_count("got steps", steps)
        method = method_of(bounds)
        x = as_samples(x, model)
        ball.at(x)
        if rigorous is not None:
            check_flag("got rigorous", rigorous)
        graph = bounded(as_graph(model, x)).to(x.device, x.dtype)
        how = OverlapSettings(
            method, budget(memory, x.device), enough=0.0, rigorous=rigorous_on(graph, rigorous, method)
        )
        with full_precision(x.device), torch.no_grad():
            aim = target_of(target, logits_of(graph, x))
        return cls(model if isinstance(model, Graph) else eager(model), graph, x, ball, aim, how, steps)

    @cached_property
    def whole(self) -> Family:
        """The domain."""
        return replace(self.ball, eps=torch.finfo(self.x.dtype).max).at(self.x)

    @cached_property
    def farthest(self) -> Tensor:
        """(N,) the radius of a ball that holds the domain."""
        ends = torch.maximum(-self.whole.lower, self.whole.upper)
        size: Tensor = ends.flatten(1).norm(self.ball.norm, dim=1)
        return size

    @cached_property
    def precise(self) -> Graph:
        """In float64."""
        return self.graph.to(self.x.device, torch.float64)

    def attacked(self, known: _RadiusInterval) -> _RadiusInterval:
        """With the nearest adversary that an attack finds, in balls that grow until it does."""
        most, trial = self.farthest.clamp(max=2.0**self.steps), self.farthest.clamp(max=1)
        rows = torch.arange(len(self.x), device=self.x.device)
        generator = torch.Generator(self.x.device).manual_seed(0)
        while len(rows):
            family = replace(self.ball, eps=trial).at(self.x).pick(rows)
            distance, delta = adversaries(
                self.graph, family, self.target[rows], restarts=_RESTARTS, generator=generator, told=report
            )
            met = distance < inf
            known = self.taken(known, rows[met], family.x[met] + delta[met])
            rows = rows[~met & (trial[rows] < most[rows])]
            trial = torch.minimum(_WIDER * trial, most)
        return known

    def bisected(self, known: _RadiusInterval) -> _RadiusInterval:
        """With what is proven, or refuted by the method itself, of radii between both sides.

        A search that leaves a radius open is asked about those below it and those above it in turn.
        """
        every = torch.arange(len(self.x), device=self.x.device)
        trial = torch.where(known.edge.isinf(), self.farthest.clamp(max=1), known.edge / 2)
        left = torch.zeros_like(trial)  # the largest radius that was neither
        trials = self.steps + 1
        for k in range(trials):
            with part(k / trials, (k + 1) / trials, f"trial {k + 1} of {trials}"):
                holds, points = self._decided(replace(self.ball, eps=trial).at(self.x), every)
            edge = torch.where(trial <= known.edge, known.edge, known.refuted.to(trial))
            edge = torch.where(holds, edge, torch.minimum(known.edge, trial))
            known = replace(known, proven=torch.where(holds, trial, known.proven), edge=edge)
            if self.how.method.search is not None:
                known = self.taken(known, every[~holds], points[~holds])
                left = torch.where(holds | (known.refuted <= trial), left, left.maximum(trial))
            wider = torch.minimum(2 * trial, self.farthest)
            trial = torch.where(known.edge.isinf(), wider, (known.proven + known.edge) / 2)
            above = (left > known.proven) & known.refuted.isfinite() & (k % 2 == 0)
            trial = torch.where(above, (left + known.refuted.to(left)) / 2, trial)
        return known

    def _decided(self, family: Family, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Whether AO(B) < 0 is proven for samples `rows` (n,), and the points where its lower side is met.

        Where there is no finite bound it is not. A batch with such a sample is halved until it stands alone: the others
        keep their proofs.
        """
        try:
            over = family_overlap(self.graph, family, self.target[rows], self.how)
            return over.full < 0, family.x if over.points is None else over.points[:, 0]
        except RoomError:
            raise
        except BoundError:
            if family.count == 1:
                return torch.zeros_like(family.eps, dtype=torch.bool), family.x
        halves = torch.arange(family.count, device=rows.device).tensor_split(2)
        holds, points = zip(*(self._decided(family.pick(half), rows[half]) for half in halves), strict=True)
        return torch.cat(holds), torch.cat(points)

    def taken(self, known: _RadiusInterval, rows: Tensor, points: Tensor) -> _RadiusInterval:
        """With those points of samples `rows` (n,) that are adversaries, drawn back to x as far as they stay ones."""
        exact = within(self.whole).pick(rows)
        x, (lower, upper) = exact.x, exact.box()
        delta = points.double() - x

        def at(share: Tensor) -> Tensor:
            return into_box(x + share.view(-1, *[1] * (x.ndim - 1)) * delta, lower, upper, points.dtype)

        low, high = torch.zeros_like(exact.eps), torch.ones_like(exact.eps)
        met = self.adverse(at(high), rows)
        high = torch.where(self.adverse(x, rows), low, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            hit = self.adverse(at(middle), rows)
            low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
        stored = at(high)
        distance: Tensor = torch.linalg.vector_norm((stored - x).flatten(1), self.ball.norm, dim=1)
        nearer = met & (distance < known.refuted[rows])
        which, distance = rows[nearer], distance[nearer]
        edge = torch.minimum(known.edge[which], distance.to(known.edge.dtype))
        return replace(
            known,
            edge=known.edge.index_put((which,), edge),
            refuted=known.refuted.index_put((which,), distance),
            points=known.points.index_put((which,), stored[nearer].to(known.points.dtype)),
        )

    def adverse(self, points: Tensor, rows: Tensor) -> Tensor:
        """Whether another class is ahead at points (n, *shape): in the network in float64, in the model as it runs."""
        target, stored = self.target[rows], points.to(self.x.dtype)
        with uncompiled():
            outputs = self.model(stored).flatten(1)
        if not isinstance(self.model, Graph):
            outputs = scores(outputs, self.graph.taken_off)
        return (margins(self.precise(points).flatten(1), target) > 0) & (margins(outputs, target) > 0)

    def ordered(self, known: _RadiusInterval) -> Radius:
        """Both sides; where rounding crosses them, no more is proven than is refuted."""
        right = margins(logits_of(self.graph, self.x), self.target) < 0
        proven = torch.where(right, known.proven, torch.zeros_like(known.proven))
        refuted = upwards(known.refuted, proven.dtype)
        beyond = (proven > (1 + _ROUNDING) * refuted).nonzero()
        if len(beyond):
            k = int(beyond[0])
            raise ProofmapError(
                f"an adversary is {float(refuted[k]):g} from sample {k}, whose decision was proven to hold up to "
                f"{float(proven[k]):g}: one of both is wrong, please report the model"
            )
        return Radius(torch.minimum(proven, refuted), refuted, known.points, self.how.rigorous)
