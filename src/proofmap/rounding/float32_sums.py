"""A-priori rounding errors of a linear operation in float32, for any order of summation, with or without FMA.

A product rounds once. Then n nonzero products and b are added up. Each of the n sums rounds by at most u = 2⁻²⁴ of
itself, and lies between -N and P, the sums of the negative and of the positive products:

    R = γ' (|L| m + |b|) + γ (max(P, N) + |b|) + (n + 1) 2⁻¹²⁵,    γ = n u / (1 - n u).

γ' is γ for a few rounding errors, and m is the largest |x| that L reads (Higham 2002, chapter 3). The last term bounds
underflow. A denormal weight may count as 0, which costs |x| 2⁻¹²⁶. If a node stands for several operations (`Folded`),
underflow between them is multiplied by the gain of the factors behind it. R is infinite where the products add up to
2¹⁰⁰ or more: their sums may leave the range of float32, whatever the type of the bounds.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ir import Node
from proofmap.rounding.magnitudes import SIGNED, magnitude, nonzero_products, product_counts
from proofmap.rules import RULES, Interval, Linear

FLOAT32_UNIT = 2.0**-24  # the unit roundoff of float32
UNDERFLOW = 2.0**-125  # twice the largest error of underflow in float32, where denormals may count as 0
_SMALLEST_NORMAL = 2.0**-126  # smaller numbers may count as 0
_OVERFLOW_LIMIT = 2.0**100  # beyond this, a product or a mean of up to 2^27 numbers may overflow float32
# Limit on a folded node's inputs: with `fold`'s limit on the values in between, these stay below 2^121.
_FOLDED_INPUT_LIMIT = 2.0**80
_PRODUCT_ERRORS = 8  # rounding errors of a product, of a weight that was cast, and of the bias


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the unit roundoff of a floating-point type."""
    return torch.finfo(dtype).eps / 2


def gamma(count: int, unit: float) -> float:
    """Return Higham's γ_n = n u / (1 - n u): the relative error of a sum of n products, for any order of summation.

    It is relative to the sum of the absolute values. Raises BoundError if n u > 1/4.
    """
    if count * unit > 0.25:
        raise BoundError(
            f"undecided, rounding: sums of {count} numbers in a precision of {unit:.1g} have no bound: take x.double()"
        )
    return count * unit / (1 - count * unit)


def gammas(counts: Tensor, unit: float) -> Tensor:
    """Return `gamma` for several counts, in the type of the counts."""
    gamma(int(counts.max()), unit)
    part = counts.double() * unit
    return (part / (1 - part)).to(counts)


def linear_float32_error(
    node: Node, inputs: list[Interval], up: Callable[[Tensor, int], Tensor], unit: float, *, signed: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return R and |L| m, (C, *shape) each, and n, (C,), of a linear operation.

    up: turns a computed sum of a number of nonnegative terms into an upper bound of the exact sum.
    signed: whether P and N are bounded separately, which takes one more product.
    Each case is computed independently of the other cases.
    """
    rule = RULES[node.op]
    assert isinstance(rule, Linear)
    read, _ = product_counts(node, tuple(tuple(x.lower.shape[1:]) for x in inputs))
    size = up(rule.magnitude(node, *map(magnitude, inputs)), read)
    folded, gain = (0, 1.0) if node.folded is None else (node.folded.rounding_errors, node.folded.gain)
    most = size
    each = (-1, *[1] * len(node.shape))
    if signed and not folded and node.op in SIGNED:
        positive = (inputs[0].lower >= 0).flatten(1).all(1)
        if bool(positive.any()):  # P + N = |L| x and P - N = L x
            apart = rule.apply(node, inputs[0].upper).abs() + gamma(read + _PRODUCT_ERRORS, unit) * size
            most = torch.where(positive.view(each), torch.minimum(size, up((size + apart) / 2, _PRODUCT_ERRORS)), size)
    count = nonzero_products(node, *inputs)
    if folded:  # a constant that was folded in is also added to zeros
        count = torch.full_like(count, read)
    few, many = gamma(folded + _PRODUCT_ERRORS, FLOAT32_UNIT), gammas(count + _PRODUCT_ERRORS, FLOAT32_UNIT).view(each)
    value_error = (
        few * size
        + many * most
        + (read + folded + 1) * (gain * UNDERFLOW * _may_underflow(node, size) + _denormal_weight_error(node, inputs))
    )
    constants = constants_of(node)
    total = size
    if constants is not None:
        value_error, total = value_error + (few + many) * constants.abs(), size + constants.abs()
    inside = total < _OVERFLOW_LIMIT
    if folded:  # nothing between the operations is larger than 2^40 (m + 1)
        inside = inside & (_largest_input(node, inputs) < _FOLDED_INPUT_LIMIT)
    return torch.where(inside, value_error, torch.inf), size, count


def _denormal_weight_error(node: Node, inputs: list[Interval]) -> Tensor | float:
    """Bound the error per product of a denormal weight that counts as 0, one number per case.

    A product of folded weights may be denormal, or 0, although none of its factors is.
    """
    if node.weight is None:
        return 0.0
    if node.folded is None and not bool(((node.weight != 0) & (node.weight.abs() < _SMALLEST_NORMAL)).any()):
        return 0.0
    return UNDERFLOW * _largest_input(node, inputs)


def _largest_input(node: Node, inputs: list[Interval]) -> Tensor:
    """Return the largest |x| that the node reads, one number per case."""
    most = torch.stack([magnitude(x).flatten(1).amax(1) for x in inputs]).amax(0)
    return most.view(-1, *[1] * len(node.shape))


def float32_error(size: Tensor, operations: int) -> Tensor:
    """Bound the error of float32 values of this size after this many operations; infinite where they may overflow."""
    return torch.where(size < _OVERFLOW_LIMIT, gamma(operations, FLOAT32_UNIT) * size + UNDERFLOW, torch.inf)


def constants_of(node: Node) -> Tensor | None:
    """Return the bias; for a folded node, the sum of the absolute values of the constants it was made of."""
    return node.bias if node.folded is None else node.folded.constants


def _may_underflow(node: Node, size: Tensor) -> Tensor | float:
    """Return where a sum can underflow: not where only zeros are added or negated, as for ReLUs under a max pool."""
    signs = node.weight is None or bool((node.weight.abs() == 1).all())
    return size > 0 if node.op in ("add", "affine") and signs and constants_of(node) is None else 1.0
