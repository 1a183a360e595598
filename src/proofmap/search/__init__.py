"""Branch and bound on a family of balls: one tree for all members, until both sides of the overlap meet."""

from __future__ import annotations

from proofmap.search.exact import Closing, close

__all__ = ["Closing", "close"]
