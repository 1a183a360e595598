"""The rounding theorem against the worst order that a search finds, in exact fractions."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, question_of
from tests.proof.worst import Sum

POINT = {**BALL, "eps": "0", "domain": None}
UNIT = 2.0**-24
ROW = np.zeros((1, 1), int)


def dense(network: checker.Network, x: checker.Value, w: Array, b: float) -> checker.Value:
    return network.linear(x, (1,), np.asarray(w)[None, None, None], np.array([b]), ROW, 1, 0)


def bounds(x: Array, *build: Callable[[checker.Network, checker.Value], checker.Value]) -> tuple[Fraction, Fraction]:
    """The interval of the last value at x, which holds every way of computing it in float32."""
    network = checker.Network(nodes=[], units=0)
    node = network.add("input", [], x.shape)
    for step in build:
        node = step(network, node)
    prover = checker.Prover(network, question_of(x, 0, 2, POINT), x[None])
    return Fraction(float(prover.lower[-1][0, 0])), Fraction(float(prover.upper[-1][0, 0]))


def growing(count: int) -> tuple[Array, Array, float]:
    """1, and numbers each of which moves it up by nearly two of them."""
    return np.array([1.0, *[UNIT * (1 + 2**-20)] * count]), np.ones(count + 1), 0.0


def cut(count: int) -> tuple[Array, Array, float]:
    """Weights so small beside the largest one that two slices leave them out; the largest one meets a small input."""
    bits = 53 - checker.BITS - int(np.ceil(np.log2(count + 2)))
    w = np.array([1.0, 2.0 ** -(bits + 1), *[2.0 ** -(2 * bits + 1)] * count])
    return w, np.array([2.0 ** (23 - 2 * bits), 0.0, *[1 + 2**-20] * count]), 0.0


def drawn(random: np.random.Generator, count: int, spread: int) -> tuple[Array, Array, float]:
    """Numbers of many sizes."""
    w, x = (np.ldexp(random.normal(size=count), random.integers(-spread, spread + 1, count)) for _ in range(2))
    return w, x, float(np.float32(random.normal()))


def cancelling(random: np.random.Generator, count: int) -> tuple[Array, Array, float]:
    w = random.normal(size=count).astype(np.float32)
    x = random.random(count).astype(np.float32)
    return np.concatenate([w, -w, w * 2.0**-20]), np.concatenate([x, np.nextafter(x, np.float32(2)), x]), 0.0


def tiny(random: np.random.Generator, count: int, size: int) -> tuple[Array, Array, float]:
    """Products, or sums, or weights, or inputs that are denormal."""
    return np.ldexp(1 + random.random(count), -size), np.ldexp(1 + random.random(count), size - 127), 0.0


def denormal(random: np.random.Generator, count: int, *, weights: bool) -> tuple[Array, Array, float]:
    """Weights, or inputs, that may count as 0, and whose products are far from denormal."""
    small, large = np.ldexp(1 + random.random(count), -130), np.ldexp(1 + random.random(count), 60)
    return (small, large, 0.0) if weights else (large, small, 0.0)


def one_product(random: np.random.Generator) -> tuple[Array, Array, float]:
    """A product and a sum that both err by nearly a unit."""
    w, x = (1 + random.random((2, 400)) * 2.0**-6).astype(np.float32).astype(np.float64)
    best = np.argmax((w * x).astype(np.float32).astype(np.float64) - w * x)
    return w[best : best + 1], x[best : best + 1], UNIT * (1 + 2**-20)


def cases(seed: int) -> Iterator[tuple[str, tuple[Array, Array, float]]]:
    random = np.random.default_rng(seed)
    yield from (("growing", growing(count)) for count in (1, 2, 30, 300))
    yield from (("cut", cut(count)) for count in (30, 300))
    yield from (("drawn", drawn(random, count, spread)) for count in (1, 2, 5, 30) for spread in (0, 3, 12, 40))
    yield from (("cancelling", cancelling(random, count)) for count in (2, 10))
    yield from (("tiny", tiny(random, count, size)) for count in (1, 40) for size in (0, 20, 64, 100, 127))
    yield from (("denormal", denormal(random, 3, weights=weights)) for weights in (False, True))
    yield "one product", one_product(random)


def escaped(seed: int) -> tuple[list[str], float]:
    """The cases whose interval does not hold the worst value, and the largest share of a radius that was reached."""
    random, found, most = np.random.default_rng(seed), [], 0.0
    for name, (w, x, b) in cases(seed):
        w, x = w.astype(np.float32), x.astype(np.float32)
        low, high = bounds(x, lambda network, node, w=w, b=b: dense(network, node, w, b))  # type: ignore[misc]
        for flush in (False, True):
            sums = Sum(w, x, b, flush=flush)
            off = sums.farthest(random)
            if min(sums.true - low, high - sums.true) < off:
                found.append(name)
            most = max(most, float(off / max(high - sums.true, sums.true - low)))
    return found, most


def test_no_order_leaves_the_interval() -> None:
    found, most = escaped(0)
    assert found == []
    assert most > 0.99  # the search reaches what is allowed, nearly


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_order_leaves_the_interval_of_other_numbers(seed: int) -> None:
    assert escaped(seed)[0] == []


def one_less(count: Any) -> Any:
    return np.maximum(count - 1, 0) * UNIT


def kept_after_slices(node: checker.Value) -> Array:
    used: Array = np.sum(node.weights, axis=0) != 0
    return used


@pytest.mark.parametrize("left_out", ["an addition", "the roundings", "what is flushed", "weights that slices cut"])
def test_the_search_notices_what_a_theorem_leaves_out(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if left_out == "an addition":
        monkeypatch.setattr(checker, "gamma", one_less)
    elif left_out == "the roundings":
        monkeypatch.setattr(checker, "gamma", lambda count: count * 0.0)
    elif left_out == "what is flushed":
        monkeypatch.setattr(checker, "FLUSHED", 0.0)
    else:
        plain = checker.Prover.rounding

        def rounding(self: checker.Prover, node: checker.Value, *rest: Array) -> Array:
            node.used = kept_after_slices(node)
            return plain(self, node, *rest)

        monkeypatch.setattr(checker.Prover, "rounding", rounding)
    expected = {"an addition": "one product", "the roundings": "growing", "what is flushed": "tiny"}
    assert expected.get(left_out, "cut") in escaped(0)[0]
