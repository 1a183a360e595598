"""The ball that the settings of an explanation state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from proofmap.errors import InputError
from proofmap.inputs.ball import Ball

__all__ = ["stated_ball"]


def stated_ball(settings: Mapping[str, Any]) -> Ball | None:
    """The ball of a record, in the numbers as they were given; None where it was too large to be written down."""
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
        return torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"got a ball with {str(value)[:60]}, expected numbers: no explainer wrote this") from None
