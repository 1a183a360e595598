"""Robustness radii: bisection proves a lower bound, and the nearest adversarial example gives an upper bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries
from proofmap.bounds import Method
from proofmap.errors import BoundError, ProofmapError, RoomError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, margins, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs
from proofmap.graph.opaque import differentiable
from proofmap.graph.rewrite.probability_head import scores
from proofmap.graph.torch import logits_module
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_box, round_up
from proofmap.inputs.several_inputs import Domains, InputPart, is_several, split_tensor
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part, report
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.runtime.time_limit import time_limit
from proofmap.settings import check_count, check_flag
from proofmap.text.radius_table import radius_html, radius_line
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap, method_of

_ATTACK_RESTARTS = 2  # random starts of the attack on each ball
_ATTACK_WORK_SHARE = 0.2  # share of the progress bar for the attack
_ATTACK_RADIUS_FACTOR = 8.0  # growth of the attacked ball while no adversary is found
_ADVERSARY_HALVINGS = 24  # bisection steps that move an adversary towards x
# Constants of the search within a limited time (`radius_until`).
_FIRST_SHARE = 1 / 16  # first trial, as a share of the linearised radius: provable radii are rarely below it
_FIRST_SHARE_PRODUCTS = 1 / 64  # the same with attention: for one input of cifar_vit 1/32 was proven, 1/16 was not
_LINEAR_RIVALS = 5  # the linearised radius uses this many rivals with the highest logits
_STEP_FACTOR = 4.0  # ratio of two trials, while only a proven or only an unproven radius is known
_LEAST_RADIUS = 1e-8  # smaller radii are not tried
_CLOSE_RATIO = 1.02  # ratio of an unproven to a proven radius at which the search ends
LEAST_TRIAL_SECONDS = 1.0  # time that the first trial gets in any case, as do the scores of a proven radius
_MOST_TRIALS = 32  # trials after which the search ends in any case
_CONTRADICTION = 1e-4  # relative: a radius proven this far beyond an adversary contradicts it


@dataclass(frozen=True, eq=False, repr=False)
class Radius:
    """Robustness radii: the decision holds up to `proven`, and `points` at distance `refuted` have another class.

    >>> found = pm.radius(model, x, domain=(0.0, 1.0), steps=4)
    >>> found
    Radius(2 samples, proven 0.0263626 to 0.0329832, refuted 0.0602576 to 0.0959512)
    >>> bool((found.proven <= found.refuted).all())
    True
    >>> bool((model(found.points).argmax(1) != model(x).argmax(1)).all())
    True
    """

    proven: Tensor  # (N,) all inputs within this radius have the same class
    refuted: Tensor  # (N,) distance of the nearest adversary found, or inf
    points: Tensor  # (N, *shape) the adversaries, or x itself if none was found; joined vectors for several inputs
    rigorous: bool = False  # whether `proven` covers all rounding errors
    parts: tuple[InputPart, ...] = ()  # several inputs, whose joined vectors the points are

    def __len__(self) -> int:
        return len(self.proven)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The points of each input of floats, (N, *shape) in its own shape; the points themselves for one input."""
        return tuple(split_tensor(self.points, self.parts)) if self.parts else (self.points,)

    def __repr__(self) -> str:
        return f"Radius({radius_line(self.proven.tolist(), self.refuted.tolist(), self.rigorous)})"

    def _repr_html_(self) -> str:
        return radius_html(self.proven.tolist(), self.refuted.tolist(), self.rigorous)


def radius(
    model: Network,
    x: Inputs,
    *,
    norm: float = inf,
    domain: Domains = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
    rigorous: bool | None = None,
    progress: bool = True,
) -> Radius:
    """Bound the robustness radius of each sample from both sides: proven <= true radius <= refuted.

    An attack searches for the nearest adversary. Then `steps` bisection steps prove radii below it. A searching method
    (`Exact`) decides each radius that it can within its time, so that both bounds come close. An adversary lies exactly
    in the domain. Another class is ahead there, both in the network over the reals (computed in float64) and in the
    model as it runs. With rigorous, the proof covers all rounding errors. That is the default if they are known (see
    `pm.overlap`), and `Radius.rigorous` tells. Both bounds are 0 if x itself is not classified as the target.

    x may be several inputs, a tuple or a dictionary. Then `domain` has an entry for each: (low, high), None for no
    limits, or "fixed" for an input that does not move. The others move together: the radius is that of a ball of their
    joined vectors. `Radius.inputs` has the adversaries of each input.

    >>> pm.radius(model, x[:1], domain=(0.0, 1.0), steps=4).refuted
    tensor([0.0603])
    """
    search = _search(model, x, norm, domain, bounds, target, steps, memory, rigorous)
    differentiable(search.graph, "an attack")
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        with part(0.0, _ATTACK_WORK_SHARE):
            known = search.attack(_RadiusInterval.at(search.x))
        with part(_ATTACK_WORK_SHARE, 1.0):
            known = search.bisect(known)
        return search.result(known)


def certified_radius(
    model: Network,
    x: Inputs,
    *,
    norm: float = inf,
    domain: Domains = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
    rigorous: bool | None = None,
    progress: bool = True,
) -> Tensor:
    """Return a proven robustness radius (N,) for each sample: the largest with AO(B) < 0 that the search found.

    The search starts at 1 and doubles the radius while the decision is proven, up to a ball that contains the whole
    domain. Then it bisects, with `steps` steps in all. A radius without a finite bound, as for a logarithm that reaches
    0, is not proven. The radius is 0 if x itself is not classified as the target. A larger radius may be provable too,
    since the bounds need not grow with the radius. With rigorous, the proof covers all rounding errors. That is the
    default if they are known (see `pm.overlap`). `pm.radius` also gives the distance of an adversary, and says how
    several inputs are given.

    >>> pm.certified_radius(model, x, domain=(0.0, 1.0))
    tensor([0.0268, 0.0359])
    """
    search = _search(model, x, norm, domain, bounds, target, steps, memory, rigorous)
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        return search.result(search.bisect(_RadiusInterval.at(search.x))).proven


def with_curve(
    found: Radius, eps: Tensor, sides: Sequence[Overlap], model: Network, x: Tensor, target: Tensor, ball: Ball
) -> Radius:
    """Return the radii with all that bounds at the radii `eps` (E,) prove and refute beyond them.

    sides: the overlaps of the balls of kind `ball` at x (N, *shape), from both sides. A bound below 0 proves its
    radius. A point of a lower bound may be an adversary that is nearer than those of `found`.
    """
    search = _RadiusSearch.of(model, x, ball, None, target, 1, None, found.rigorous)
    known = _RadiusInterval(found.proven, found.refuted.to(found.proven), found.refuted.double(), found.points)
    every = torch.arange(len(x), device=x.device)
    for size, side in zip(eps.to(found.proven), sides, strict=True):
        if side.rigorous or not found.rigorous:
            known = replace(known, proven=torch.where(side.full < 0, known.proven.maximum(size), known.proven))
        if side.points is not None:
            with full_precision(x.device), torch.no_grad():
                known = search.with_adversaries(known, every, side.points[:, 0])
    return search.result(known)


def _search(
    model: Network,
    x: Inputs,
    norm: float,
    domain: Domains,
    bounds: Method | None,
    target: Target,
    steps: int,
    memory: int | None,
    rigorous: bool | None,
) -> _RadiusSearch:
    """Return the search for the radii of one input, or of several, which are joined."""
    if not is_several(x):
        limits: Any = domain
        return _RadiusSearch.of(model, x, Ball(1.0, norm, limits), bounds, target, steps, memory, rigorous)
    joined = join_inputs(model, x)
    ball = joined.unit_ball(norm, domain)
    search = _RadiusSearch.of(joined.model, joined.x, ball, bounds, target, steps, memory, rigorous)
    return search if joined.is_one else replace(search, parts=joined.parts)


@dataclass(frozen=True, eq=False)
class RadiusTrials:
    """The radii (N,) proven within a time limit, the number of trials, and the smallest radius tried."""

    proven: Tensor
    count: int
    smallest: float
    rigorous: bool  # whether the proofs cover all rounding errors


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
    then fit before `end`. A trial that is not decided by then is given up between two pieces of its work. Raises
    TimeoutError if no radius is proven by then.
    """
    search = _RadiusSearch.of(model, x, Ball(1.0, inf, domain), None, target, _MOST_TRIALS, None)
    proven = torch.zeros_like(x.flatten(1)[:, 0])
    edge = torch.full_like(proven, inf)
    products = any(node.op in ("product", "contract") for node in search.graph.nodes)  # as in attention
    share = _FIRST_SHARE_PRODUCTS if products else _FIRST_SHARE
    trial = (share * _linear_radius(search.graph, x, search.target)).minimum(search.farthest)
    count, smallest = 0, inf
    rows = (margins(logits_of(search.graph, x), search.target) < 0).nonzero().flatten()
    with full_precision(x.device), torch.no_grad():
        while len(rows) and count < _MOST_TRIALS:
            begin = time.monotonic()
            try:
                with time_limit(max(end, begin + LEAST_TRIAL_SECONDS)):
                    holds, _ = search._decided(replace(search.ball, eps=trial).at(x).pick(rows), rows)
            except TimeoutError:
                if not bool((proven > 0).any()):
                    raise
                break
            count, smallest = count + 1, min(smallest, float(trial[rows].min()))
            proven[rows] = torch.where(holds, trial[rows], proven[rows])
            edge[rows] = torch.where(holds, edge[rows], trial[rows])
            middle = torch.where(proven > 0, (proven * edge).sqrt(), edge / _STEP_FACTOR)
            trial = torch.where(edge.isinf(), (_STEP_FACTOR * trial).minimum(search.farthest), middle)
            open_ = (edge > _CLOSE_RATIO * proven) & (proven < search.farthest)
            rows = rows[open_[rows] & (trial[rows] > _LEAST_RADIUS)]
            report(count / _MOST_TRIALS)
            now = time.monotonic()
            took = now - begin
            latest = until if bool((proven > 0).any()) else max(until, end - took)
            if now + took > latest:
                break
    return RadiusTrials(proven, count, smallest, search.how.rigorous)


def _linear_radius(graph: Graph, x: Tensor, target: Tensor) -> Tensor:
    """Return (N,) the smallest L∞ radius at which the network's linearisation at x gives another class.

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
    with ProgressBar(count, "radius", show=show) as bar, bar.work(count):
        yield


@dataclass(frozen=True, eq=False)
class _RadiusInterval:
    """The bounds on the radii so far, and the nearest adversaries."""

    proven: Tensor  # (N,)
    edge: Tensor  # (N,) the smallest radius that is refuted or could not be proven
    refuted: Tensor  # (N,) float64
    points: Tensor  # (N, *shape)

    @classmethod
    def at(cls, x: Tensor) -> _RadiusInterval:
        unknown = torch.full_like(x.flatten(1)[:, 0], inf)
        return cls(torch.zeros_like(unknown), unknown, unknown.double(), x)


@dataclass(frozen=True, eq=False)
class _RadiusSearch:
    """The search for radii: network, samples and settings, which are the same for every radius."""

    model: Network
    graph: Graph
    x: Tensor
    ball: Ball
    target: Tensor
    how: OverlapSettings
    steps: int
    parts: tuple[InputPart, ...] = ()

    @classmethod
    def of(
        cls,
        model: Network,
        x: Inputs,
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
            method, budget(memory, x.device), enough=0.0, rigorous=decide_rigorous(graph, rigorous, method)
        )
        with full_precision(x.device), torch.no_grad():
            aim = target_of(target, logits_of(graph, x))
        return cls(model, graph, x, ball, aim, how, steps)

    @cached_property
    def whole(self) -> Family:
        """The ball that contains the whole domain."""
        return replace(self.ball, eps=torch.finfo(self.x.dtype).max).at(self.x)

    @cached_property
    def farthest(self) -> Tensor:
        """The radius (N,) of a ball that contains the domain."""
        reach = torch.maximum(-self.whole.lower, self.whole.upper)
        size: Tensor = reach.flatten(1).norm(self.ball.norm, dim=1)
        return size

    @cached_property
    def precise(self) -> Graph:
        """The graph in float64."""
        return self.graph.to(self.x.device, torch.float64)

    def attack(self, known: _RadiusInterval) -> _RadiusInterval:
        """Attack balls that grow until an adversary is found, and add the nearest adversaries."""
        most, trial = self.farthest.clamp(max=2.0**self.steps), self.farthest.clamp(max=1)
        rows = torch.arange(len(self.x), device=self.x.device)
        generator = torch.Generator(self.x.device).manual_seed(0)
        while len(rows):
            family = replace(self.ball, eps=trial).at(self.x).pick(rows)
            distance, delta = adversaries(
                self.graph, family, self.target[rows], restarts=_ATTACK_RESTARTS, generator=generator, told=report
            )
            met = distance < inf
            known = self.with_adversaries(known, rows[met], family.x[met] + delta[met])
            rows = rows[~met & (trial[rows] < most[rows])]
            trial = torch.minimum(_ATTACK_RADIUS_FACTOR * trial, most)
        return known

    def bisect(self, known: _RadiusInterval) -> _RadiusInterval:
        """Bisect between both bounds. Each trial is proven, refuted by the method itself, or left open.

        After a radius that a search leaves open, the trials are below it and above it in turn.
        """
        every = torch.arange(len(self.x), device=self.x.device)
        trial = torch.where(known.edge.isinf(), self.farthest.clamp(max=1), known.edge / 2)
        left = torch.zeros_like(trial)  # the largest radius that was neither proven nor refuted
        trials = self.steps + 1
        for k in range(trials):
            with part(k / trials, (k + 1) / trials, f"trial {k + 1} of {trials}"):
                holds, points = self._decided(replace(self.ball, eps=trial).at(self.x), every)
            edge = torch.where(trial <= known.edge, known.edge, known.refuted.to(trial))
            edge = torch.where(holds, edge, torch.minimum(known.edge, trial))
            known = replace(known, proven=torch.where(holds, trial, known.proven), edge=edge)
            if self.how.method.search is not None:
                known = self.with_adversaries(known, every[~holds], points[~holds])
                left = torch.where(holds | (known.refuted <= trial), left, left.maximum(trial))
            wider = torch.minimum(2 * trial, self.farthest)
            trial = torch.where(known.edge.isinf(), wider, (known.proven + known.edge) / 2)
            above = (left > known.proven) & known.refuted.isfinite() & (k % 2 == 0)
            trial = torch.where(above, (left + known.refuted.to(left)) / 2, trial)
        return known

    def _decided(self, family: Family, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether AO(B) < 0 is proven for samples `rows` (n,), and the points of its lower bounds.

        Without a finite bound, nothing is proven. A batch with such a sample is halved until the sample is alone, so
        that the others keep their proofs.
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

    def with_adversaries(self, known: _RadiusInterval, rows: Tensor, points: Tensor) -> _RadiusInterval:
        """Add those points of samples `rows` (n,) that are adversaries, moved towards x while they stay adversaries."""
        exact = inner_family(self.whole).pick(rows)
        x, (lower, upper) = exact.x, exact.box()
        delta = points.double() - x

        def at(share: Tensor) -> Tensor:
            return round_into_box(x + share.view(-1, *[1] * (x.ndim - 1)) * delta, lower, upper, points.dtype)

        low, high = torch.zeros_like(exact.eps), torch.ones_like(exact.eps)
        met = self.is_adversarial(at(high), rows)
        high = torch.where(self.is_adversarial(x, rows), low, high)
        for _ in range(_ADVERSARY_HALVINGS):
            middle = (low + high) / 2
            hit = self.is_adversarial(at(middle), rows)
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

    @cached_property
    def outputs(self) -> Callable[[Tensor], Tensor]:
        """The outputs (N, d) of the model as it runs."""
        assert not isinstance(self.model, Graph)
        return logits_module(self.model, self.x)

    def is_adversarial(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return whether another class is ahead at points (n, *shape), in float64 and in the model as it runs."""
        target, stored = self.target[rows], points.to(self.x.dtype)
        if isinstance(self.model, Graph):
            outputs = self.model(stored).flatten(1)
        else:
            outputs = scores(self.outputs(stored), self.graph.taken_off).to(points.device)
        return (margins(self.precise(points).flatten(1), target) > 0) & (margins(outputs, target) > 0)

    def result(self, known: _RadiusInterval) -> Radius:
        """Return both bounds. If they cross by rounding errors, `proven` is lowered to `refuted`."""
        right = margins(logits_of(self.graph, self.x), self.target) < 0
        proven = torch.where(right, known.proven, torch.zeros_like(known.proven))
        refuted = round_up(known.refuted, proven.dtype)
        beyond = (proven > (1 + _CONTRADICTION) * refuted).nonzero()
        if len(beyond):
            k = int(beyond[0])
            raise ProofmapError(
                f"an adversary is {float(refuted[k]):g} from sample {k}, whose decision was proven to hold up to "
                f"{float(proven[k]):g}: one of both is wrong, please report the model"
            )
        return Radius(torch.minimum(proven, refuted), refuted, known.points, self.how.rigorous, self.parts)
