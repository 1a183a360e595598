"""Methods of explanation by name, with the paper's settings."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import nn

from proofmap.ball import Ball
from proofmap.errors import InputError
from proofmap.explain.attributor import Attributor
from proofmap.explain.baselines.baseline import Baseline
from proofmap.explain.baselines.cam import GradCAM, GradCAMPlusPlus
from proofmap.explain.baselines.first_order import FirstOrder
from proofmap.explain.baselines.gradients import GradientInput, IntegratedGradients, Saliency
from proofmap.explain.baselines.noise import NoisyGradients, SmoothGrad, VarGrad
from proofmap.explain.baselines.occlusion import Occlusion
from proofmap.explain.baselines.rise import RISE
from proofmap.explain.empirical import EmpiricalEVA
from proofmap.explain.eva import EVA
from proofmap.explain.explainer import Explainer
from proofmap.explain.greedy import GreedyAO, GreedyAS
from proofmap.explain.hybrid import HybridEVA
from proofmap.graph import Graph
from proofmap.groups import Groups

__all__ = ["BASELINES", "make"]

BASELINES: Mapping[str, type[Baseline] | type[Explainer]] = {
    "saliency": Saliency,
    "gradient-input": GradientInput,
    "integrated-gradients": IntegratedGradients,
    "smoothgrad": SmoothGrad,
    "vargrad": VarGrad,
    "occlusion": Occlusion,
    "grad-cam": GradCAM,
    "grad-cam++": GradCAMPlusPlus,
    "rise": RISE,
    "first-order": FirstOrder,
    "greedy-as": GreedyAS,
    "greedy-ao": GreedyAO,
    "empirical": EmpiricalEVA,
    "hybrid": HybridEVA,
    "eva": EVA,
}


def make(
    name: str,
    model: nn.Module | Graph,
    ball: Ball | None = None,
    groups: Groups = None,
    settings: Mapping[str, Any] | None = None,
) -> Attributor:
    """The method of that name for the model; settings: what its class takes beyond, in place of the paper's.

    Explainers of ours need a ball, and score its groups. The other methods have neither; those that add noise take
    the range of the inputs from the ball's domain, where it has one.
    """
    if name not in BASELINES:
        raise InputError(f"got the method {name!r}, expected one of {', '.join(BASELINES)}")
    kind = BASELINES[name]
    given = dict(settings or {})
    arguments: tuple[Any, ...] = (model,)
    if issubclass(kind, Explainer):
        if ball is None:
            raise InputError(f"{name} got no ball, expected one to look for adversaries in: give ball=pm.Ball(0.02)")
        arguments = (model, ball)
        given = {"groups": groups, **given}
    elif issubclass(kind, NoisyGradients) and ball is not None and ball.domain is not None:
        given = {"domain": ball.domain, **given}
    try:
        signature(kind).bind(*arguments, **given)
    except TypeError as error:
        taken = ", ".join(p.name for p in signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY)
        raise InputError(f"{name} got the settings {sorted(given)}: {error}; it takes {taken}") from error
    return kind(*arguments, **given)
