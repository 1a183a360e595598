"""One node of every scalar operation, and intervals on which it is defined."""

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.graph import Node
from proofmap.rules import RULES, Interval
from proofmap.rules.scalar_lines import Scalar


@dataclass(frozen=True)
class Function:
    op: str
    attributes: tuple[tuple[str, Any], ...] = ()
    weight: float | None = None
    low: float = -8.0
    high: float = 8.0
    jumps: tuple[float, ...] = ()

    def __str__(self) -> str:
        extra = [str(value) for _, value in self.attributes] + ([] if self.weight is None else [str(self.weight)])
        return "-".join([self.op, *extra])

    @property
    def rule(self) -> Scalar:
        rule = RULES[self.op]
        assert isinstance(rule, Scalar)
        return rule

    def node(self, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> Node:
        weight = None if self.weight is None else torch.tensor(self.weight, dtype=dtype)
        return Node("f", self.op, ("x",), shape, weight, None, dict(self.attributes))

    def fair(self, x: Interval) -> Tensor:
        """The intervals that keep off a jump or hold it well inside: ends at it count as beyond."""
        near = [abs(k) * 1e-4 + 1e-4 for k in self.jumps]
        off = [((x.lower - k).abs() > n) & ((x.upper - k).abs() > n) for k, n in zip(self.jumps, near, strict=True)]
        return torch.stack([torch.ones_like(x.lower, dtype=torch.bool), *off]).all(0)

    def intervals(self, count: int, dtype: torch.dtype, seed: int) -> Interval:
        """Return intervals of every size: the whole range, ordinary ones, hair-thin ones, points, and ends on kinks."""
        generator = torch.Generator().manual_seed(seed)
        ends = torch.rand(2, count, generator=generator, dtype=torch.float64) * (self.high - self.low) + self.low
        width = 10.0 ** -(torch.rand(count, generator=generator, dtype=torch.float64) * 7)
        lower = ends.amin(0)
        upper = lower + (ends.amax(0) - lower) * width
        places = {-3.0, -1.0, 0.0, 1.0, 3.0, 6.0, *self.jumps}
        kinks = torch.tensor([k for k in sorted(places) if self.low <= k <= self.high] or [self.low])
        few = count // 10
        lower[:few] = kinks[torch.arange(few) % len(kinks)].double()
        upper[:few] = torch.maximum(upper[:few], lower[:few])
        upper[few : 2 * few] = kinks[torch.arange(few) % len(kinks)].double()
        lower[few : 2 * few] = torch.minimum(lower[few : 2 * few], upper[few : 2 * few])
        upper[2 * few : 3 * few] = lower[2 * few : 3 * few]
        lower[-1], upper[-1] = self.low, self.high
        lower, upper = lower.to(dtype), upper.to(dtype)
        return Interval(lower, torch.maximum(lower, upper))


def points(x: Interval, count: int, jumps: tuple[float, ...] = ()) -> Tensor:
    """(count, *shape) evenly inside each interval, ends included, with both sides of every jump, rising."""
    inside = x.lower + torch.linspace(0, 1, count, dtype=x.lower.dtype)[:, None] * (x.upper - x.lower)
    at = torch.tensor(jumps, dtype=x.lower.dtype)
    sides = torch.cat([at, *(torch.nextafter(at, torch.full_like(at, end)) for end in (-inf, inf))])
    inside = torch.cat([inside, sides[:, None].expand(-1, inside.shape[1])])
    return inside.maximum(x.lower).minimum(x.upper).sort(0).values


def _ties(step: float, low: int, high: int) -> tuple[float, ...]:
    """Return the places between low · step and high · step where rounding to multiples of a step jumps."""
    return tuple((k + 0.5) * step for k in range(low, high))


FUNCTIONS = [
    Function("relu"),
    Function("leaky_relu", weight=0.1),
    Function("leaky_relu", weight=1.5),
    Function("leaky_relu", weight=-0.5),
    Function("clamp", (("low", 0.0), ("high", 6.0))),
    Function("clamp", (("low", -1.0), ("high", 1.0))),
    Function("clamp", (("low", -inf), ("high", 1.0))),
    Function("clamp", (("low", -1.0), ("high", inf))),
    Function("abs"),
    Function("elu", (("alpha", 1.0),)),
    Function("elu", (("alpha", 1.67),)),
    Function("elu", (("alpha", 0.3),)),
    Function("elu", (("alpha", -0.7),)),
    Function("softplus", (("threshold", inf),)),
    Function("softplus", (("threshold", 20.0),), low=15.0, high=25.0, jumps=(20.0,)),
    Function("softplus", (("threshold", 1.0),), jumps=(1.0,)),
    Function("softplus", (("threshold", -1.0),), jumps=(-1.0,)),
    Function("shrink", (("limit", 1.0), ("shift", 1.0))),
    Function("shrink", (("limit", 1.0), ("shift", 0.0)), jumps=(-1.0, 1.0)),
    Function("shrink", (("limit", 0.0), ("shift", -0.5)), jumps=(0.0,)),
    Function("threshold", (("limit", 1.0), ("value", -2.5)), jumps=(1.0,)),
    Function("threshold", (("limit", 0.1), ("value", 20.0)), jumps=(0.1,)),
    Function("round", (("step", 1.0), ("low", -inf), ("high", inf)), low=-3.0, high=3.0, jumps=_ties(1.0, -3, 3)),
    Function("round", (("step", 0.25), ("low", -3.0), ("high", 4.0)), low=-2.0, high=2.0, jumps=_ties(0.25, -3, 4)),
    Function("round", (("step", 0.1), ("low", 0.0), ("high", 255.0)), jumps=_ties(0.1, 0, 81)),
    Function("floor", low=-3.0, high=3.0, jumps=tuple(map(float, range(-3, 4)))),
    Function("sign", (("at_zero", 0.0), ("room", 0.0)), jumps=(0.0,)),
    Function("sign", (("at_zero", 1.0), ("room", 0.0)), low=-2.0, jumps=(0.0,)),
    Function("sign", (("at_zero", -1.0), ("room", 0.0)), high=1.0, jumps=(0.0,)),
    Function("sin", low=-20.0, high=20.0),
    Function("cos", low=-20.0, high=20.0),
    Function("sigmoid"),
    Function("tanh"),
    Function("softsign", low=-50.0, high=50.0),
    Function("erf"),
    Function("gelu", (("approximate", "none"),)),
    Function("gelu", (("approximate", "tanh"),)),
    Function("silu", low=-50.0, high=50.0),
    Function("mish", low=-50.0, high=50.0),
    Function("hardswish"),
    Function("square"),
    Function("exp"),
    Function("log", low=0.01),
    Function("sqrt", low=0.0),
    Function("rsqrt", low=0.05),
    Function("reciprocal", low=0.05),
    Function("reciprocal", low=-8.0, high=-0.05),
]
