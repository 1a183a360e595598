"""The worst order in which float32 can add up products: an adversary's search, with every operation rounded correctly.

A strategy picks an order or a tree of additions, and for every product whether it is fused into its addition. Denormal
numbers may be flushed to zero wherever they occur. Errors are compared as fractions.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_NORMAL = 2.0**-126
_FEW = 40  # terms of which any two may be added next


def single(value: Array, rest: Array) -> Array:
    """value + rest, two float64 numbers of which rest is below the last bit, rounded to float32 once."""
    odd = value.view(np.int64) & 1 == 1
    toward = np.where(
        (rest > 0) == (value > 0), np.nextafter(value, np.copysign(np.inf, value)), np.nextafter(value, 0.0)
    )
    exact = (rest == 0) | odd  # rounding to odd in between keeps the last rounding correct (Boldo, Melquiond 2008)
    rounded = np.where(exact, value, np.where(toward.view(np.int64) & 1 == 1, toward, value))
    with np.errstate(over="ignore"):
        found: Array = rounded.astype(np.float32).astype(np.float64)
    return found


def added(a: Array, b: Array, *, flush: bool) -> Array:
    """a + b in float32; a and b are float64 numbers, and may be products of two float32 numbers."""
    total = a + b
    high = total - a
    found = single(total, (a - (total - high)) + (b - high))
    return flushed(found) if flush else found


def flushed(value: Array) -> Array:
    return np.where(np.abs(value) < _NORMAL, 0.0, value)


class Sum:
    """Σ w x + b as float32 may compute it: `true` exactly, and the values that a search finds farthest from it."""

    def __init__(self, w: Array, x: Array, b: float = 0.0, *, flush: bool = False) -> None:
        w, x = (np.asarray(each, np.float32).astype(np.float64) for each in (w, x))
        self.true: Fraction = sum((Fraction(i) * Fraction(j) for i, j in zip(w, x, strict=True)), Fraction(b))
        w, x = (flushed(w), flushed(x)) if flush else (w, x)
        used = (w != 0) & (x != 0)
        self.exact: Array = np.append((w * x)[used], [b] if b else [])
        self.rounded: Array = single(self.exact, np.zeros_like(self.exact))
        self.flush = flush

    def farthest(self, random: np.random.Generator) -> Fraction:
        """The largest error that any strategy finds."""
        return max((abs(Fraction(float(found)) - self.true) for found in self.found(random)), default=Fraction(0))

    def found(self, random: np.random.Generator) -> Iterator[float]:
        yield from self.in_order(self.orders(random)).tolist()
        for sign in (1.0, -1.0):
            if len(self.exact) <= _FEW:
                yield self.greedy(sign)
                yield self.tree(sign)

    def orders(self, random: np.random.Generator) -> list[Array]:
        terms = self.exact
        size, way = np.abs(terms), np.sign(terms)
        keys = [(size,), (-size,), (size, way), (size, -way), (-size, way), (-size, -way)]
        return [*(np.lexsort(key) for key in keys), random.permutation(len(terms))]

    def in_order(self, orders: list[Array]) -> Array:
        """Terms one by one, of each order; each is fused or not, whichever errs more to either side."""
        sign, every = np.repeat([1.0, -1.0], len(orders)), np.stack(orders + orders)
        value = np.zeros(len(every))
        for k in every.T:
            value = self.best(value, self.exact[k], self.rounded[k], sign)[0]
        return value

    def best(self, value: Array, exact: Array, rounded: Array, sign: Any) -> tuple[Array, Array]:
        """The sums that err most, and by how much."""
        ways = np.stack([added(value, exact, flush=self.flush), added(value, rounded, flush=self.flush)])
        errors = sign * ((ways - value) - exact)
        best = errors.argmax(0)
        chosen, error = np.take_along_axis(ways, best[None], 0)[0], np.take_along_axis(errors, best[None], 0)[0]
        return chosen, error

    def greedy(self, sign: float) -> float:
        """One by one, the term next that errs most; the largest term comes first."""
        if not len(self.exact):
            return 0.0
        left = np.ones(len(self.exact), bool)
        start = np.abs(self.exact).argmax()
        value, left[start] = self.rounded[start], False
        while left.any():
            at = np.flatnonzero(left)
            sums, errors = self.best(np.full(len(at), value), self.exact[at], self.rounded[at], sign)
            value, left[at[errors.argmax()]] = sums[errors.argmax()], False
        return float(value)

    def tree(self, sign: float) -> float:
        """Any two partial sums next, the pair that errs most."""
        parts = self.rounded if len(self.rounded) else np.zeros(1)
        while len(parts) > 1:
            i, j = np.triu_indices(len(parts), 1)
            sums = added(parts[i], parts[j], flush=self.flush)
            best = (sign * ((sums - parts[i]) - parts[j])).argmax()
            parts = np.append(np.delete(parts, [i[best], j[best]]), sums[best])
        return float(parts[0])
