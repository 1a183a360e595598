"""`pm.explain` as type checkers see it: they know no module that can be called, but a class with the module's names.

Signatures stand here again, since checkers follow neither the call of a metaclass nor functions that are assigned; a
test holds them to be those of the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from torch import Tensor

import proofmap.explain as module
from proofmap import groups as grouping
from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.explain.adapt import Method
from proofmap.explain.choose import explain as chosen
from proofmap.explain.quantus import ExplainFunc
from proofmap.graph import Network

__all__ = ["explain"]


class explain:  # noqa: N801
    """What `proofmap.explain` has, and what it gives when it is called."""

    BASELINES = module.BASELINES
    EVA: TypeAlias = module.EVA
    Answer: TypeAlias = module.Answer
    Attributor: TypeAlias = module.Attributor
    BlendEVA: TypeAlias = module.BlendEVA
    EmpiricalEVA: TypeAlias = module.EmpiricalEVA
    Explainer: TypeAlias = module.Explainer
    Explanation: TypeAlias = module.Explanation
    File: TypeAlias = module.File
    FirstOrder: TypeAlias = module.FirstOrder
    GreedyAO: TypeAlias = module.GreedyAO
    GreedyAS: TypeAlias = module.GreedyAS
    HybridEVA: TypeAlias = module.HybridEVA
    NestedEVA: TypeAlias = module.NestedEVA
    NoiseEVA: TypeAlias = module.NoiseEVA
    Origin: TypeAlias = module.Origin
    PathEVA: TypeAlias = module.PathEVA
    ProbableEVA: TypeAlias = module.ProbableEVA
    SmoothEVA: TypeAlias = module.SmoothEVA
    Source: TypeAlias = module.Source
    TargetedEVA: TypeAlias = module.TargetedEVA

    @staticmethod
    def as_attributor(
        method: Method,
        model: Network | None = None,
        *,
        ball: Ball | None = None,
        groups: grouping.Groups = None,
        settings: Mapping[str, Any] | None = None,
    ) -> module.Attributor:
        return module.as_attributor(method, model, ball=ball, groups=groups, settings=settings)

    @staticmethod
    def explain_func(explainer: module.Explainer) -> ExplainFunc:
        return module.explain_func(explainer)

    def __new__(  # type: ignore[misc]  # the module's call gives an answer
        cls,
        model: Network,
        x: Samples,
        *,
        target: Target = None,
        groups: grouping.Groups = None,
        domain: tuple[float | Tensor, float | Tensor] | Literal["auto"] | None = "auto",
        seconds: float = 60.0,
        progress: bool = True,
    ) -> module.Answer:
        return chosen(model, x, target=target, groups=groups, domain=domain, seconds=seconds, progress=progress)
