"""Random restarts for PGD: move some variables to endpoints of their range, and run PGD again.

They escape a maximum from which every small step leads down, and a plateau where all units are inactive. On small
networks, an attack without restarts misses by a hundredth a maximum that a search then has to find.
"""

from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family

# Runs PGD steps of these sizes from δ (K, *shape) in members (K,): (values (K,), δ).
PGDRun = Callable[[Tensor, Tensor, Sequence[float]], tuple[Tensor, Tensor]]

# rounds of restarts, and the least and largest number of copies of each start, within
_RESTART_ROUNDS, _COPIES_PER_START = 16, (4, 64)
_NETWORK_VALUES = 2**24  # network values computed for each sample
_MOVED_SHARES = (0.03, 0.1, 0.3, 1.0)  # shares of the variables that are moved
_PROJECTION_COST = 16  # cost factor of projecting onto a ball that is no box
_ARRAYS_HELD = 12  # arrays of the copies in memory
_STEP_SIZES = [0.3 * (0.005 / 0.3) ** (k / 7) for k in range(8)]  # PGD step sizes after a restart


def random_restarts(
    climb: PGDRun, family: Family, index: Tensor, delta: Tensor, elements: int, available: int
) -> Tensor:
    """Return the δ (K, *shape), in the members `index` (K,) as `Family.split` counts them, improved by random restarts.

    elements: the number of network values at the starts of one sample.
    available: bytes for the restarts of some starts.
    """
    generator = torch.Generator(delta.device).manual_seed(0)
    work = len(_STEP_SIZES) * elements * (1 if family.norm == inf else _PROJECTION_COST)
    copies = min(max(_NETWORK_VALUES // (_RESTART_ROUNDS * work), _COPIES_PER_START[0]), _COPIES_PER_START[1])
    rounds = min(_RESTART_ROUNDS, _NETWORK_VALUES // (copies * work))
    at_once = available // (_ARRAYS_HELD * copies * delta[0].numel() * delta.element_size())
    if not (rounds and at_once):
        return delta
    pairs = zip(index.split(at_once), delta.split(at_once), strict=True)
    return torch.cat(
        [_restart_chunk(climb, family, some, starts.clone(), copies, rounds, generator) for some, starts in pairs]
    )


def _restart_chunk(
    climb: PGDRun, family: Family, index: Tensor, delta: Tensor, copies: int, rounds: int, generator: torch.Generator
) -> Tensor:
    many = index.repeat_interleave(copies)
    value, _ = climb(index, delta, ())
    for _ in range(rounds):
        ball, start = family.split(many), delta.repeat_interleave(copies, dim=0)
        draws = torch.rand(3, *start.shape, generator=generator, device=delta.device)
        share = delta.new_tensor(_MOVED_SHARES)[(draws[0].flatten(1)[:, 0] * len(_MOVED_SHARES)).long()]
        thrown = draws[1] < share.view(-1, *[1] * (start.ndim - 1))
        ends = torch.where(draws[2] < 0.5, ball.lower, ball.upper)
        reached, found = climb(many, ball.project(torch.where(thrown, ends, start)), _STEP_SIZES)
        best, which = reached.view(-1, copies).max(1)
        better = best > value
        value[better] = best[better]
        delta[better] = found.unflatten(0, (-1, copies))[better, which[better]]
    return delta
