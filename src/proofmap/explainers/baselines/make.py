"""Methods of explanation by name, with the paper's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from typing import Any, TypeAlias

from proofmap.errors import InputError
from proofmap.explainers.attributor import Attributor
from proofmap.explainers.baselines.baseline import Baseline
from proofmap.explainers.explainer import COSTS, Explainer
from proofmap.graph import Network
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups
from proofmap.registry import COMPARED, METHODS

__all__ = ["BASELINES", "make"]

Settings: TypeAlias = Mapping[str, Any]

BASELINES: Mapping[str, type[Baseline] | type[Explainer]] = {name: METHODS[name].kind for name in COMPARED}


def make(
    name: str, model: Network, ball: Ball | None = None, groups: Groups = None, settings: Settings | None = None
) -> Attributor:
    """The method of that name for the model; settings: what its class takes beyond, in place of the paper's.

    Explainers of ours need a ball, and score its groups. The other methods have no ball; those that take the range of
    the inputs have it from the ball's domain, where it has one, and those that cover groups have these.
    """
    if name not in BASELINES:
        raise InputError(f"got the method {name!r}, expected one of {', '.join(BASELINES)}")
    kind = BASELINES[name]
    names = [field.name for field in fields(kind) if field.kw_only]
    given = dict(settings or {})
    arguments: tuple[Any, ...] = (model,)
    if METHODS[name].ball:
        if ball is None:
            raise InputError(f"{name} got no ball, expected one to look for adversaries in: give ball=pm.Ball(0.02)")
        arguments = (model, ball)
        given = {"groups": groups, **given}
    elif "domain" in names and ball is not None and ball.domain is not None:
        given = {"domain": ball.domain, **given}
    elif "groups" in names:
        given = {"groups": groups, **given}
    try:
        signature(kind).bind(*arguments, **given)
    except TypeError as error:
        takes = ", ".join(sorted(names, key=COSTS.__contains__))
        raise InputError(f"{name} got the settings {sorted(given)}: {error}; it takes {takes}") from error
    return kind(*arguments, **given)
