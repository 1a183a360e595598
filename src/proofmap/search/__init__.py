"""Exact search for overlaps: branch and bound on a ball and its members, until lower and upper bounds meet."""

from __future__ import annotations

from proofmap.search.exact import ExactBounds, exact_bounds

__all__ = ["ExactBounds", "exact_bounds"]
