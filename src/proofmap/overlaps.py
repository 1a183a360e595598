"""Adversarial overlap: how confident the worst adversary in a ball can get, bounded from above, and proven.

    AO(x, B) = max over δ in B and c' != c of f_c'(x + δ) - f_c(x + δ)

AO <= 0 is a certificate: no input of the ball is classified otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from proofmap import groups as grouping
from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.bounds import Backward, Cases, Method, Sharing, solve
from proofmap.errors import BoundError, InputError, RoomError
from proofmap.family import Family
from proofmap.graph import Graph, bounded
from proofmap.guarantee import span
from proofmap.inputs import as_samples
from proofmap.memory import budget
from proofmap.precision import full_precision
from proofmap.progress import part
from proofmap.settings import check_choice, check_count
from proofmap.traced import Network, traced

Objective = Literal["margin", "class", "mean", "apart"]


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Numbers for the adversarial overlap, of the ball and of the ball with each group frozen.

    certified: they are proven upper bounds. Otherwise they are not: samples give lower bounds, other methods estimates,
    and the explanation's `guarantee` says which.
    """

    full: Tensor  # (N,)   for AO(B)
    frozen: Tensor  # (N, G) for AO(B_u)
    nominal: Tensor  # (N,)  the overlap at x itself, which AO(B) and every AO(B_u) reach at least
    target: Tensor  # (N,)  the class c
    certified: bool  # whether full and frozen are upper bounds, sound by construction

    @classmethod
    def estimated(cls, value: Tensor, nominal: Tensor, target: Tensor) -> Overlap:
        """That of B and every B_u, in this order, (N, 1 + G); nothing is proven."""
        return cls(value[:, 0].clone(), value[:, 1:].contiguous(), nominal, target, certified=False)

    @property
    def drop(self) -> Tensor:
        """AO(B) - AO(B_u): (N, G)."""
        return self.full[:, None] - self.frozen

    def __repr__(self) -> str:
        """How many bounds, between which ends; "at most 0" says no more than that: an objective may decide nothing."""
        count, groups = self.frozen.shape
        ends = (float(self.full.min()), float(self.full.max())) if count else (nan, nan)
        below = int((self.full <= 0).sum())
        one = "at most 0" if below else "above 0"
        proven = f", {one}" if count == 1 else f", at most 0 for {below} of {count}"
        bounds = (
            f"certified: AO(B) <= {span(*ends, 'certified')}{proven}"
            if self.certified
            else f"not certified: AO(B) about {span(*ends, 'none')}"
        )
        samples, variables = f"{count} sample{'s' * (count != 1)}", f"{groups or 'no'} group{'s' * (groups != 1)}"
        return f"Overlap({samples}, {variables}, {bounds})"


@dataclass(frozen=True)
class Bounding:
    """How overlaps are bounded: by which method, in how many bytes, and what `overlap` says of the rest."""

    method: Method
    available: int
    sharing: Sharing = "one-pass"
    objective: Objective = "margin"


def overlap(
    model: Network,
    x: Samples,
    ball: Ball,
    *,
    groups: grouping.Groups = None,
    bounds: Method | None = None,
    sharing: Sharing = "shared",
    target: Target = None,
    rival: Target = None,
    objective: Objective = "margin",
    memory: int | None = None,
) -> Overlap:
    """Upper bounds of AO(B) and of every AO(B_u).

    target: the class c, one for all or one for each sample; by default the predicted one. rival: one class c' in place
    of the max over all. bounds: Backward() by default. memory: bytes the computation may use, by default half of what
    is free. objective: the form of the logits whose maximum over the ball counts as overlap,

        "margin"  max over c' of f_c' - f_c, bounded together      "class"  -f_c alone
        "apart"   the paper's upper(f_c') - lower(f_c), looser     "mean"   mean over c' of f_c' - f_c

    Only with "margin" and "apart", and without a rival, does an overlap of at most 0 prove the decision.
    """
    check_choice("got objective", objective, Objective)
    check_choice("got sharing", sharing, Sharing)
    method = method_of(bounds)
    x = as_samples(x, model)
    family = ball.at(x, grouping.resolve(groups, x))
    how = Bounding(method, budget(memory, x.device), sharing, objective)
    graph = bounded(traced(model, x).graph).to(x.device, x.dtype)
    if rival is not None:
        _check_rival(graph, x, target, rival)
    return family_overlap(graph, family, target, how, rival)


def family_overlap(graph: Graph, family: Family, target: Target, how: Bounding, rival: Target = None) -> Overlap:
    """The same for a family of balls that stands already; towards its own class it is 0."""
    bounded(graph)
    with full_precision(family.x.device), torch.no_grad():
        logits = _logits(graph, family.x)
        classes = target_of(target, logits)
        forms = _forms(logits, classes, None if rival is None else target_of(rival, logits, "rival"), how.objective)
        value = _bound(graph, family, logits, forms, how)
    return Overlap(value[:, 0], value[:, 1:], _nominal(forms, logits, how.objective), classes, certified=True)


def margins(logits: Tensor, target: Tensor) -> Tensor:
    """max over c' != c of f_c' - f_c for logits (..., C) and targets that broadcast to (...)."""
    index = target.expand(logits.shape[:-1])[..., None]
    decided = logits.gather(-1, index).squeeze(-1)
    return logits.scatter(-1, index, -inf).amax(-1) - decided


def target_of(target: Target, logits: Tensor, what: str = "target") -> Tensor:
    """One class for each sample, (N,): the target, or where it is None the predicted one."""
    count, classes = logits.shape
    return logits.argmax(1) if target is None else classes_of(target, count, classes, logits.device, what)


def classes_of(
    given: Target | list[int], count: int, classes: int | None, device: torch.device, what: str = "target"
) -> Tensor:
    """One class for each of `count` samples, (N,) int64; `classes` is their number, None where nobody knows it.

    A tensor with one entry counts for all samples, as it does for Captum.
    """
    try:
        if isinstance(given, list) and bool in map(type, given):
            raise TypeError
        numbers = torch.as_tensor(given.tolist() if isinstance(given, np.ndarray) else given, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"got {what} {given!r}, expected a class number, or one for each sample") from None
    if numbers.numel() == 1:
        numbers = numbers.reshape(())
    if numbers.is_floating_point() or numbers.dtype == torch.bool or numbers.shape not in ((), (count,)):
        raise InputError(
            f"got {what} of type {numbers.dtype} and shape {tuple(numbers.shape)}, expected a class number, or one for "
            f"each of {count} samples"
        )
    if bool((numbers < 0).any()) or (classes is not None and bool((numbers >= classes).any())):
        largest = "above" if classes is None else f"to {classes - 1}"
        raise InputError(f"got {what} {given}, expected a class from 0 {largest}")
    return numbers.long().expand(count)


def decides(objective: object) -> bool:
    """Whether an overlap of at most 0, by this objective, proves the decision."""
    return objective in ("margin", "apart")


def certified_radius(
    model: Network,
    x: Samples,
    *,
    norm: float = inf,
    domain: tuple[float | Tensor, float | Tensor] | None = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
) -> Tensor:
    """For each sample a radius (N,) with AO(B) <= 0, proven: the largest that a search in so many steps met.

    The search begins at 1, doubles while the decision is proven, up to a ball that holds the whole domain, and then
    bisects; a radius without a finite bound, as of a logarithm that reaches 0, is not proven. Zero where x itself is
    not classified as the target. The bounds need not grow with the radius, so a larger radius may be provable too; the
    one returned was proven.
    """
    check_count("got steps", steps)
    method = method_of(bounds)
    x = as_samples(x, model)
    domain_ball = Ball(torch.finfo(x.dtype).max, norm, domain).at(x)
    how = Bounding(method, budget(memory, x.device))
    graph = bounded(traced(model, x).graph).to(x.device, x.dtype)
    with full_precision(x.device), torch.no_grad():
        logits = _logits(graph, x)
        forms = _forms(logits, target_of(target, logits), None, "margin")
        whole = torch.maximum(-domain_ball.lower, domain_ball.upper).flatten(1).norm(norm, dim=1)
        proven, open_at, trial = torch.zeros_like(whole), torch.full_like(whole, inf), whole.clamp(max=1)
        trials = steps + 1
        for k in range(trials):
            family = Ball(trial, norm, domain).at(x)
            with part(k / trials, (k + 1) / trials, f"trial {k + 1} of {trials}"):
                holds = _proven(graph, family, logits, forms, how)
            proven = torch.where(holds, trial, proven)
            open_at = torch.where(holds, open_at, trial)
            trial = torch.where(open_at.isinf(), torch.minimum(2 * trial, whole), (proven + open_at) / 2)
    return torch.where(_nominal(forms, logits, "margin") <= 0, proven, torch.zeros_like(proven))


def _proven(graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: Bounding) -> Tensor:
    """Whether AO(B) <= 0 is proven for each sample, (N,); where there is no finite bound it is not.

    A batch with such a sample is halved until it stands alone: the others keep their proofs.
    """
    try:
        return _bound(graph, family, logits, forms, how)[:, 0] <= 0
    except RoomError:
        raise
    except BoundError:
        if family.count == 1:
            return torch.zeros_like(family.eps, dtype=torch.bool)
    halves = torch.arange(family.count, device=logits.device).tensor_split(2)
    return torch.cat([_proven(graph, family.pick(i), logits[i], forms[i], how) for i in halves])


def _bound(graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: Bounding) -> Tensor:
    """(N, members)."""
    # A form whose bound stays below what another reaches at x itself cannot decide the maximum.
    floor = None if how.objective == "apart" else _nominal(forms, logits, how.objective)
    value = solve(graph, Cases(family), forms, how.method, how.sharing, how.available, floor)
    return _join(value, how.objective)


def _forms(logits: Tensor, target: Tensor, rival: Tensor | None, objective: Objective) -> Tensor:
    """The forms of the logits (N, R, classes), in their precision, whose values `_join` puts together."""
    classes = logits.shape[1]
    unit = torch.eye(classes, dtype=logits.dtype, device=logits.device)
    decided = unit[target].unsqueeze(1)  # (N, 1, C)
    every = torch.arange(classes - 1, device=target.device).expand(len(target), -1)
    others = unit[every + (every >= target[:, None])] if rival is None else unit[rival].unsqueeze(1)
    match objective:
        case "margin":
            return others - decided
        case "class":
            return -decided
        case "mean":
            return (others - decided).mean(1, keepdim=True)
        case "apart":
            return torch.cat([others, -decided], dim=1)


def _join(value: Tensor, objective: Objective) -> Tensor:
    """The overlap (N, members) from the values of the forms (N, members, R)."""
    return value[:, :, :-1].amax(2) + value[:, :, -1] if objective == "apart" else value.amax(2)


def _nominal(forms: Tensor, logits: Tensor, objective: Objective) -> Tensor:
    """The overlap at x itself, (N,)."""
    return _join((forms @ logits.unsqueeze(2)).mT, objective).squeeze(1)


def _logits(graph: Graph, x: Tensor) -> Tensor:
    logits = graph(x).flatten(1)
    if logits.shape[1] < 2:
        raise InputError("got a model with one output, expected at least two classes: give it the logits of both")
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def _check_rival(graph: Graph, x: Tensor, target: Target, rival: Target) -> None:
    """Refuse a rival that is the target itself."""
    with full_precision(x.device), torch.no_grad():
        logits = _logits(graph, x)
    decided, other = target_of(target, logits), target_of(rival, logits, "rival")
    same = torch.eq(other, decided).nonzero()
    if len(same):
        k = int(same[0])
        raise InputError(
            f"got rival {int(other[k])}, which is the target of sample {k}, expected another class: f_c - f_c is 0, "
            "and proves nothing"
        )


def method_of(bounds: Method | None) -> Method:
    """The method of bounding; by default Backward()."""
    if bounds is None:
        return Backward()
    if not isinstance(bounds, Method):
        raise InputError(f"got bounds={bounds!r}, expected a method such as pm.bounds.Backward() or IBP() & Forward()")
    return bounds
