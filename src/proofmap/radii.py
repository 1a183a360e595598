"""The certified radius: how far the decision is proven to hold around each sample."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.bounds import Method
from proofmap.classes import logits_of, target_of
from proofmap.errors import BoundError, RoomError
from proofmap.family import Family
from proofmap.graph import Graph, bounded
from proofmap.inputs import as_samples
from proofmap.memory import budget
from proofmap.objective import forms_of, nominal
from proofmap.overlaps import Bounding, bound, method_of
from proofmap.precision import full_precision
from proofmap.progress import part
from proofmap.settings import check_count
from proofmap.traced import Network, traced

__all__ = ["certified_radius"]


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
        logits = logits_of(graph, x)
        forms = forms_of(logits, target_of(target, logits), None, "margin")
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
    return torch.where(nominal(forms, logits, "margin") <= 0, proven, torch.zeros_like(proven))


def _proven(graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: Bounding) -> Tensor:
    """Whether AO(B) <= 0 is proven for each sample, (N,); where there is no finite bound it is not.

    A batch with such a sample is halved until it stands alone: the others keep their proofs.
    """
    try:
        return bound(graph, family, logits, forms, how)[:, 0] <= 0
    except RoomError:
        raise
    except BoundError:
        if family.count == 1:
            return torch.zeros_like(family.eps, dtype=torch.bool)
    halves = torch.arange(family.count, device=logits.device).tensor_split(2)
    return torch.cat([_proven(graph, family.pick(i), logits[i], forms[i], how) for i in halves])
