"""Bound methods: IBP, Forward, Backward, Alpha, CrownIBP, Exact, and their intersections with `&`.

>>> pm.overlap(model, x, ball, bounds=pm.bounds.IBP() & pm.bounds.Backward()).certified
True
"""

from proofmap.bounds.cases import Cases
from proofmap.bounds.engine import Sharing, solve
from proofmap.bounds.method import IBP, METHODS, Alpha, Backward, CrownIBP, Exact, Forward, Intersection, Method, named

__all__ = [
    "IBP", "METHODS", "Alpha", "Backward", "Cases", "CrownIBP", "Exact", "Forward", "Intersection", "Method",
    "Sharing", "named", "solve",
]  # fmt: skip
