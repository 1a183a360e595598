"""First bounds of a property: one batch bounds every row of every case on many boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Cases, Method, solve
from proofmap.errors import BoundError
from proofmap.graph import Graph
from proofmap.graph.rewrite.probability_head import MAX_LOGIT_GAP, decision_margin
from proofmap.inputs.family import Family
from proofmap.runtime.precision import full_precision
from proofmap.verify.unsafe_region import Region, Unsafe, enclosing_ball

RELATIVE_SLACK = 1e-6  # share of a row's terms at the box's centre: a bound closer to 0 may be a rounding error
_INPUTS_PER_BATCH = 2**22  # input values of the boxes that are bounded at once


@dataclass(frozen=True, eq=False)
class BoundedRegion:
    """A box with the proven lower bounds of the rows of all cases, (rows of all cases,) each."""

    region: Region
    lower: Tensor
    slack: Tensor  # a row is excluded if its bound exceeds the slack
    distinct: Tensor  # bool: whether a row may be excluded at all
    why: str | None = None  # the error that prevented bounds

    def _each(self, rows: Tensor) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = rows.split([len(case.bias) for case in self.region.unsafe])
        return parts

    @property
    def margin(self) -> float:
        """The smallest, over the cases, of the largest lower bound of a row."""
        return min(float(part.max()) for part in self._each(self.lower))

    @property
    def excluded(self) -> tuple[bool, ...]:
        """True for each case that a row excludes."""
        clear = torch.where(self.distinct, self.lower - self.slack, -inf)
        return tuple(bool((part > 0).any()) for part in self._each(clear))

    @property
    def excluded_margin(self) -> float:
        """The same margin over the excluded cases alone, inf if there are none."""
        margins = zip(self._each(self.lower), self.excluded, strict=True)
        return min((float(part.max()) for part, excluded in margins if excluded), default=inf)

    def left(self) -> OpenRegion | None:
        """Return the cases that no row excludes, or None if there are none."""
        each = zip(self._each(self.slack), self._each(self.distinct), self.region.unsafe, self.excluded, strict=True)
        some = [
            OpenCase(case, torch.where(distinct, case.bias.to(slack) - slack, -inf), float(slack.min()))
            for slack, distinct, case, excluded in each
            if not excluded
        ]
        return OpenRegion(self.region, tuple(some)) if some else None


@dataclass(frozen=True, eq=False)
class OpenCase:
    """A case that is not excluded, with biases (R,) lowered by the slack of its rows.

    The bias of a row that excludes nothing is -inf.
    """

    case: Unsafe
    bias: Tensor
    slack: float


@dataclass(frozen=True, eq=False)
class OpenRegion:
    """A box with the cases that are not excluded on it."""

    region: Region
    cases: tuple[OpenCase, ...]


def bound_regions(
    graph: Graph, regions: Sequence[Region], method: Method, device: torch.device, available: int, rigorous: bool
) -> Iterator[BoundedRegion]:
    """Bound the rows of all regions in batches. graph in float64.

    If the bounds of a batch fail, its regions are bounded one by one, and the error belongs to the regions that fail.
    """
    batch = max(1, _INPUTS_PER_BATCH // max(1, regions[0].lower.numel()))
    for start in range(0, len(regions), batch):
        some = regions[start : start + batch]
        try:
            yield from _bound_batch(graph, some, method, device, available, rigorous)
        except BoundError:
            for region in some:
                yield _bound_alone(graph, region, method, device, available, rigorous)


def _bound_alone(
    graph: Graph, region: Region, method: Method, device: torch.device, available: int, rigorous: bool
) -> BoundedRegion:
    try:
        (found,) = _bound_batch(graph, [region], method, device, available, rigorous)
    except BoundError as error:
        rows = torch.zeros(sum(len(case.bias) for case in region.unsafe), dtype=torch.float64)
        return BoundedRegion(region, rows - inf, rows, rows < 0, str(error))
    return found


def _bound_batch(
    graph: Graph, regions: Sequence[Region], method: Method, device: torch.device, available: int, rigorous: bool
) -> list[BoundedRegion]:
    family = enclosing_ball(
        *(torch.stack([getattr(one, end) for one in regions]).to(device) for end in ("lower", "upper"))
    )
    counts = [sum(len(case.bias) for case in region.unsafe) for region in regions]
    weight = family.x.new_zeros(len(regions), max(counts), graph.classes)
    bias = family.x.new_zeros(len(regions), max(counts))
    for g, (region, count) in enumerate(zip(regions, counts, strict=True)):
        weight[g, :count] = torch.cat([case.weight for case in region.unsafe]).to(weight)
        bias[g, :count] = torch.cat([case.bias for case in region.unsafe]).to(bias)
    with full_precision(device), torch.no_grad():
        centre = torch.cat([graph(some) for some in family.x.split(256)]).flatten(1).abs()
    size = (weight.abs() @ centre[:, :, None]).squeeze(2) + bias.abs()
    slack = RELATIVE_SLACK * size + decision_margin(graph.taken_off) * weight.abs().amax(2)
    above = solve(graph, Cases(family), -weight, method, "one-pass", available, rigorous=rigorous)
    lower = bias - above[:, 0]
    found = []
    for g, (region, count) in enumerate(zip(regions, counts, strict=True)):
        distinct = torch.ones(count, dtype=torch.bool)
        if graph.taken_off is not None:
            here = family.pick(torch.tensor([g], device=device))
            distinct = _distinct_probabilities(graph, here, region.unsafe, method, available, rigorous)
        rows = (lower[g, :count].cpu(), slack[g, :count].cpu(), distinct.cpu())
        found.append(BoundedRegion(region, *rows))
    return found


def _distinct_probabilities(
    graph: Graph, family: Family, cases: Sequence[Unsafe], method: Method, available: int, rigorous: bool
) -> Tensor:
    """Return (rows of all cases,): whether float32 probabilities differ wherever the logits of a row differ.

    Far behind the largest logit, all probabilities can be 0. There a row that equal outputs meet is not excluded.
    """
    weight, strict = (torch.cat(parts) for parts in zip(*((c.weight, c.strict) for c in cases), strict=True))
    ahead = weight.argmax(1).to(family.x.device)
    each = torch.eye(graph.classes).to(family.x)
    forms = (each[None, :] - each[ahead.unique()][:, None]).flatten(0, 1)
    above = solve(graph, Cases(family), forms[None], method, "one-pass", available, rigorous=rigorous)
    behind = family.x.new_zeros(graph.classes)
    behind[ahead.unique()] = above[0, 0].view(-1, graph.classes).amax(1).to(behind)
    return (behind[ahead] <= MAX_LOGIT_GAP) | strict.to(ahead.device)
