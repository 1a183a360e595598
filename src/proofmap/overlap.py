"""Adversarial overlap: how confident the worst adversary in a ball can get, bounded from above, and proven.

    AO(x, B) = max over δ in B and c' != c of f_c'(x + δ) - f_c(x + δ)

AO <= 0 is a certificate: no input of the ball is classified otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from proofmap import groups as grouping
from proofmap.ball import Ball, Family
from proofmap.bounds import Backward, Method, Sharing, solve
from proofmap.bounds.memory import budget
from proofmap.bounds.precision import full_precision
from proofmap.errors import InputError
from proofmap.graph import Graph, as_graph

Objective = Literal["margin", "apart"]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Certified upper bounds of the adversarial overlap, for the ball and for the ball with each group frozen."""

    full: Tensor  # (N,)   of AO(B)
    frozen: Tensor  # (N, G) of AO(B_u)
    nominal: Tensor  # (N,)  the overlap at x itself, which AO(B) and every AO(B_u) reach at least
    target: Tensor  # (N,)  the class c
    certified: bool  # sound by construction


def overlap(
    model: nn.Module | Graph,
    x: Tensor,
    ball: Ball,
    *,
    groups: grouping.Groups = None,
    bounds: Method | None = None,
    sharing: Sharing = "shared",
    target: int | Tensor | None = None,
    objective: Objective = "margin",
    memory: int | None = None,
) -> Overlap:
    """Upper bounds of AO(B) and of every AO(B_u).

    target: the class c, one for all or one for each sample; by default the predicted one. bounds: Backward() by
    default. objective: "margin" bounds f_c' - f_c itself; "apart" is the paper's upper(f_c') - lower(f_c), which is
    looser. memory: bytes the computation may use, by default half of what is free.
    """
    _check_choice("objective", objective, get_args(Objective))
    _check_choice("sharing", sharing, get_args(Sharing))
    method = _method(bounds)
    family = ball.at(x, grouping.resolve(groups, tuple(x.shape[1:])))
    available = budget(memory, x.device)
    graph = as_graph(model, x).to(x.device, x.dtype)
    with full_precision(x.device):
        logits = _logits(graph, x)
        classes = _target(target, logits)
        value = _bound(graph, family, logits, classes, method, sharing, objective, available)
    nominal = _margins(logits, classes).amax(1)
    return Overlap(value[:, 0], value[:, 1:], nominal, classes, certified=True)


def certified_radius(
    model: nn.Module | Graph,
    x: Tensor,
    *,
    norm: float = inf,
    domain: tuple[float | Tensor, float | Tensor] | None = None,
    bounds: Method | None = None,
    target: int | Tensor | None = None,
    largest: float = 1.0,
    steps: int = 16,
    memory: int | None = None,
) -> Tensor:
    """For each sample a radius (N,) with AO(B) <= 0, proven: the largest that bisection over [0, largest] met.

    Zero where x itself is not classified as the target. The bounds need not grow with the radius, so a larger
    radius may be provable too; the one returned was proven.
    """
    if not (largest > 0 and steps > 0):
        raise InputError(f"got largest={largest} and steps={steps}, expected both to be positive")
    method = _method(bounds)
    Ball(largest, norm, domain).at(x)
    available = budget(memory, x.device)
    graph = as_graph(model, x).to(x.device, x.dtype)
    with full_precision(x.device):
        logits = _logits(graph, x)
        classes = _target(target, logits)
        proven = x.new_zeros(len(x))
        open_at = x.new_full((len(x),), largest)
        trial = open_at
        for _ in range(steps + 1):
            family = Ball(trial, norm, domain).at(x)
            value = _bound(graph, family, logits, classes, method, "one-pass", "margin", available)[:, 0]
            holds = value <= 0
            proven = torch.where(holds, trial, proven)
            open_at = torch.where(holds, open_at, trial)
            trial = (proven + open_at) / 2
    return torch.where(_margins(logits, classes).amax(1) <= 0, proven, torch.zeros_like(proven))


def _bound(
    graph: Graph,
    family: Family,
    logits: Tensor,
    target: Tensor,
    method: Method,
    sharing: Sharing,
    objective: Objective,
    available: int,
) -> Tensor:
    """(N, members)."""
    others = _others(logits.shape[1], target)  # (N, C - 1)
    unit = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
    own = unit[target].unsqueeze(1)  # (N, 1, C)
    if objective == "margin":
        floor = _margins(logits, target).amax(1)
        value = solve(graph, family, unit[others] - own, method, sharing, available, floor)
        return value.amax(2)
    value = solve(graph, family, torch.cat([unit[others], -own], dim=1), method, sharing, available)
    return value[:, :, :-1].amax(2) + value[:, :, -1]


def _others(classes: int, target: Tensor) -> Tensor:
    """The classes but the target's, (N, C - 1)."""
    every = torch.arange(classes - 1, device=target.device).expand(len(target), -1)
    return every + (every >= target[:, None])


def _margins(logits: Tensor, target: Tensor) -> Tensor:
    """f_c' - f_c for every c' != c, (N, C - 1)."""
    own = logits.gather(1, target[:, None])
    return logits.gather(1, _others(logits.shape[1], target)) - own


def _logits(graph: Graph, x: Tensor) -> Tensor:
    logits = graph(x).flatten(1)
    if logits.shape[1] < 2:
        raise InputError("got a model with one output, expected at least two classes: give it the logits of both")
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def _target(target: int | Tensor | None, logits: Tensor) -> Tensor:
    """One class for each sample, (N,)."""
    count, classes = logits.shape
    if target is None:
        return logits.argmax(1)
    chosen = torch.as_tensor(target, device=logits.device)
    if chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.ndim > 1:
        raise InputError(f"got a target of type {chosen.dtype} and shape {tuple(chosen.shape)}, expected class numbers")
    if chosen.ndim == 1 and len(chosen) != count:
        raise InputError(f"got {len(chosen)} targets for {count} samples, expected one for each, or one for all")
    if bool(((chosen < 0) | (chosen >= classes)).any()):
        raise InputError(f"got target {target}, expected a class from 0 to {classes - 1}")
    return chosen.long().expand(count)


def _method(bounds: Method | None) -> Method:
    if bounds is None:
        return Backward()
    if not isinstance(bounds, Method):
        raise InputError(f"got bounds={bounds!r}, expected a method such as pm.bounds.Backward() or IBP() & Forward()")
    return bounds


def _check_choice(what: str, got: str, choices: tuple[str, ...]) -> None:
    if got not in choices:
        raise InputError(f"got {what}={got!r}, expected one of {', '.join(map(repr, choices))}")
