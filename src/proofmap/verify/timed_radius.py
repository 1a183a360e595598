"""The largest provable radius within a time limit, for `pm.explain`: a geometric search from the linearised radius."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.graph import Graph, Network
from proofmap.graph.classes import logits_of, margins
from proofmap.inputs.ball import Ball
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import report
from proofmap.runtime.time_limit import time_limit
from proofmap.verify.radius_search import RadiusSearch

_FIRST_SHARE = 1 / 16  # first trial, as a share of the linearised radius: provable radii are rarely below it
_FIRST_SHARE_PRODUCTS = 1 / 64  # the same with attention: for one input of cifar_vit 1/32 was proven, 1/16 was not
_LINEAR_RIVALS = 5  # the linearised radius uses this many rivals with the highest logits
_STEP_FACTOR = 4.0  # ratio of two trials, while only a proven or only an unproven radius is known
_LEAST_RADIUS = 1e-8  # smaller radii are not tried
_CLOSE_RATIO = 1.02  # ratio of an unproven to a proven radius at which the search ends
LEAST_TRIAL_SECONDS = 1.0  # time that the first trial gets in any case, as do the scores of a proven radius
_MOST_TRIALS = 32  # trials after which the search ends in any case


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
    search = RadiusSearch.of(model, x, Ball(1.0, inf, domain), None, target, _MOST_TRIALS, None)
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
                    holds, _ = search.decided(replace(search.ball, eps=trial).at(x).pick(rows), rows)
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
