"""Hostile networks from a seed: rounding errors change their outputs, and rigorous bounds must hold all the same.

They have huge weights that cancel, a neuron that is positive only because of rounding (a backdoor), subnormal numbers,
-0.0, inputs at the edge of the domain, or long chains of layers. Values are computed in float32 in several orders of
summation, and exactly with fractions. Every network comes three times: with ReLUs, with a curved activation instead,
and with an operation that mixes entries (`mixing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fuzz.hunting.counting import counted
from fuzz.hunting.finding import Finding, Tally
from fuzz.hunting.mixing import MIXES
from fuzz.hunting.searches import few_steps
from fuzz.hunting.truth import CURVES, exactly, shortened
from proofmap import Ball, Graph
from proofmap.bounds import IBP, Alpha, Backward, CrownIBP, Exact, Forward, Method
from proofmap.errors import BoundError
from proofmap.graph.builder import weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap

HOSTS = ("cancelling", "backdoor", "denormal", "zero", "edge", "chain")
SETTINGS: dict[str, dict[str, Any]] = {
    "elu": {"alpha": 1.0},
    "gelu": {"approximate": "none"},
    "softplus": {"threshold": 20.0},
}
BOUND_METHODS: tuple[Method, ...] = (IBP(), CrownIBP(), Forward(), Backward(), Alpha(steps=2))
EXACT_METHOD = Exact(seconds=2)
_MAX_PARTS, _MAX_PARTS_CURVED = 24, 4  # limits of a search, for ReLUs and for curved activations
_MAX_MIXED_LAYERS = 6  # a norm has ten nodes
_POINT_COUNT, _MEMORY_BYTES = 10, 2**28
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class Hostile:
    """Dense layers with ReLUs or curves between them, and a ball around x in which every variable is a group."""

    kind: str
    layers: tuple[tuple[Array, Array], ...]
    x: Array
    ball: Ball
    target: int
    curve: str = "relu"

    @cached_property
    def graph(self) -> Graph:
        b = Builder((len(self.x),), 1)
        name = b.input
        for k, (weight, bias) in enumerate(self.layers):
            name = weighted_layers.linear(b, f"l{k}", name, torch.tensor(weight), torch.tensor(bias))
            if k + 1 < len(self.layers):
                if self.curve in MIXES:
                    name = MIXES[self.curve].add(b, f"r{k}", name)
                else:
                    name = b.add_node(f"r{k}", self.curve, [name], **SETTINGS.get(self.curve, {}))
        return b.finish(name, torch.device("cpu"), torch.float32)

    def upper(self, method: Method, dtype: torch.dtype, *, rigorous: bool) -> list[float]:
        """Return the upper bounds of AO(B) and of every AO(B_u)."""
        found = self.overlap(method, dtype, rigorous=rigorous)
        return [float(found.full), *found.frozen[0].tolist()]

    def overlap(self, method: Method, dtype: torch.dtype, *, rigorous: bool) -> Overlap:
        """Return the overlap with every variable as a group."""
        x = torch.tensor(self.x, dtype=dtype)[None]
        family = self.ball.at(x, torch.arange(len(self.x)))
        how = OverlapSettings(method, _MEMORY_BYTES, "shared", rigorous=rigorous)
        return family_overlap(self.graph.to(x.device, dtype), family, self.target, how)

    def points(self, count: int, seed: int) -> list[Array]:
        """Return float32 points that lie exactly in the ball, many of them at its corners."""
        rng = np.random.default_rng(seed)
        low, high = (float(end) for end in self.ball.domain or (-np.inf, np.inf))
        eps, found = Fraction(float(self.ball.eps)), [self.x]
        for _ in range(count):
            point = self.x.copy()
            for i, x in enumerate(self.x):
                way = rng.choice([-1.0, 1.0, 0.0, rng.uniform(-1, 1)])
                moved = np.float32(np.clip(float(x) + way * float(eps), low, high))
                while abs(Fraction(float(moved)) - Fraction(float(x))) > eps:
                    moved = np.nextafter(moved, x)
                point[i] = moved
            found.append(point)
        return found

    def reached(self, point: Array, seed: int) -> Fraction:
        """Return the largest overlap at a point over all computations of `values`."""
        return max(self.values(point, seed))

    def values(self, point: Array, seed: int) -> list[Fraction]:
        """Return the overlap at a point over the reals, and in float32 for several orders of summation."""
        rng = np.random.default_rng(seed)
        runs = [self._exact(point), *(self._run(point, order, rng) for order in range(4))]
        finite = [run for run in runs if run is not None]
        return [max(v for c, v in enumerate(run) if c != self.target) - run[self.target] for run in finite]

    def _exact(self, point: Array) -> list[Fraction]:
        value = [Fraction(float(v)) for v in point]
        for k, (weight, bias) in enumerate(self.layers):
            rows = zip(weight.tolist(), bias.tolist(), strict=True)
            value = [sum((Fraction(w) * v for w, v in zip(row, value, strict=True)), Fraction(b)) for row, b in rows]
            if k + 1 < len(self.layers):
                value = self._exactly_bent(value)
        return value

    @property
    def run_at_x(self) -> list[Fraction] | None:
        """The logits at x in float32; None if a value is not finite."""
        return self._run(self.x, 0, np.random.default_rng(0))

    def _run(self, point: Array, order: int, rng: np.random.Generator) -> list[Fraction] | None:
        """Compute the logits in float32, one product after the other; None if a value is not finite."""
        value = point
        for k, (weight, bias) in enumerate(self.layers):
            columns = np.arange(len(value))
            columns = columns[:: 1 - 2 * (order % 2)] if order < 2 else rng.permutation(columns)
            total = bias.copy() if order % 2 else np.zeros_like(bias)
            for j in columns:
                total = total + weight[:, j] * value[j]
            value = total if order % 2 else total + bias
            if k + 1 < len(self.layers):
                value = MIXES[self.curve].run(value, order, rng) if self.curve in MIXES else self._bent(value)
        return [Fraction(float(v)) for v in value] if bool(np.isfinite(value).all()) else None

    def _exactly_bent(self, value: list[Fraction]) -> list[Fraction]:
        if self.curve in MIXES:
            return [shortened(v) for v in MIXES[self.curve].exact([shortened(v) for v in value])]
        return [max(v, Fraction(0)) if self.curve == "relu" else exactly(self.curve, v) for v in value]

    def _bent(self, value: Array) -> Array:
        node = Node("curve", self.curve, (), value.shape, attributes=SETTINGS.get(self.curve, {}))
        bent: Array = compute(node, torch.from_numpy(value)).numpy()
        return bent

    def curved(self, seed: int) -> Hostile:
        """Return the same network with a curved activation instead of ReLU."""
        return self._with(tuple(CURVES)[seed // len(HOSTS) % len(CURVES)])

    def mixed(self, seed: int) -> Hostile:
        """Return the last layers of the network with an operation that mixes entries instead of ReLU."""
        layers = self.layers[-_MAX_MIXED_LAYERS:]
        short = replace(self, layers=layers, x=np.resize(self.x, layers[0][0].shape[1]))
        return short._with(tuple(MIXES)[(seed + seed // len(HOSTS)) % len(MIXES)])

    def _with(self, curve: str) -> Hostile:
        made = replace(self, curve=curve)
        exact = made._exact(self.x)
        return replace(made, target=exact.index(max(exact)))


def hostile(seed: int) -> Hostile:
    """Draw the network of a seed."""
    rng, kind = np.random.default_rng([7, seed]), HOSTS[seed % len(HOSTS)]
    inputs, hidden, classes = int(rng.integers(1, 5)), int(rng.integers(2, 6)), int(rng.integers(2, 4))
    domain = (0.0, 1.0)
    x, eps = rng.uniform(0, 1, inputs), float(rng.choice([0.01, 0.1, 1e-3, 0.3]))
    depth = int(rng.integers(1, 4)) if kind != "chain" else int(rng.integers(8, 24))
    sizes = [inputs, *[hidden if kind != "chain" else int(rng.integers(1, 4))] * depth, classes]
    drawn = [_layer(rng, n, m) for n, m in pairwise(sizes)]
    if kind == "cancelling":
        huge = float(rng.choice([1e8, 2.0**24, 3e6, 1e12]))
        weight, bias = drawn[0]
        weight[1], bias[1] = weight[0], bias[0] + rng.choice([0.0, 1e-6, 1e-3])
        drawn[1][0][:, 0], drawn[1][0][:, 1] = huge, -huge * rng.choice([1.0, 1.0 + 2**-22])
    elif kind == "backdoor":
        drawn = _backdoor(rng, inputs)
    elif kind == "denormal":
        small, large = float(rng.choice([1e-38, 1e-41, 1e-44, 1e-30])), float(rng.choice([1e30, 1e37, 1.0]))
        drawn[0] = (drawn[0][0] * small, drawn[0][1] * small)
        drawn[-1] = (drawn[-1][0] * large, drawn[-1][1])
    elif kind == "zero":
        for weight, bias in drawn:
            weight[rng.random(weight.shape) < 0.4] = -0.0
            bias[:] = -0.0
        x[rng.random(inputs) < 0.5] = -0.0
    elif kind == "edge":
        x = rng.choice([0.0, 1.0, 0.1, 0.7, 1 - 2**-24], inputs)
    with np.errstate(over="ignore"):
        parts = tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in drawn)
    point = x.astype(np.float32)
    made = Hostile(kind, parts, point, Ball(eps, domain=domain), 0)
    exact = made._exact(point)
    return Hostile(kind, parts, point, made.ball, exact.index(max(exact)))


def _layer(rng: np.random.Generator, read: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(out, read)) * rng.choice([0.5, 1.0, 2.0]), rng.normal(size=out) * 0.3


def _backdoor(rng: np.random.Generator, inputs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return layers with relu((s + 2²⁴) - 2²⁴ - s) for a sum s: 0 over the reals, the rounding error in float32."""
    large = float(rng.choice([2.0**24, 2.0**23, 2.0**25]))
    scale, gain = float(rng.uniform(0.5, 3.0)), float(rng.choice([4.0, 16.0]))
    first = (np.full((2, inputs), scale), np.array([large, 0.0]))
    second = (np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([-large, large]))
    margin = float(rng.choice([0.1, 0.5, 1.0]))
    return [first, second, (np.array([[0.0, 0.0], [gain, gain]]), np.array([margin, 0.0]))]


def _turn(seed: int) -> tuple[Method, torch.dtype]:
    """Return the method and the precision for a seed; they take turns."""
    turn = seed // len(HOSTS)
    return BOUND_METHODS[turn % len(BOUND_METHODS)], (torch.float32, torch.float64)[turn // len(BOUND_METHODS) % 2]


def hunted(seed: int, tally: Tally) -> Iterator[Finding]:
    """Compare the rigorous bounds of a seed's networks with their values."""
    with np.errstate(all="ignore"):
        one = hostile(seed)
        for network in (one, one.curved(seed), one.mixed(seed)):
            yield from hunted_in(network, seed, tally)


def hunted_in(one: Hostile, seed: int, tally: Tally) -> Iterator[Finding]:
    """Compare the bounds of one network with its values; count wrong bounds without rounding analysis."""
    if one.curve in MIXES and one.run_at_x is None:  # products of products leave the range of float32
        tally.undecided += 1
        return
    points = one.points(_POINT_COUNT, seed)
    values = [one.reached(point, seed) for point in points]
    same = [np.flatnonzero(point == one.x).tolist() for point in points]
    tally.networks += 1
    tally.points += len(points)
    reached = [max(values)]
    reached += [max(v for v, u in zip(values, same, strict=True) if i in u) for i in range(len(one.x))]
    turn = _turn(seed)
    network = (f"{one.kind}, {one.curve}, {one.ball}", f"x {one.x}")
    for method, dtype in {(Backward(), torch.float32): None, turn: None, (EXACT_METHOD, turn[1]): None}:
        try:
            most_parts = _MAX_PARTS if one.curve == "relu" else _MAX_PARTS_CURVED
            with few_steps(attacked=seed % 2 == 0), counted(most_parts) as work:
                found = one.overlap(method, dtype, rigorous=True)
        except BoundError:
            tally.undecided += 1
            continue
        tally.count(work)
        upper = [float(found.full), *found.frozen[0].tolist()]
        tally.bounds += len(upper)
        for member, (above, value) in enumerate(zip(upper, reached, strict=True)):
            if value > Fraction(above):
                what = f"{method} in {dtype} proves {above!r} of member {member}, {float(value)!r} is reached"
                yield Finding(seed, "unsound", f"rigorous {what}", network)
        if found.points is not None and dtype == torch.float32:
            yield from _met(one, found, seed, network)
    try:
        tally.fooled += Fraction(one.upper(Backward(), torch.float32, rigorous=False)[0]) < reached[0]
        if one.curve == "relu":
            with few_steps(attacked=seed % 2 == 0), counted(_MAX_PARTS):
                tally.misled += Fraction(one.upper(EXACT_METHOD, torch.float64, rigorous=False)[0]) < reached[0]
    except BoundError:
        tally.undecided += 1


def _met(one: Hostile, found: Overlap, seed: int, network: tuple[str, ...]) -> Iterator[Finding]:
    """Check that lower bounds are at most the values at their points, in every order of computation."""
    assert found.points is not None
    lower = [float(found.full_lower), *found.frozen_lower[0].tolist()]
    for member, (below, point) in enumerate(zip(lower, found.points[0].numpy(), strict=True)):
        least = min(one.values(point, seed))
        if Fraction(below) > least:
            what = f"a search in {found.points.dtype} calls {below!r} reached in member {member}, {float(least)!r} is"
            yield Finding(seed, "unsound", f"rigorous {what}", network)
