"""Attacks that move few groups: steps towards the best point of the linear model with at most k moved groups."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork

_STEPS = 12
_LEAST_STEP, _STEP_DECAY = 0.3, 1.0  # a step's share of the way: 1 at first, then less


def attack_with_few(
    network: PointNetwork, balls: FreeBalls, start: Tensor, allowed: Tensor, most: int, enough: float
) -> tuple[Tensor, Tensor]:
    """Maximise the network from δ (P, d) with at most `most` moved groups of the allowed (G,): (values (P,), points).

    The attack ends early if one point is above `enough`.
    """
    at, count = start, min(most, int(allowed.sum()))
    best, kept = torch.full_like(start[:, 0], -torch.inf), torch.zeros_like(start)
    for step in range(_STEPS + 1):
        value, form = network.gradient(at)
        if step:  # the start may move more groups
            better = value > best
            best, kept = torch.where(better, value, best), torch.where(better[:, None], at, kept)
        if step == _STEPS or bool((best > enough).any()):
            break
        loads = balls.loads(form).masked_fill(~allowed, -torch.inf)
        chosen = torch.zeros_like(loads, dtype=torch.bool).scatter_(1, loads.topk(count, dim=1).indices, value=True)
        corner = largest_points(balls, form, chosen)
        share = max(_LEAST_STEP, 1 - _STEP_DECAY * step / _STEPS)
        at = torch.where(chosen[:, balls.mask], at + share * (corner - at), 0)
    return best, kept


def largest_points(balls: FreeBalls, form: Tensor, chosen: Tensor) -> Tensor:
    """Return the points (P, d) that maximise forms (P, d) over the balls of their own chosen groups (P, G)."""
    if balls.additive:
        return torch.where(chosen[:, balls.mask], torch.where(form > 0, balls.upper, balls.lower), 0)
    each = [balls.balls(groups).maximise(row[None], None)[1] for groups, row in zip(chosen, form, strict=True)]
    return torch.cat(each)
