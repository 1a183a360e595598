"""Robustness-Sr: bounds of the distance to an adversary when only the most important variables may change.

Hsieh et al. 2021, "Evaluations and methods for explanation through robustness analysis".
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import adversaries, restrict
from proofmap.bounds import Method
from proofmap.errors import InputError
from proofmap.graph import Graph, Network, bounded
from proofmap.graph.opaque import differentiable
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, ends_of
from proofmap.metrics.nested_balls import nested
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime.memory import budget, check_memory
from proofmap.settings import check_count, check_number, count, setting
from proofmap.verify.overlap import OverlapSettings, family_overlap, method_of


@dataclass(frozen=True, eq=False)
class Distances:
    """Bounds of d = min(infimum of distances of adversaries, largest), for each sample and number of free variables.

    proven <= d <= found, in exact arithmetic.

    >>> curve = pm.metrics.RobustnessSr(steps=2, rounds=1, halvings=2).distances(model, x, None, maps)
    >>> isinstance(curve, pm.metrics.Distances), bool((curve.proven <= curve.found).all())
    (True, True)
    """

    shares: Tensor  # (K,) the share of variables that may change, the most important first
    proven: Tensor  # (N, K) a certified radius without adversaries
    found: Tensor  # (N, K) the distance of an adversary that an attack found; `largest` if it found none


@dataclass(frozen=True, eq=False)
class RobustnessSr(Metric[Maps]):
    """The mean distance to the nearest adversary that is found when only the k most important variables may change.

        d_k = inf ||δ||_p over δ with δ_i = 0 outside the k most important variables, x + δ in the domain, and
              max over c' != c of f_c'(x + δ) - f_c(x + δ) > 0,

    for k = floor(i G / steps), i = 1 .. steps, and the area under it by trapezoids over k / G from 1 / steps to 1,
    divided by that width. Lower is better. d_k is an infimum: at this distance there is only a tie. An attack gives an
    upper bound of d_k; `both` adds a certified lower bound.
    An adversary for few variables is also one for more variables, so neither curve rises with k. If no adversary was
    found, `largest` is used for d_k.

    norm: 1, 2 or inf. domain: as in `pm.Ball`; (-inf, inf) for no limits.
    steps: points of the curve, at most the number of variables.
    rounds, attack_steps: the number of attacks that shorten the distance of a known adversary, and the gradient steps
    of each attack from x. Attacks are deterministic.
    The preset "paper": inf, (0, 1), largest 1, 10 steps, 5 rounds, 10 gradient steps. The paper only states PGD.

    bounds: the method of the lower bound, by default Backward(). halvings: steps of its bisection between 0 and the
    found distance. groups: the variables, by default pixels. seed: breaks ties of attributions. batch: balls that are
    attacked or bounded together; by default about 16 MB of points. memory: bytes that bounds may use.

    >>> proven, found = pm.metrics.RobustnessSr(steps=2, rounds=1, halvings=2).both(model, x, None, maps)
    >>> bool((proven <= found).all())
    True
    """

    name: ClassVar[str] = "robustness-sr"
    label: ClassVar[str] = "Robustness-Sr"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = {
        "paper": {"norm": inf, "domain": (0.0, 1.0), "largest": 1.0, "steps": 10, "rounds": 5, "attack_steps": 10}
    }

    preset: str = "paper"
    _: KW_ONLY
    norm: ByPreset[float] = ByPreset()
    domain: ByPreset[tuple[float | Tensor, float | Tensor]] = ByPreset()
    largest: ByPreset[float] = ByPreset()
    steps: ByPreset[int] = ByPreset(check_count)
    rounds: ByPreset[int] = ByPreset(check_count)
    attack_steps: ByPreset[int] = ByPreset(check_count)
    bounds: Method | None = None
    halvings: int = count(8)
    groups: Groups = setting(None, check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        object.__setattr__(self, "groups", pixels() if self.groups is None else self.groups)
        super().__post_init__()
        check_number("RobustnessSr got largest", self.largest, "a distance above 0", lambda far: far > 0)
        Ball(self.largest, self.norm, self.domain)
        check_memory(self.memory)
        if self.bounds is not None and not isinstance(self.bounds, Method):
            raise InputError(f"RobustnessSr got bounds={self.bounds!r}, expected a method such as pm.bounds.Backward()")
        object.__setattr__(self, "bounds", method_of(self.bounds))

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> RobustnessSr:
        """Return the metric whose `largest` distance is the range of inputs."""
        low, high = ends_of(ball, values)
        return cls(norm=ball.norm, domain=ball.domain or (-inf, inf), largest=high - low)

    def _check(self, x: Tensor) -> None:
        Ball(self.largest, self.norm, self.domain).at(x)

    def _values(self, case: Case) -> Tensor:
        """Return the area under the found distances (N,), an upper bound of the area under the true distances."""
        return _area(self._distances(case, prove=False).found)

    def both(self, model: Network, x: Samples, target: Target, attributions: Samples) -> tuple[Tensor, Tensor]:
        """Return (lower, upper), each (N,): bounds of the area under the true distances, cut off at `largest`."""
        curves = self.distances(model, x, target, attributions)
        return _area(curves.proven), _area(curves.found)

    def distances(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Distances:
        """Return the curves of proven and found distances."""
        return self._distances(self._case(model, x, target, attributions), prove=True)

    def _distances(self, case: Case, *, prove: bool) -> Distances:
        graph, x, variables = case.graph, case.x, Variables.of(case.x, self.groups)
        available = budget(self.memory, x.device)
        differentiable(graph, "Robustness-Sr")
        if prove:
            bounded(graph)
        steps = min(self.steps, variables.most)
        reached, proven = [], []
        for near, classes, free in nested(case, variables, steps, self.seed):
            far = self._attack(graph, near, classes, free)
            reached.append(far)
            if prove:
                proven.append(self._prove(graph, near, classes, free, far, available))
        upper = torch.cat(reached).view(len(x), steps).cummin(1).values
        lower = torch.cat(proven).view(len(x), steps) if prove else torch.zeros_like(upper)
        shares = torch.arange(1, steps + 1, device=x.device).to(x.dtype) / steps
        return Distances(shares, lower.flip(1).cummax(1).values.flip(1), upper)

    def _attack(self, graph: Graph, x: Tensor, target: Tensor, free: Tensor) -> Tensor:
        """Return the distance of an adversary (n,); `largest` if none was found."""
        family = restrict(Ball(self.largest, self.norm, self.domain).at(x), free)
        distance, _ = adversaries(graph, family, target, rounds=self.rounds, steps=self.attack_steps)
        return distance.clamp(max=self.largest)

    def _prove(self, graph: Graph, x: Tensor, target: Tensor, free: Tensor, far: Tensor, available: int) -> Tensor:
        """Return the largest radius (n,) below `far` for which bisection proves an overlap below 0.

        If `far` is not the distance of an adversary, it is tried first.
        """
        proven, open_at = torch.zeros_like(far), far
        trial = torch.where(far < self.largest, far / 2, far)
        method = method_of(self.bounds)
        how = OverlapSettings(method, available, rigorous=decide_rigorous(graph, None, method))
        for _ in range(self.halvings):
            family = restrict(Ball(trial, self.norm, self.domain).at(x), free)
            over = family_overlap(graph, family, target, how)
            holds = over.full < 0
            proven, open_at = torch.where(holds, trial, proven), torch.where(holds, open_at, trial)
            trial = (proven + open_at) / 2
        return proven


def _area(curve: Tensor) -> Tensor:
    """Return the mean height (N,) of a curve (N, K) by the trapezoidal rule."""
    if curve.shape[1] == 1:
        return curve[:, 0]
    return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)
