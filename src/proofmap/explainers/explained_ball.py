"""The ball of an explanation: the default where the user gives none, and the ball that a record states."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.ball import Ball
from proofmap.runtime.user_warning import warn_user


def default_ball(x: Tensor) -> Ball:
    """Return the ball with each sample's proven radius, in the range of x; without a domain if all values are equal."""
    low, high = float(x.min()), float(x.max())
    return Ball("auto", domain=(low, high) if low < high else None)


def default_ball_with_warning(x: Tensor, who: str) -> Ball:
    """Return `default_ball(x)`, with a warning that names the explainer `who` and shows how to set another ball."""
    ball = default_ball(x)
    domain = "no domain, because all values of x are equal"
    if ball.domain is not None:
        domain = f"the range of x as its domain, {ball.domain[0]:g} to {ball.domain[1]:g}"
    warn_user(
        f"{who} got no ball and uses each sample's proven radius, pm.Ball('auto'), with {domain}: give the ball of "
        f"allowed changes, such as pm.{who}(model, pm.Ball(0.02, domain=(0.0, 1.0)))"
    )
    return ball


def recorded_ball(settings: Mapping[str, Any]) -> Ball | None:
    """Return the ball of a record with its exact numbers; None if the record holds only hashes of large tensors."""
    eps, norm, domain = settings.get("eps"), settings.get("norm"), settings.get("domain")
    ends = [] if domain is None else domain if isinstance(domain, list) else [domain]
    if eps is None or any(isinstance(value, str) for value in (eps, *ends)):
        return None
    power: Any = math.inf if norm == "inf" else norm
    limits: Any = None if domain is None else tuple(map(_numbers, ends))
    blocks = tuple(tuple(block) for block in settings.get("one_hot", ()))
    return Ball(_numbers(eps), power, limits, settings.get("half"), settings.get("relative", False), blocks)


def _numbers(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        return torch.tensor(_finite_or_not(value), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"got a ball with {str(value)[:60]}, expected numbers: no explainer wrote this") from None


def _finite_or_not(value: Any) -> Any:
    """Return nested lists with infinities as numbers: JSON holds them as texts."""
    if isinstance(value, list):
        return [_finite_or_not(entry) for entry in value]
    return float(value) if value in ("inf", "-inf") else value
