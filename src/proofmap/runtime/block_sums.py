"""Block summation (Higham 2002, section 4.2): a product passes few additions, however long the sum is."""

from torch import Tensor

_BLOCK = 256  # products per block


def dot(coefficients: Tensor, values: Tensor) -> Tensor:
    """Return <A, v> row by row, (K,), with v for each row or one v for all rows."""
    products = coefficients.flatten(1) * values.flatten(1)
    count = products.shape[1]
    if count <= _BLOCK:
        return products.sum(1)
    whole = count - count % _BLOCK
    blocks: Tensor = products[:, :whole].unflatten(1, (-1, _BLOCK)).sum(2).sum(1)
    return blocks if whole == count else blocks + products[:, whole:].sum(1)


def additions_per_product(count: int) -> int:
    """Return the largest number of additions that a product passes in such a sum of `count` products, in any order."""
    return count if count <= _BLOCK else _BLOCK + count // _BLOCK + 1
