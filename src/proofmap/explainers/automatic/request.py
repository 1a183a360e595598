"""The request of a call of `pm.explain`: its samples with their groups and ranges, and the explained classes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, record_of_inputs
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_inputs import with_inputs
from proofmap.graph import Graph, Network
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs, of_one_input
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import FIXED, join_groups, of_parts

_PROOF_CELLS = 12  # cells along each side of an image, the groups whose scores are proven


@dataclass(frozen=True, eq=False)
class RangedSamples:
    """The samples of a call of `explain`, with their groups and ranges. Several inputs are joined."""

    model: Network
    x: Tensor
    groups: grouping.Groups  # the map scores these
    cells: grouping.Groups  # the proof scores these
    domain: tuple[Any, Any] | None
    width: float | Tensor  # high - low, or the range of the values without limits
    range_sentence: str
    record: list[dict[str, Any]] | None = None  # several inputs


@dataclass(frozen=True, eq=False)
class ExplainRequest:
    """The checked arguments of `explain`."""

    model: Graph  # as traced
    graph: Graph  # in the precision of x, on its device
    x: Tensor
    target: Tensor  # (N,)
    samples: RangedSamples
    progress: bool

    @property
    def groups(self) -> grouping.Groups:
        """The groups of the map."""
        return self.samples.groups

    @property
    def domain(self) -> tuple[Any, Any] | None:
        """The range of the values."""
        return self.samples.domain

    def explained(self, explainer: Explainer) -> Explanation:
        """Explain the samples; the explanation names the parts of several inputs."""
        return with_inputs(explainer.explain(self.x, self.target), self.samples.record)

    def seconds_of(self, work: Callable[[], object]) -> float:
        """Return the seconds that a second call takes, after one call to warm up."""
        work()
        begin = time.perf_counter()
        work()
        if self.x.is_cuda:
            torch.cuda.synchronize(self.x.device)
        return max(time.perf_counter() - begin, 1e-6)


def one_input(model: Network, x: Inputs, groups: Any, domain: Any) -> RangedSamples:
    """Return one input with its groups and its range."""
    x = as_samples(x, model).detach()
    _, groups = of_one_input(None, groups)
    limits, said = _limits(x, domain)
    cells = _cells(x) if groups is None else groups
    return RangedSamples(model, x, groups, cells, limits, _width(x, limits), said)


def several_inputs(model: Network, x: Inputs, groups: Any, domain: Any) -> RangedSamples:
    """Return the joined vectors of several inputs, with their groups and ranges."""
    joined = join_inputs(model, x)
    if joined.is_one:
        return one_input(joined.model, joined.x, joined.mask(groups, None), domain)
    if domain is None or isinstance(domain, str):
        domain = tuple(domain if part.constant is None else None for part in joined.parts)
    floats = [part for part in joined.parts if part.constant is None]
    given = of_parts(domain, joined.parts, "domains")
    ranges, widths, said = [], [], []
    for part, limits, value in zip(floats, given, joined.values, strict=True):
        fixed = isinstance(limits, str) and limits == FIXED
        known, words = (limits, FIXED) if fixed else _known_limits(value, limits)
        width = torch.as_tensor(0.0 if fixed else _width(value, known), device=value.device)
        ranges.append(known)
        widths.append(width.to(value.dtype).expand(1, *value.shape[1:]).flatten(1))
        said.append(f"{part.name!r} {words}")
    moves = [not isinstance(known, str) for known in ranges]
    each = iter(ranges)
    ball = joined.unit_ball(inf, tuple(next(each) if part.constant is None else None for part in joined.parts))
    own = (Ball("auto", domain=known) if moving else None for known, moving in zip(ranges, moves, strict=True))
    balls = tuple(next(own) if part.constant is None else None for part in joined.parts)
    return RangedSamples(
        joined.model,
        joined.x,
        join_groups(groups, moves, joined.values, joined.parts),
        join_groups(groups, moves, joined.values, joined.parts, _cells),
        ball.domain,
        torch.cat(widths, dim=1),
        f"Ranges of the inputs: {', '.join(said)}; set others with domain=(...), one entry for each input.",
        record_of_inputs(joined, balls),
    )


def _known_limits(x: Tensor, limits: Any) -> tuple[Any, str]:
    """Return the range of one of several inputs, and words for it."""
    if not isinstance(limits, str):
        return limits, "no limits" if limits is None else "the given range"
    if limits != "auto":
        raise InputError(f"got the domain {limits!r} of an input, expected (low, high), None, 'auto', or 'fixed'")
    if _in_unit_range(x):
        return (0.0, 1.0), "[0, 1], in which all its values are"
    return None, "no limits, as some values are outside [0, 1]"


def _cells(x: Tensor) -> grouping.Groups:
    """Return the groups of a proof: cells of an image, as the scores of all pixels take long and are hard to read."""
    shape = x.shape[1:]
    image = len(shape) in (2, 3) and min(shape[-2:]) >= 2 * _PROOF_CELLS
    return grouping.grid(_PROOF_CELLS) if image else grouping.pixels()


def _limits(x: Tensor, domain: tuple[Any, Any] | str | None) -> tuple[tuple[Any, Any] | None, str]:
    """Return the range of the values, and a sentence with its source."""
    if domain is None or isinstance(domain, tuple):
        return domain, "The range of the values was given."
    if isinstance(domain, str) and domain != "auto":
        raise InputError(f"got domain={domain!r}, expected (low, high), None for no limits, or 'auto'")
    if _in_unit_range(x):
        unit = (0.0, 1.0)
        return unit, "All values are in [0, 1], which is taken as their range; set another with domain=(low, high)."
    return None, "Some values are outside [0, 1], so no range is assumed; set one with domain=(low, high)."


def _in_unit_range(x: Tensor) -> bool:
    return bool((x >= 0).all()) and bool((x <= 1).all())


def _width(x: Tensor, domain: tuple[Any, Any] | None) -> float | Tensor:
    """Return the width of the domain, as a number or a tensor that broadcasts to x; else the range of the samples."""
    if domain is None:
        return float(x.max() - x.min()) or 1.0
    width = torch.as_tensor(domain[1], dtype=torch.float64) - torch.as_tensor(domain[0], dtype=torch.float64)
    if not bool(width.isfinite().all()):
        return float(x.max() - x.min()) or 1.0
    return width.view(-1, *[1] * (x.ndim - 2)) if width.ndim == 1 and x.ndim > 2 else width
