"""What float32 rounds where it runs a linear operation, in any order of summation, with fused multiply-adds or without.

A product rounds once. Then n that are not 0 are added up with b, and each of the n sums rounds by u = 2⁻²⁴ of itself,
which lies between -N and P, the negative and the positive products added up:

    R = γ' (|L| m + |b|) + γ (max(P, N) + |b|) + (n + 1) 2⁻¹²⁵,    γ = n u / (1 - n u), γ' of a few roundings,

m the largest |x| of what L reads (Higham 2002, chapter 3; the last term is for what underflows). A weight that is a
denormal number may count as 0, which costs |x| 2⁻¹²⁶. Where a node stands for several operations (`Folded`), what
underflows between them counts as many times as the factors behind it make it larger. R is infinite where the products
amount to 2¹⁰⁰: sums of them may leave the range of float32, whatever the precision at work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ir import Node
from proofmap.rounding.magnitudes import SIGNED, magnitude, nonzero, terms
from proofmap.rules import RULES, Interval, Linear

__all__ = ["FLUSHED", "SINGLE", "computed", "constants_of", "gamma", "gammas", "run_of", "unit_of"]

SINGLE = 2.0**-24  # the unit roundoff of float32
FLUSHED = 2.0**-125  # twice what underflow in float32 loses at most, where denormals count as 0
_DENORMAL = 2.0**-126  # smaller numbers may count as 0
_LARGEST = 2.0**100  # a product or a mean of up to 2^27 numbers may leave the range of float32 beyond this
_FARTHEST = (
    2.0**80
)  # of an input of a folded node: with `fold`'s limit on the values in between, these stay below 2^121
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


def gammas(counts: Tensor, unit: float) -> Tensor:
    """`gamma` of several counts; rounded to their precision."""
    gamma(int(counts.max()), unit)
    part = counts.double() * unit
    return (part / (1 - part)).to(counts)


def run_of(
    node: Node, inputs: list[Interval], up: Callable[[Tensor, int], Tensor], unit: float, *, signed: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """R and |L| m, (C, *shape) each, and n, (C,); `up` makes a sum of so many numbers no smaller than without rounding.

    Nothing depends on other cases. signed: whether P and N are told apart, which takes one more product.
    """
    rule = RULES[node.op]
    assert isinstance(rule, Linear)
    read, _ = terms(node, tuple(tuple(x.lower.shape[1:]) for x in inputs))
    size = up(rule.magnitude(node, *map(magnitude, inputs)), read)
    folded, gain = (0, 1.0) if node.folded is None else (node.folded.roundings, node.folded.gain)
    most = size
    each = (-1, *[1] * len(node.shape))
    if signed and not folded and node.op in SIGNED:
        positive = (inputs[0].lower >= 0).flatten(1).all(1)
        if bool(positive.any()):  # P + N = |L| x and P - N = L x
            apart = rule.apply(node, inputs[0].upper).abs() + gamma(read + _FEW, unit) * size
            most = torch.where(positive.view(each), torch.minimum(size, up((size + apart) / 2, _FEW)), size)
    count = nonzero(node, *inputs)
    if folded:  # a constant that was folded in is added to zeros as well
        count = torch.full_like(count, read)
    few, many = gamma(folded + _FEW, SINGLE), gammas(count + _FEW, SINGLE).view(each)
    run = few * size + many * most + (read + folded + 1) * (gain * FLUSHED * _used(node, size) + _lost(node, inputs))
    constants = constants_of(node)
    total = size
    if constants is not None:
        run, total = run + (few + many) * constants.abs(), size + constants.abs()
    inside = total < _LARGEST
    if folded:  # nothing between the operations is larger than 2^40 (m + 1)
        inside = inside & (_most(node, inputs) < _FARTHEST)
    return torch.where(inside, run, torch.inf), size, count


def _lost(node: Node, inputs: list[Interval]) -> Tensor | float:
    """What a product loses at most where its weight is denormal and counts as 0, one number a case; the product of
    folded weights may be denormal, or 0, although none of them is.
    """
    if node.weight is None:
        return 0.0
    if node.folded is None and not bool(((node.weight != 0) & (node.weight.abs() < _DENORMAL)).any()):
        return 0.0
    return FLUSHED * _most(node, inputs)


def _most(node: Node, inputs: list[Interval]) -> Tensor:
    """The largest |x| that the node reads, one number a case."""
    most = torch.stack([magnitude(x).flatten(1).amax(1) for x in inputs]).amax(0)
    return most.view(-1, *[1] * len(node.shape))


def computed(size: Tensor, roundings: int) -> Tensor:
    """What float32 is off by at numbers of this size after so many roundings; infinite where it may leave its range."""
    return torch.where(size < _LARGEST, gamma(roundings, SINGLE) * size + FLUSHED, torch.inf)


def constants_of(node: Node) -> Tensor | None:
    """The bias, or what it was made of, added up without signs."""
    return node.bias if node.folded is None else node.folded.constants


def _used(node: Node, size: Tensor) -> Tensor | float:
    """Where something can underflow: not where zeros alone are added or turned, as of ReLUs under a max pool."""
    signs = node.weight is None or bool((node.weight.abs() == 1).all())
    return size > 0 if node.op in ("add", "affine") and signs and constants_of(node) is None else 1.0
