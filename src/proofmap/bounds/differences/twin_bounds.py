"""Direct bounds of score differences AO(B) - AO(B_u) by a twin network, without bounds of the overlaps themselves.

For g, the largest of some forms g_r of the output, and EVA(u) = max_B g - max_{B_u} g,

    EVA(u) <= max over δ in B and r of    g_r(x + δ) - g_r(x + δ with u put back),
    EVA(u) >= min over δ in B_u and r of  g_r(x + (1 - t) δ + v) - g_r(x + δ),

for every move v of u and share t that leave (1 - t) δ + v in B. In the first line, δ is a maximiser over B. In the
second line, it is a maximiser over B_u. There r is a largest form, and it reaches at least the value of any known point
(`invprop` uses this). Both sides compare two copies of the network. Their difference is a network of its own
(`graph.rewrite.twin_network`), in which the common part of the copies cancels before the relaxation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds.cases import Cases
from proofmap.bounds.differences.invprop import ConstrainedBounds, invprop
from proofmap.bounds.engine import solve
from proofmap.bounds.method import Backward
from proofmap.graph.ir import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.graph.rewrite.twin_network import twin
from proofmap.inputs.family import Family
from proofmap.rules import Interval
from proofmap.runtime.memory import bytes_needed, run_in_chunks
from proofmap.runtime.precision import full_precision
from proofmap.runtime.time_limit import time_limit

_MOST_INVPROP_ROUNDS = 8  # each round bounds the hidden layers of all pairs again
_MOST_PAIRS_AT_ONCE = 32  # a time limit loses the pairs that are bounded together
_NORM_MARGIN = 1 + 1e-6  # keeps the move plus the rest of δ inside the ball despite rounding errors of the norms


def drops(
    graph: Graph,
    family: Family,
    forms: Tensor,
    reached: Tensor,
    move: Tensor | None,
    budget: int,
    until: float = inf,
    hidden: Mapping[str, Interval] | None = None,
) -> Tensor:
    """Return intervals (N, G, 2) of max_B g - max_{B_u} g, where g is the largest of the forms (N, R, classes).

    Args:
        reached: (N, 1 + G), values of g at points of B and of every B_u.
        move: (N, *shape), a δ of B, best an adversary's. Its parts are the moves of the groups. Without it, all lower
            bounds are 0.
        until: a time of `time.monotonic`. Groups that are not bounded by then have the interval [0, inf].
        hidden: intervals (N, *shape) of the inputs of all nonlinear nodes of `with_pairwise_maxima(graph)`; None: they
            are computed.
    """
    graph = with_pairwise_maxima(graph, family.x)
    twins = twin(graph)
    result = torch.tensor([0.0, inf]).to(forms).repeat(family.count, family.groups, 1)
    each = bytes_needed("walk", sum(node.size for node in twins.nodes), forms.element_size())

    def piece(start: int, stop: int) -> None:
        part = torch.arange(start, stop, device=forms.device)
        balls = family.pick(part)
        known = None if hidden is None else {name: interval.pick(part) for name, interval in hidden.items()}
        with suppress(TimeoutError), time_limit(until):
            found = invprop(graph, balls, forms[part], reached[part].amin(1), budget, _MOST_INVPROP_ROUNDS, known)
            at_once = min(_MOST_PAIRS_AT_ONCE, budget // (4 * each))
            comparison = _TwinComparison.of(found, twins, balls, forms[part], reached[part], budget, at_once)
            first = comparison.candidates[:, :1].expand_as(comparison.candidates[:, 1:])
            result[part, :, 1] = comparison.most(_put_back, first).clamp(min=0)
            if move is not None:
                moves = balls.project(move[part])
                least = -comparison.most(
                    lambda ball, within, sample: _moved(ball, within, moves[sample]), comparison.candidates[:, 1:]
                )
                result[part, :, 0] = least.clamp(min=0).minimum(result[part, :, 1])

    with full_precision(forms.device), torch.no_grad():
        run_in_chunks(family.count, budget // (4 * forms.shape[1] * each), piece)
    return result


# Maps (balls, mask (C, *shape) of the frozen group's variables, sample indices) to the balls of the differences between
# the two compared inputs.
Differences = Callable[[Family, Tensor, Tensor], Family]


def _put_back(ball: Family, within: Tensor, sample: Tensor) -> Family:
    """Return the ball of differences d = -δ within the group, and 0 elsewhere."""
    lower, upper = torch.where(within, -ball.upper, 0), torch.where(within, -ball.lower, 0)
    return Family(torch.zeros_like(ball.x), lower, upper, ball.norm, ball.eps)


def _moved(ball: Family, within: Tensor, move: Tensor) -> Family:
    """Return the ball of differences d = v - t δ for δ in B_u.

    t is the least share that keeps (1 - t) δ + v in the ball:  ||v|| + (1 - t) ε <= ε for p = 1, and
    ||v||² + (1 - t)² ε² <= ε² for p = 2. For boxes, t = 0.
    """
    v = torch.where(within, move, 0)
    size = (
        torch.linalg.vector_norm(v.flatten(1), ball.norm, dim=1) / torch.where(ball.eps > 0, ball.eps, 1) * _NORM_MARGIN
    )
    match ball.norm:
        case 1.0:
            share = size
        case 2.0:
            share = 1 - (1 - size.square()).clamp(min=0).sqrt()
        case _:
            share = torch.zeros_like(size)
    t = share.clamp(max=1).view(-1, *[1] * len(ball.shape))
    lower, upper = torch.where(within, 0, -t * ball.upper), torch.where(within, 0, -t * ball.lower)
    return Family(v, lower, upper, ball.norm, t.flatten() * ball.eps)


@dataclass(frozen=True, eq=False)
class _TwinComparison:
    """Two copies of a network, compared on Q parts of the balls of N samples where a form can be the largest."""

    twins: Graph
    family: Family
    forms: Tensor  # (N, R, classes)
    sample: Tensor  # (Q,)
    candidates: Tensor  # (Q, 1 + G, R) whether a form can be the largest at a maximiser over a member
    known: Mapping[str, Interval]  # intervals (Q, *shape) of the inputs of both copies' nonlinear operations
    budget: int
    at_once: int  # pairs of a part and a group that are bounded together

    @staticmethod
    def of(
        found: ConstrainedBounds,
        twins: Graph,
        family: Family,
        forms: Tensor,
        reached: Tensor,
        budget: int,
        at_once: int,
    ) -> _TwinComparison:
        """Find the parts in which the first copy's input can maximise a form over a member.

        There the form reaches the known value of the member. A form whose hidden intervals become narrower by this gets
        a part of its own. All other forms of a sample share one part.
        """
        rows = torch.arange(forms.shape[1], device=forms.device)
        kept = found.reaches(reached)[:, :, None] & rows.eq(found.row[:, None, None])  # (pairs, 1 + G, R)
        own = found.narrowed()
        rest = kept.new_zeros(family.count, *kept.shape[1:], dtype=torch.int64)
        rest = rest.index_add_(0, found.sample[~own], kept[~own].long()) > 0
        every = torch.arange(family.count, device=forms.device)
        parts = torch.cat([found.sample[own], every])
        known = {}
        for node in (node for node in twins.nodes if node.op == "change"):
            before, after, name = node.inputs
            narrow, whole = found.known[name].pick(own), found.whole[name]
            known[before], known[after] = narrow.concat(whole), whole.pick(parts)
        return _TwinComparison(twins, family, forms, parts, torch.cat([kept[own], rest]), known, budget, at_once)

    def most(self, differences: Differences, rows: Tensor) -> Tensor:
        """Return (N, G): the most by which one of the marked forms (Q, G, R) can be lower in the second copy."""
        groups = self.family.groups
        selected = rows.any(2).flatten().nonzero().flatten()
        value = self.forms.new_full((len(selected),), inf)

        def piece(start: int, stop: int) -> None:
            part, group = selected[start:stop] // groups, selected[start:stop] % groups
            sample = self.sample[part]
            ball = self.family.pick(sample)
            assert ball.mask is not None
            within = ball.mask.eq(group.view(-1, *[1] * len(ball.shape)))
            cases = Cases(differences(ball, within, sample), {n: one.pick(part) for n, one in self.known.items()})
            forms = _gather_rows(self.forms[sample], rows[part, group])
            value[start:stop] = solve(self.twins, cases, -forms, Backward(), "one-pass", self.budget).amax((1, 2))

        with suppress(TimeoutError):  # the pairs left have no bound
            run_in_chunks(len(selected), self.at_once, piece)
        most = self.forms.new_full((self.family.count * groups,), -inf)
        at = self.sample[selected // groups] * groups + selected % groups
        return most.scatter_reduce_(0, at, value, "amax").view(-1, groups)


def _gather_rows(forms: Tensor, kept: Tensor) -> Tensor:
    """Return the marked forms (C, K, classes) of (C, R, classes). Cases with fewer than K repeat one of them."""
    first = kept.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    index = torch.where(kept.gather(1, first), first, first[:, :1])
    return forms.gather(1, index.unsqueeze(2).expand(-1, -1, forms.shape[2]))
