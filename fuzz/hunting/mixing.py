"""Operations that mix entries, for hostile networks: products, softmax, norms and attention of a vector.

Each computes a vector of the same length in three ways: as nodes of a graph, exactly (roots and exponentials by
mpmath), and in float32 by one of several algorithms that runtimes use, with sums in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F

from fuzz.hunting.truth import exponential, square_root
from proofmap.graph.builder import normalisation, scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Numbers = list[Fraction]
NORM_EPS = 2.0**-17  # exact in float32, as torch's 1e-5 is not
_ROUND = np.float32


class Mix(ABC):
    """One operation on a vector."""

    @abstractmethod
    def add(self, b: Builder, name: str, x: str) -> str:
        """Add its nodes."""

    @abstractmethod
    def exact(self, x: Numbers) -> Numbers:
        """Return the value over the real numbers."""

    @abstractmethod
    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        """Return the value in float32. order: a number that chooses the algorithm and the order of sums."""


def _sum(values: Array, order: int, rng: np.random.Generator) -> np.float32:
    """Add float32 numbers one after the other, in an order of its own."""
    index = rng.permutation(len(values)) if order > 1 else np.arange(len(values))[:: 1 - 2 * (order % 2)]
    total: np.float32 = np.float32(0)
    for k in index:
        total += values[k]
    return total


class Products(Mix):
    """y_i = x_i x_{i+1}, and the last entry times the first."""

    def add(self, b: Builder, name: str, x: str) -> str:
        (n,) = b.shape(x)
        turned = slicing.index(b, f"{name}.turned", x, 0, (torch.arange(n) + 1) % n)
        return b.add_node(name, "product", [x, turned])

    def exact(self, x: Numbers) -> Numbers:
        return [one * other for one, other in zip(x, [*x[1:], x[0]], strict=True)]

    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        return x * np.roll(x, -1)


class Softmax(Mix):
    """softmax(x)."""

    def add(self, b: Builder, name: str, x: str) -> str:
        return b.add_node(name, "softmax", [x], axis=0)

    def exact(self, x: Numbers) -> Numbers:
        parts = [exponential(one - max(x)) for one in x]
        return [part / sum(parts) for part in parts]

    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        if order == 0:
            by_torch: Array = torch.from_numpy(x).softmax(0).numpy()
            return by_torch
        parts: Array = np.exp((x - x.max()).astype(np.float32))
        total = _sum(parts, order, rng)
        found: Array = (parts / total if order % 2 else parts * _ROUND(1 / total)).astype(np.float32)
        return found


@dataclass(frozen=True)
class Norm(Mix):
    """A layer norm, or an RMS norm, with a weight of 1, 2, ... and a bias of 1."""

    centred: bool

    def add(self, b: Builder, name: str, x: str) -> str:
        (n,) = b.shape(x)
        weight = torch.arange(1.0, n + 1)
        return normalisation.layer_norm(b, name, x, [0], weight, torch.ones(n), NORM_EPS, centred=self.centred)

    def exact(self, x: Numbers) -> Numbers:
        none = Fraction(0)
        mean = sum(x, none) / len(x) if self.centred else none
        variance = sum(((one - mean) ** 2 for one in x), none) / len(x)
        scale = 1 / square_root(variance + Fraction(NORM_EPS))
        return [(one - mean) * scale * (k + 1) + 1 for k, one in enumerate(x)]

    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        n, weight = len(x), np.arange(1, len(x) + 1, dtype=np.float32)
        found: Array
        if order == 0:
            given, factors = torch.from_numpy(x), torch.from_numpy(weight)
            if self.centred:
                found = F.layer_norm(given, [n], factors, torch.ones(n), NORM_EPS).numpy()
            else:
                found = F.rms_norm(given, [n], factors, NORM_EPS).numpy() + _ROUND(1)
            return found
        mean = _ROUND(_sum(x, order, rng) / _ROUND(n)) if self.centred else _ROUND(0)
        if order == 1 and self.centred:
            mean, variance = welford(x)
        else:
            away = x - mean
            variance = _ROUND(_sum(away * away, order, rng) * _ROUND(1 / n))
        scale = _ROUND(1 / np.sqrt(variance + _ROUND(NORM_EPS)))
        if order == 2:  # one factor and one summand for each entry
            found = x * (weight * scale) + (_ROUND(1) - mean * (weight * scale))
        elif order == 1:
            found = (x * scale - mean * scale) * weight + _ROUND(1)
        else:
            found = (x - mean) * scale * weight + _ROUND(1)
        return found


def welford(x: Array) -> tuple[np.float32, np.float32]:
    """Return mean and variance by Welford's updates."""
    mean, total = _ROUND(0), _ROUND(0)
    for k, one in enumerate(x):
        before = _ROUND(one - mean)
        mean = _ROUND(mean + _ROUND(before / _ROUND(k + 1)))
        total = _ROUND(total + _ROUND(before * _ROUND(one - mean)))
    return mean, _ROUND(total / _ROUND(len(x)))


class Attention(Mix):
    """softmax(x x') x: every entry is a query, a key and a value of one number."""

    def add(self, b: Builder, name: str, x: str) -> str:
        (n,) = b.shape(x)
        column, row = (b.reshape(f"{name}.{part}", x, shape) for part, shape in (("column", (n, 1)), ("row", (1, n))))
        scores = weighted_layers.matmul(b, f"{name}.scores", column, row)
        weights = b.add_node(f"{name}.weights", "softmax", [scores], axis=1)
        return b.reshape(name, weighted_layers.matmul(b, f"{name}.mixed", weights, column), (n,))

    def exact(self, x: Numbers) -> Numbers:
        rows = [Softmax().exact([query * key for key in x]) for query in x]
        return [sum((w * v for w, v in zip(row, x, strict=True)), Fraction(0)) for row in rows]

    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        if order == 0:
            column = torch.from_numpy(x)[None, None, :, None]
            found: Array = F.scaled_dot_product_attention(column, column, column, scale=1.0)[0, 0, :, 0].numpy()
            return found
        rows = [Softmax().run(query * x, order, rng) for query in x]
        return np.array([_sum(row * x, order, rng) for row in rows], np.float32)


class Gate(Mix):
    """x (1 / sqrt(1 + x²)) by scalar functions: a product with a curve."""

    def add(self, b: Builder, name: str, x: str) -> str:
        lifted = b.affine(f"{name}.lifted", b.add_node(f"{name}.square", "square", [x]), None, torch.ones(1))
        return scalar_functions.mul(b, name, x, b.add_node(f"{name}.scale", "rsqrt", [lifted]))

    def exact(self, x: Numbers) -> Numbers:
        return [one / square_root(1 + one * one) for one in x]

    def run(self, x: Array, order: int, rng: np.random.Generator) -> Array:
        lifted = x * x + _ROUND(1)
        found: Array = x / np.sqrt(lifted) if order % 2 else x * (_ROUND(1) / np.sqrt(lifted))
        return found


MIXES: dict[str, Mix] = {
    "products": Products(),
    "softmax": Softmax(),
    "layer norm": Norm(True),
    "rms norm": Norm(False),
    "attention": Attention(),
    "gate": Gate(),
}
