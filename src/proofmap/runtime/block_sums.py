"""Sums of products in blocks: each product passes few additions, however many there are."""

from __future__ import annotations

from torch import Tensor

__all__ = ["dot", "roundings"]

_BLOCK = 256


def dot(coefficients: Tensor, values: Tensor) -> Tensor:
    """<A, v> row by row, (K,), with v for each row or one for all."""
    products = coefficients.flatten(1) * values.flatten(1)
    count = products.shape[1]
    if count <= _BLOCK:
        return products.sum(1)
    whole = count - count % _BLOCK
    blocks: Tensor = products[:, :whole].unflatten(1, (-1, _BLOCK)).sum(2).sum(1)
    return blocks if whole == count else blocks + products[:, whole:].sum(1)


def roundings(count: int) -> int:
    """How many a product of so many passes on its way into such a sum, at most; blocks are summed in any order."""
    return count if count <= _BLOCK else _BLOCK + count // _BLOCK + 1
