"""On from maxima that steps lead to: variables are thrown to the ends of their range, and steps climb from there.

A maximum from which every small step leads down is left only so, as is a plateau where all units are off. On small
networks an attack without leaps misses by a hundredth what a search then has to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family

__all__ = ["leap"]

# From members (K,) and δ (K, *shape) by steps of these sizes: (values (K,), δ).
Climb = Callable[[Tensor, Tensor, Sequence[float]], tuple[Tensor, Tensor]]

_ROUNDS, _COPIES = 16, (4, 64)  # how often, and from each start, at least and at most; as many as take
_WORK = 2**24  # numbers of the network, for each sample
_THROWN = (0.03, 0.1, 0.3, 1.0)  # shares of the variables that leap
_ROUND = 16  # times as much work it takes to stay in a ball that is no box
_HELD = 12  # arrays of the copies
_SIZES = [0.3 * (0.005 / 0.3) ** (k / 7) for k in range(8)]  # of the steps after a leap


def leap(climb: Climb, family: Family, index: Tensor, delta: Tensor, elements: int, available: int) -> Tensor:
    """The δ (K, *shape), in the members `index` (K,) as `Family.split` counts them, or better ones that leaps led to.

    elements: the numbers of the network at the starts of one sample. available: bytes for the leaps of some starts.
    """
    generator = torch.Generator(delta.device).manual_seed(0)
    work = len(_SIZES) * elements * (1 if family.norm == inf else _ROUND)
    copies = min(max(_WORK // (_ROUNDS * work), _COPIES[0]), _COPIES[1])
    rounds = min(_ROUNDS, _WORK // (copies * work))
    at_once = available // (_HELD * copies * delta[0].numel() * delta.element_size())
    if not (rounds and at_once):
        return delta
    pairs = zip(index.split(at_once), delta.split(at_once), strict=True)
    return torch.cat([_leapt(climb, family, some, starts.clone(), copies, rounds, generator) for some, starts in pairs])


def _leapt(
    climb: Climb, family: Family, index: Tensor, delta: Tensor, copies: int, rounds: int, generator: torch.Generator
) -> Tensor:
    many = index.repeat_interleave(copies)
    value, _ = climb(index, delta, ())
    for _ in range(rounds):
        ball, start = family.split(many), delta.repeat_interleave(copies, dim=0)
        draws = torch.rand(3, *start.shape, generator=generator, device=delta.device)
        share = delta.new_tensor(_THROWN)[(draws[0].flatten(1)[:, 0] * len(_THROWN)).long()]
        thrown = draws[1] < share.view(-1, *[1] * (start.ndim - 1))
        ends = torch.where(draws[2] < 0.5, ball.lower, ball.upper)
        reached, found = climb(many, ball.project(torch.where(thrown, ends, start)), _SIZES)
        best, which = reached.view(-1, copies).max(1)
        better = best > value
        value[better] = best[better]
        delta[better] = found.unflatten(0, (-1, copies))[better, which[better]]
    return delta
