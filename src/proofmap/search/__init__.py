"""Exact search for overlaps: branch and bound on a ball and its members, until lower and upper bounds meet."""
