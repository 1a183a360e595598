"""Robustness radii: bisection proves a lower bound, and the nearest adversarial example gives an upper bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.graph import Network
from proofmap.graph.joined_inputs import in_unit_ball
from proofmap.graph.opaque import differentiable
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import Domains, InputPart, split_tensor
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.text.radius_table import radius_html, radius_line
from proofmap.verify.overlap import Overlap
from proofmap.verify.radius_search import RadiusInterval, RadiusSearch

_ATTACK_WORK_SHARE = 0.2  # share of the progress bar for the attack


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
    model, x, ball, parts = in_unit_ball(model, x, norm, domain)
    search = RadiusSearch.of(model, x, ball, bounds, target, steps, memory, rigorous, parts)
    differentiable(search.graph, "an attack")
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        with part(0.0, _ATTACK_WORK_SHARE):
            known = search.attack(RadiusInterval.at(search.x))
        with part(_ATTACK_WORK_SHARE, 1.0):
            known = search.bisect(known)
        return _found(search, known)


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
    model, x, ball, parts = in_unit_ball(model, x, norm, domain)
    search = RadiusSearch.of(model, x, ball, bounds, target, steps, memory, rigorous, parts)
    with _shown(len(search.x), progress), full_precision(search.x.device), torch.no_grad():
        return search.bounds_of_radii(search.bisect(RadiusInterval.at(search.x)))[0]


def with_curve(
    found: Radius, eps: Tensor, sides: Sequence[Overlap], model: Network, x: Tensor, target: Tensor, ball: Ball
) -> Radius:
    """Return the radii with all that bounds at the radii `eps` (E,) prove and refute beyond them.

    sides: the overlaps of the balls of kind `ball` at x (N, *shape), from both sides. A bound below 0 proves its
    radius. A point of a lower bound may be an adversary that is nearer than those of `found`.
    """
    search = RadiusSearch.of(model, x, ball, None, target, 1, None, found.rigorous)
    known = RadiusInterval(found.proven, found.refuted.to(found.proven), found.refuted.double(), found.points)
    every = torch.arange(len(x), device=x.device)
    for size, side in zip(eps.to(found.proven), sides, strict=True):
        if side.rigorous or not found.rigorous:
            known = replace(known, proven=torch.where(side.full < 0, known.proven.maximum(size), known.proven))
        if side.points is not None:
            with full_precision(x.device), torch.no_grad():
                known = search.with_adversaries(known, every, side.points[:, 0])
    return _found(search, known)


def _found(search: RadiusSearch, known: RadiusInterval) -> Radius:
    proven, refuted = search.bounds_of_radii(known)
    return Radius(proven, refuted, known.points, search.how.rigorous, search.parts)


@contextmanager
def _shown(count: int, show: bool) -> Iterator[None]:
    with ProgressBar(count, "radius", show=show) as bar, bar.work(count):
        yield
