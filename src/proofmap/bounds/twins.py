"""By how much freezing a group lowers the overlap, bounded without bounding the overlaps themselves.

For g, the largest of some forms g_r of the output, and EVA(u) = max_B g - max_{B_u} g,

    EVA(u) <= max over δ in B and r of    g_r(x + δ) - g_r(x + δ with u put back),
    EVA(u) >= min over δ in B_u and r of  g_r(x + (1 - t) δ + v) - g_r(x + δ),

for every move v of u and share t that leave (1 - t) δ + v in B. A form that cannot be the largest where the maximum is
taken is no r. Both sides compare two copies of the network, and their difference is a network of its own
(`graph.twin`): what the copies have in common cancels before anything is relaxed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.bounds.cases import Cases
from proofmap.bounds.engine import settle, solve
from proofmap.bounds.layers import Layers
from proofmap.bounds.method import Backward
from proofmap.family import Family
from proofmap.graph.ir import Graph
from proofmap.graph.pairs import in_pairs
from proofmap.graph.twin import twin
from proofmap.memory import bytes_of, in_pieces
from proofmap.precision import full_precision
from proofmap.rules import Interval

_ROUNDINGS = 2**10  # by which the bound of a form may be too low, so that the largest seems not to be
_UP = 1 + 1e-6  # so that a move and what is left of δ stay in the ball whatever their norms are rounded to


def drops(graph: Graph, family: Family, forms: Tensor, reached: Tensor, move: Tensor | None, budget: int) -> Tensor:
    """Intervals (N, G, 2) that hold max_B g - max_{B_u} g, g being the largest of the forms (N, R, classes).

    reached (N, 1 + G): values of g at points of B and of every B_u. move (N, *shape): a δ of B, whose parts are the
    moves of the groups, best an adversary's; without one every lower end is 0.
    """
    graph = in_pairs(graph, family.x)
    twins = twin(graph)
    result = forms.new_zeros(family.count, family.groups, 2)
    each = bytes_of("walk", sum(node.size for node in twins.nodes), forms.element_size())

    def piece(start: int, stop: int) -> None:
        part = torch.arange(start, stop, device=forms.device)
        balls, rows = family.pick(part), forms[part]
        known, kept = _hidden(graph, twins, balls, rows, reached[part], budget)
        pairs = _Pairs(twins, balls, rows, known, budget, budget // (4 * each))
        result[part, :, 1] = pairs.most(_put_back, kept[:, :1].expand_as(kept[:, 1:])).clamp(min=0)
        if move is not None:
            moves = balls.project(move[part])
            least = -pairs.most(lambda ball, within, sample: _moved(ball, within, moves[sample]), kept[:, 1:])
            result[part, :, 0] = least.clamp(min=0).minimum(result[part, :, 1])

    with full_precision(forms.device), torch.no_grad():
        in_pieces(family.count, budget // (4 * each), piece)
    return result


def _hidden(
    graph: Graph, twins: Graph, family: Family, forms: Tensor, reached: Tensor, budget: int
) -> tuple[dict[str, Interval], Tensor]:
    """What either copy's values lie in, by the names of the further inputs, and which forms (N, 1 + G, R) can be the
    largest where the maximum over a member is taken: those whose bound on B is not below what the member reaches.
    """
    (plan,) = Backward().plans
    alone = Cases(replace(family, mask=None, groups=0))
    knowledge, bounders = settle(graph, alone, plan, budget, Layers.of(graph, forms.shape[1], back=True))
    every = torch.ones_like(forms[:, :, 0], dtype=torch.bool)
    bound = bounders[plan.final[0]].final(forms, every)  # (N, 1, R)
    slack = _ROUNDINGS * torch.finfo(bound.dtype).eps * bound.abs().amax(2, keepdim=True)
    changes = [node for node in twins.nodes if node.op == "change"]
    known = {name: knowledge.interval(node.inputs[-1]) for node in changes for name in node.inputs[:-1]}
    return known, bound + slack >= reached[:, :, None]


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
class _Pairs:
    """Two copies of a network, compared on the balls of some samples."""

    twins: Graph
    family: Family
    forms: Tensor  # (N, R, classes)
    known: Mapping[str, Interval]  # of the N samples
    budget: int
    at_once: int  # pairs of copies

    def most(self, differences: Differences, rows: Tensor) -> Tensor:
        """(N, G): the most by which one of the rows (N, G, R) of the forms can be lower in the second copy."""
        count, groups = self.family.count, self.family.groups
        value = self.forms.new_empty(count * groups)
        every = torch.arange(count * groups, device=value.device)

        def piece(start: int, stop: int) -> None:
            part = every[start:stop]
            sample, group = part // groups, part % groups
            ball = self.family.pick(sample)
            assert ball.mask is not None
            within = ball.mask.eq(group.view(-1, *[1] * len(ball.shape)))
            cases = Cases(differences(ball, within, sample), {n: one.pick(sample) for n, one in self.known.items()})
            asked = _those(self.forms[sample], rows[sample, group])
            value[part] = solve(self.twins, cases, -asked, Backward(), "one-pass", self.budget).amax((1, 2))

        in_pieces(len(every), self.at_once, piece)
        return value.view(count, groups)


def _those(forms: Tensor, kept: Tensor) -> Tensor:
    """The rows (C, K, classes) of (C, R, classes) that are kept (C, R); one of them again where there are fewer."""
    first = kept.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    index = torch.where(kept.gather(1, first), first, first[:, :1])
    return forms.gather(1, index.unsqueeze(2).expand(-1, -1, forms.shape[2]))
