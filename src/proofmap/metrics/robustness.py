"""Robustness-Sr: how near an adversary is when only the most important variables may move, from both sides.

Hsieh et al. 2021, "Evaluations and methods for explanation through robustness analysis".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.bounds import Backward, Method
from proofmap.errors import InputError
from proofmap.explain.attack import nearest, restrict
from proofmap.graph import Graph, as_graph, bounded
from proofmap.graph.foreign import differentiable
from proofmap.groups import Groups, pixels
from proofmap.memory import budget, check_memory
from proofmap.metrics.draws import Stream
from proofmap.metrics.metric import (
    Metric,
    check_attributions,
    check_call,
    check_count,
    check_groups,
    check_run,
    classes_of,
    logits_at,
    pieces,
    preset_of,
    recorded,
    rows_of,
)
from proofmap.metrics.variables import Variables
from proofmap.overlaps import family_overlap
from proofmap.precision import full_precision
from proofmap.records import JSON
from proofmap.settings import is_number

__all__ = ["Distances", "RobustnessSettings", "RobustnessSr"]


@dataclass(frozen=True, eq=False)
class Distances:
    """Both sides of min(the distance to the nearest adversary, largest), for each sample and number of free variables.

    proven <= that <= found, in exact arithmetic.
    """

    shares: Tensor  # (K,)  of the variables, the most important ones, that may move
    proven: Tensor  # (N, K) a radius within which no adversary is, certified
    found: Tensor  # (N, K) the distance of an adversary that an attack met; `largest` where it met none


@dataclass(frozen=True)
class RobustnessSettings:
    """What Robustness-Sr is measured with; see `RobustnessSr`."""

    norm: float
    domain: tuple[Any, Any] | None
    largest: float
    steps: int
    rounds: int
    attack_steps: int


class RobustnessSr(Metric[Tensor]):
    """The mean over k of the distance to the nearest adversary found when only the k most important variables move.

        d_k = min ||δ||_p over δ with δ_i = 0 outside the k most important variables, x + δ in the domain, and
              max over c' != c of f_c'(x + δ) - f_c(x + δ) > 0,

    for k = floor(i G / steps), i = 1 .. steps, and the area under it by trapezoids over k / G from 1 / steps to 1,
    divided by that width. Less is better. An attack gives an upper bound of d_k; `both` adds a certified lower one. An
    adversary with fewer variables is one with more, so neither curve rises with k. Where none was found, `largest`
    stands for d_k.

    norm: 1, 2 or inf. domain: as in `pm.Ball`; (-inf, inf) for no limits.
    steps: points of the curve, no more than there are variables.
    rounds, attack_steps: attacks that narrow a distance once an adversary is known (`explain.attack.nearest`), each
    with so many gradient steps from x; nothing in it is random.
    The preset "paper": inf, (0, 1), largest 1, 10 steps, 5 rounds, 10 gradient steps. The paper says PGD, and no more.

    bounds: what proves the lower side, Backward() by default; halvings: of the bracket between 0 and what was found.
    groups: the variables, by default pixels. seed: decides among equal attributions. batch: balls that are attacked or
    bounded together; by default some 16 MB of points. memory: bytes that bounds may use.
    """

    name: ClassVar[str] = "robustness-sr"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, RobustnessSettings]] = {
        "paper": RobustnessSettings(inf, (0.0, 1.0), 1.0, 10, 5, 10),
    }

    def __init__(
        self,
        preset: str = "paper",
        *,
        norm: float | None = None,
        domain: tuple[float | Tensor, float | Tensor] | None = None,
        largest: float | None = None,
        steps: int | None = None,
        rounds: int | None = None,
        attack_steps: int | None = None,
        bounds: Method | None = None,
        halvings: int = 8,
        groups: Groups = None,
        seed: int = 0,
        batch: int | None = None,
        memory: int | None = None,
    ) -> None:
        given = {
            "norm": norm,
            "domain": domain,
            "largest": largest,
            "steps": steps,
            "rounds": rounds,
            "attack_steps": attack_steps,
        }
        self.chosen = preset_of(type(self), self.presets, preset, given)
        if not is_number(self.chosen.largest) or not self.chosen.largest > 0:
            raise InputError(f"RobustnessSr got largest={self.chosen.largest!r:.60}, expected a distance above 0")
        Ball(self.chosen.largest, self.chosen.norm, self.chosen.domain)
        for name in ("steps", "rounds", "attack_steps"):
            check_count("RobustnessSr", name, getattr(self.chosen, name))
        check_count("RobustnessSr", "halvings", halvings)
        check_groups("RobustnessSr", pixels() if groups is None else groups)
        check_run("RobustnessSr", seed, batch)
        check_memory(memory)
        if bounds is not None and not isinstance(bounds, Method):
            raise InputError(f"RobustnessSr got bounds={bounds!r}, expected a method such as pm.bounds.Backward()")
        self.preset = preset
        self.bounds = Backward() if bounds is None else bounds
        self.halvings = halvings
        self.groups = pixels() if groups is None else groups
        self.seed = seed
        self.batch = batch
        self.memory = memory

    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The area under the distances that attacks found: (N,). An upper bound of the area under the true ones."""
        return _area(self._distances(model, x, target, attributions, prove=False).found)

    def both(
        self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples
    ) -> tuple[Tensor, Tensor]:
        """(lower, upper), each (N,): the area under the true distances, at most `largest`, is between them."""
        found = self.distances(model, x, target, attributions)
        return _area(found.proven), _area(found.found)

    def distances(self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples) -> Distances:
        """The curves themselves, what is proven and what was found."""
        return self._distances(model, x, target, attributions, prove=True)

    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""
        more = {"bounds": self.bounds, "halvings": self.halvings, "groups": self.groups, "seed": self.seed}
        return recorded(self.preset, self.chosen, **more)

    def _distances(
        self, model: nn.Module | Graph, x: Samples, target: Target, attributions: Samples, *, prove: bool
    ) -> Distances:
        x = check_call(model, x)
        ranked = check_attributions(attributions, x)
        Ball(self.chosen.largest, self.chosen.norm, self.chosen.domain).at(x)
        variables, rows = Variables.of(x, self.groups), rows_of(self.batch, x)
        available = budget(self.memory, x.device)
        x = x.detach()
        graph = as_graph(model, x).to(x.device, x.dtype)
        differentiable(graph, "Robustness-Sr")
        if prove:
            bounded(graph)
        with full_precision(x.device):
            classes = classes_of(target, logits_at(graph, x, rows))
        steps = min(self.chosen.steps, variables.most)
        index = torch.arange(1, steps + 1, device=x.device)
        shares = torch.stack([index, torch.full_like(index, steps)], 1)  # (K, 2)
        ties = Stream(self.seed, "ties")
        found, proven = [], []
        for piece in pieces(len(x), steps, rows):
            own = variables.cut(piece)
            part = x[piece].repeat_interleave(steps, dim=0)  # (n K, *shape)
            aims = classes[piece].repeat_interleave(steps)
            ranks = own.ranks(ranked[piece], ties.next(len(x[piece]), own.most, device=x.device))
            free = own.first(ranks, shares).view(part.shape)
            for some in pieces(len(part), 1, rows):
                far = self._attack(graph, part[some], aims[some], free[some])
                found.append(far)
                if prove:
                    proven.append(self._prove(graph, part[some], aims[some], free[some], far, available))
        upper = torch.cat(found).view(len(x), steps).cummin(1).values
        lower = torch.cat(proven).view(len(x), steps) if prove else torch.zeros_like(upper)
        return Distances(index.to(x.dtype) / steps, lower.flip(1).cummax(1).values.flip(1), upper)

    def _attack(self, graph: Graph, x: Tensor, target: Tensor, free: Tensor) -> Tensor:
        """The distance of an adversary (n,); `largest` where none was found."""
        chosen = self.chosen
        return nearest(
            graph,
            x,
            target,
            free,
            norm=chosen.norm,
            domain=chosen.domain,
            largest=chosen.largest,
            rounds=chosen.rounds,
            steps=chosen.attack_steps,
        ).clamp(max=chosen.largest)

    def _prove(self, graph: Graph, x: Tensor, target: Tensor, free: Tensor, far: Tensor, available: int) -> Tensor:
        """A radius (n,) at which the overlap is proven to be at most 0: the largest that bisection met below `far`.

        `far` itself is tried where it is no adversary's distance.
        """
        proven, open_at = torch.zeros_like(far), far
        trial = torch.where(far < self.chosen.largest, far / 2, far)
        for _ in range(self.halvings):
            family = restrict(Ball(trial, self.chosen.norm, self.chosen.domain).at(x), free)
            over = family_overlap(graph, family, target, None, self.bounds, "one-pass", "margin", available)
            holds = over.full <= 0
            proven, open_at = torch.where(holds, trial, proven), torch.where(holds, open_at, trial)
            trial = (proven + open_at) / 2
        return proven


def _area(curve: Tensor) -> Tensor:
    """The mean height of a curve (N, K) between its first point and its last, by trapezoids: (N,)."""
    if curve.shape[1] == 1:
        return curve[:, 0]
    return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)
