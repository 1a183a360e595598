"""Factory of explainers and baselines: build a method from its name in the registry, with the settings of its paper."""

from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from typing import Any, TypeAlias

from proofmap.errors import InputError
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.explainers.baselines.baseline import Baseline
from proofmap.explainers.explainer import COSTS, Explainer
from proofmap.graph import Network
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups
from proofmap.registry import COMPARED, EXPLAINER_ENTRIES

Settings: TypeAlias = Mapping[str, Any]

BASELINES: Mapping[str, type[Baseline] | type[Explainer]] = {name: EXPLAINER_ENTRIES[name].kind for name in COMPARED}


def build_method(
    name: str, model: Network, ball: Ball | None = None, groups: Groups = None, settings: Settings | None = None
) -> Attributor:
    """Build the method of that name for the model. settings: arguments of its class in place of the defaults.

    Explainers need a ball and score its groups. Baselines have no ball; they take the domain of the ball and the
    groups, if their class has these settings.
    """
    if name not in BASELINES:
        raise InputError(f"got the method {name!r}, expected one of {', '.join(BASELINES)}")
    kind = BASELINES[name]
    names = [field.name for field in fields(kind) if field.kw_only and field.init]
    given = dict(settings or {})
    arguments: tuple[Any, ...] = (model,)
    if EXPLAINER_ENTRIES[name].ball:
        if ball is None:
            raise InputError(f"{name} got no ball, expected the ball of allowed changes: give ball=pm.Ball(0.02)")
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
