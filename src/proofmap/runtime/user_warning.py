"""Warnings that point at the user's line."""

import sys
import warnings

from proofmap.errors import ProofmapWarning


def warn_user(message: str) -> None:
    """Warn with a ProofmapWarning at the line of the first caller outside proofmap."""
    warnings.warn(message, ProofmapWarning, stacklevel=_user_stack_level())


def _user_stack_level() -> int:
    """Return the stack level of the first caller outside proofmap, counted from `warn_user`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "proofmap":
        frame, level = frame.f_back, level + 1
    return level
