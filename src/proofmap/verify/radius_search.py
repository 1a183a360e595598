"""Bisection of robustness radii: bounds prove radii, and attacks refute radii beyond them."""

from __future__ import annotations

from collections.abc import Callable
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
from proofmap.graph.rewrite.probability_head import scores
from proofmap.graph.torch import logits_module
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_box, round_up
from proofmap.inputs.several_inputs import InputPart
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part, report
from proofmap.settings import check_count, check_flag
from proofmap.verify.overlap import OverlapSettings, family_overlap, method_of

_ATTACK_RESTARTS = 2  # random starts of the attack on each ball
_ATTACK_RADIUS_FACTOR = 8.0  # growth of the attacked ball while no adversary is found
_ADVERSARY_HALVINGS = 24  # bisection steps that move an adversary towards x
_CONTRADICTION = 1e-4  # relative: a radius proven this far beyond an adversary contradicts it


@dataclass(frozen=True, eq=False)
class RadiusInterval:
    """The bounds on the radii so far, and the nearest adversaries."""

    proven: Tensor  # (N,)
    edge: Tensor  # (N,) the smallest radius that is refuted or could not be proven
    refuted: Tensor  # (N,) float64
    points: Tensor  # (N, *shape)

    @classmethod
    def at(cls, x: Tensor) -> RadiusInterval:
        unknown = torch.full_like(x.flatten(1)[:, 0], inf)
        return cls(torch.zeros_like(unknown), unknown, unknown.double(), x)


@dataclass(frozen=True, eq=False)
class RadiusSearch:
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
        parts: tuple[InputPart, ...] = (),
    ) -> RadiusSearch:
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
        return cls(model, graph, x, ball, aim, how, steps, parts)

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

    def attack(self, known: RadiusInterval) -> RadiusInterval:
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

    def bisect(self, known: RadiusInterval) -> RadiusInterval:
        """Bisect between both bounds. Each trial is proven, refuted by the method itself, or left open.

        After a radius that a search leaves open, the trials are below it and above it in turn.
        """
        every = torch.arange(len(self.x), device=self.x.device)
        trial = torch.where(known.edge.isinf(), self.farthest.clamp(max=1), known.edge / 2)
        left = torch.zeros_like(trial)  # the largest radius that was neither proven nor refuted
        trials = self.steps + 1
        for k in range(trials):
            with part(k / trials, (k + 1) / trials, f"trial {k + 1} of {trials}"):
                holds, points = self.decided(replace(self.ball, eps=trial).at(self.x), every)
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

    def decided(self, family: Family, rows: Tensor) -> tuple[Tensor, Tensor]:
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
        holds, points = zip(*(self.decided(family.pick(half), rows[half]) for half in halves), strict=True)
        return torch.cat(holds), torch.cat(points)

    def with_adversaries(self, known: RadiusInterval, rows: Tensor, points: Tensor) -> RadiusInterval:
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

    def bounds_of_radii(self, known: RadiusInterval) -> tuple[Tensor, Tensor]:
        """Return the proven and the refuted radii (N,). If they cross by rounding errors, the first are lowered."""
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
        return torch.minimum(proven, refuted), refuted
