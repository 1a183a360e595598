"""Sufficient reasons: sets of kept groups that fix a decision, their necessary groups, and bounds of their size."""
