"""What float32 rounds where it runs a linear operation, in any order of summation, with fused multiply-adds or without.

A product rounds once. Then n that are not 0 are added up with b, and each of the n sums rounds by u = 2⁻²⁴ of itself,
which lies between -N and P, the negative and the positive products added up:

    R = γ' (|L| m + |b|) + γ (max(P, N) + |b|) + (n + 1) 2⁻¹²⁵,    γ = n u / (1 - n u), γ' of a few roundings,

m the largest |x| of what L reads (Higham 2002, chapter 3; the last term is for what underflows).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ir import Node
from proofmap.rules import RULES, Interval, Linear
from proofmap.rules.sizes import SIGNED, magnitude, nonzero, terms

__all__ = ["FLUSHED", "SINGLE", "constants_of", "gamma", "run_of", "unit_of"]

SINGLE = 2.0**-24  # the unit roundoff of float32
FLUSHED = 2.0**-125  # twice what underflow in float32 loses at most, where denormals count as 0
_FEW = 8  # roundings of a product, of a weight that was cast, and of the bias


def unit_of(dtype: torch.dtype) -> float:
    """The unit roundoff."""
    return torch.finfo(dtype).eps / 2


def gamma(count: int, unit: float) -> float:
    """What a sum of so many products may be off by, as a part of the sum of their absolute values."""
    if count * unit > 0.25:
        raise BoundError(
            f"undecided, rounding: sums of {count} numbers in a precision of {unit:.1g} have no bound: take x.double()"
        )
    return count * unit / (1 - count * unit)


def run_of(
    node: Node, inputs: list[Interval], up: Callable[[Tensor, int], Tensor], unit: float, *, signed: bool = True
) -> tuple[Tensor, Tensor, int]:
    """R and |L| m, (C, *shape) each, and n; `up` makes a sum of so many numbers no smaller than without rounding.

    signed: whether P and N are told apart, which takes one more product.
    """
    rule = RULES[node.op]
    assert isinstance(rule, Linear)
    read, _ = terms(node, tuple(tuple(x.lower.shape[1:]) for x in inputs))
    size = up(rule.magnitude(node, *map(magnitude, inputs)), read)
    folded = 0 if node.folded is None else node.folded.roundings
    most = size
    if (
        signed and not folded and node.op in SIGNED and bool((inputs[0].lower >= 0).all())
    ):  # P + N = |L| x and P - N = L x
        apart = rule.apply(node, inputs[0].upper).abs() + gamma(read + _FEW, unit) * size
        most = torch.minimum(size, up((size + apart) / 2, _FEW))
    count = nonzero(node, *inputs)
    few, many = gamma(folded + _FEW, SINGLE), gamma(count + _FEW, SINGLE)
    run = few * size + many * most + (read + folded + 1) * FLUSHED * _used(node, size)
    constants = constants_of(node)
    return run if constants is None else run + (few + many) * constants.abs(), size, count


def constants_of(node: Node) -> Tensor | None:
    """The bias, or what it was made of, added up without signs."""
    return node.bias if node.folded is None else node.folded.constants


def _used(node: Node, size: Tensor) -> Tensor | float:
    """Where something can underflow: not where zeros alone are added or turned, as of ReLUs under a max pool."""
    signs = node.weight is None or bool((node.weight.abs() == 1).all())
    return size > 0 if node.op in ("add", "affine") and signs and constants_of(node) is None else 1.0
