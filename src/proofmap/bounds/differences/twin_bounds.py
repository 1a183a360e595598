"""By how much freezing a group lowers the overlap, bounded without bounding the overlaps themselves.

For g, the largest of some forms g_r of the output, and EVA(u) = max_B g - max_{B_u} g,

    EVA(u) <= max over δ in B and r of    g_r(x + δ) - g_r(x + δ with u put back),
    EVA(u) >= min over δ in B_u and r of  g_r(x + (1 - t) δ + v) - g_r(x + δ),

for every move v of u and share t that leave (1 - t) δ + v in B. The first δ is one where the maximum over B is taken,
the second one where that over B_u is: r is a form that is the largest there, and x + δ an input where it reaches at
least what is known to be reached (`invprop`). Both sides compare two copies of the network, and their difference is a
network of its own (`graph.twin`): what the copies have in common cancels before anything is relaxed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds.cases import Cases
from proofmap.bounds.differences.invprop import invprop
from proofmap.bounds.engine import solve
from proofmap.bounds.method import Backward
from proofmap.graph.ir import Graph
from proofmap.graph.rewrite.pairwise_maximum import in_pairs
from proofmap.graph.rewrite.twin_network import twin
from proofmap.inputs.family import Family
from proofmap.rules import Interval
from proofmap.runtime.memory import bytes_of, in_pieces
from proofmap.runtime.precision import full_precision

_ROUNDS = 8  # of narrowing, at most
_FEW = 32  # pairs between two looks at the clock
_UP = 1 + 1e-6  # so that a move and what is left of δ stay in the ball whatever their norms are rounded to


def drops(
    graph: Graph,
    family: Family,
    forms: Tensor,
    reached: Tensor,
    move: Tensor | None,
    budget: int,
    until: float = inf,
) -> Tensor:
    """Intervals (N, G, 2) that hold max_B g - max_{B_u} g, g being the largest of the forms (N, R, classes).

    reached (N, 1 + G): values of g at points of B and of every B_u. move (N, *shape): a δ of B, whose parts are the
    moves of the groups, best an adversary's; without one every lower end is 0. until: a time of `time.monotonic`, from
    which on no more groups are looked at: their intervals are [0, inf].
    """
    graph = in_pairs(graph, family.x)
    twins = twin(graph)
    result = forms.new_zeros(family.count, family.groups, 2)
    each = bytes_of("walk", sum(node.size for node in twins.nodes), forms.element_size())

    def piece(start: int, stop: int) -> None:
        part = torch.arange(start, stop, device=forms.device)
        balls = family.pick(part)
        pairs = _TwinComparison.of(graph, twins, balls, forms[part], reached[part], budget, budget // (4 * each), until)
        result[part, :, 1] = pairs.most(_put_back, pairs.kept[:, :1].expand_as(pairs.kept[:, 1:])).clamp(min=0)
        if move is not None:
            moves = balls.project(move[part])
            least = -pairs.most(lambda ball, within, sample: _moved(ball, within, moves[sample]), pairs.kept[:, 1:])
            result[part, :, 0] = least.clamp(min=0).minimum(result[part, :, 1])

    with full_precision(forms.device), torch.no_grad():
        in_pieces(family.count, budget // (4 * forms.shape[1] * each), piece)
    return result


# From balls, the variables (C, *shape) of the group that each freezes, and the number of its sample, to what two inputs
# that are compared differ by.
Differences = Callable[[Family, Tensor, Tensor], Family]


def _put_back(ball: Family, within: Tensor, sample: Tensor) -> Family:
    """d = -δ in the group."""
    lower, upper = torch.where(within, -ball.upper, 0), torch.where(within, -ball.lower, 0)
    return Family(torch.zeros_like(ball.x), lower, upper, ball.norm, ball.eps)


def _moved(ball: Family, within: Tensor, move: Tensor) -> Family:
    """d = v - t δ for δ in B_u. ||v||_p + (1 - t) ε <= ε for p = 1, of the squares for p = 2; t = 0 for boxes."""
    v = torch.where(within, move, 0)
    size = torch.linalg.vector_norm(v.flatten(1), ball.norm, dim=1) / torch.where(ball.eps > 0, ball.eps, 1) * _UP
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
    """Two copies of a network, compared where forms can be the largest: Q parts of the balls of N samples."""

    twins: Graph
    family: Family
    forms: Tensor  # (N, R, classes)
    sample: Tensor  # (Q,)
    kept: Tensor  # (Q, 1 + G, R) the forms that can be the largest where the maximum over a member is taken
    known: Mapping[str, Interval]  # of what either copy reads, (Q, *shape)
    budget: int
    at_once: int  # pairs of copies
    until: float

    @staticmethod
    def of(
        graph: Graph,
        twins: Graph,
        family: Family,
        forms: Tensor,
        reached: Tensor,
        budget: int,
        at_once: int,
        until: float = inf,
    ) -> _TwinComparison:
        """The first copy's input maximises a form over a member: it reaches what the member does. A part of its own for
        each form whose hidden values that narrows, another for all others of the sample.
        """
        found = invprop(graph, family, forms, reached.amin(1), budget, _ROUNDS, until)
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
            known[before], known[after] = narrow.then(whole), whole.pick(parts)
        return _TwinComparison(twins, family, forms, parts, torch.cat([kept[own], rest]), known, budget, at_once, until)

    def most(self, differences: Differences, rows: Tensor) -> Tensor:
        """(N, G): the most by which one of the rows (Q, G, R) of the forms can be lower in the second copy."""
        groups = self.family.groups
        asked = rows.any(2).flatten().nonzero().flatten()
        value = self.forms.new_full((len(asked),), inf)

        def piece(start: int, stop: int) -> None:
            if time.monotonic() > self.until:
                return
            part, group = asked[start:stop] // groups, asked[start:stop] % groups
            sample = self.sample[part]
            ball = self.family.pick(sample)
            assert ball.mask is not None
            within = ball.mask.eq(group.view(-1, *[1] * len(ball.shape)))
            cases = Cases(differences(ball, within, sample), {n: one.pick(part) for n, one in self.known.items()})
            forms = _those(self.forms[sample], rows[part, group])
            value[start:stop] = solve(self.twins, cases, -forms, Backward(), "one-pass", self.budget).amax((1, 2))

        in_pieces(len(asked), self.at_once if self.until == inf else min(self.at_once, _FEW), piece)
        most = self.forms.new_full((self.family.count * groups,), -inf)
        at = self.sample[asked // groups] * groups + asked % groups
        return most.scatter_reduce_(0, at, value, "amax").view(-1, groups)


def _those(forms: Tensor, kept: Tensor) -> Tensor:
    """The rows (C, K, classes) of (C, R, classes) that are kept (C, R); one of them again where there are fewer."""
    first = kept.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    index = torch.where(kept.gather(1, first), first, first[:, :1])
    return forms.gather(1, index.unsqueeze(2).expand(-1, -1, forms.shape[2]))
