"""The ball that is explained where none was stated."""

from __future__ import annotations

import sys
import warnings

from torch import Tensor

from proofmap.errors import ProofmapWarning
from proofmap.inputs.ball import Ball

__all__ = ["spanned", "unstated"]


def spanned(x: Tensor) -> Ball:
    """The ball of each sample's proven radius, inside the values that x has; without limits where x has only one."""
    low, high = float(x.min()), float(x.max())
    return Ball("auto", domain=(low, high) if low < high else None)


def unstated(x: Tensor, who: str) -> Ball:
    """That ball, and a warning which says what was taken for `who`, and how to state another."""
    ball = spanned(x)
    within = "without a domain, as x has one value only"
    if ball.domain is not None:
        within = f"in the range of x as its domain, {ball.domain[0]:g} to {ball.domain[1]:g}"
    warnings.warn(
        f"{who} got no ball, and took each sample's proven radius, pm.Ball('auto'), {within}: state what may happen to "
        f"an input, such as pm.{who}(model, pm.Ball(0.02, domain=(0.0, 1.0)))",
        ProofmapWarning,
        stacklevel=_outside(),
    )
    return ball


def _outside() -> int:
    """How many calls up the first one stands that is not of this package, for who warns."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "proofmap":
        frame, level = frame.f_back, level + 1
    return level
