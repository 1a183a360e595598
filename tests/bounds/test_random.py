"""Random small networks, balls and masks: Hypothesis searches for violated bounds and inequalities."""

from math import inf
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proofmap import Ball, Graph
from proofmap.bounds import METHODS, Sharing
from proofmap.graph.builder import pooling, scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.sliding_windows import SlidingWindow
from tests.bounds.attack import climbed, sampled
from tests.bounds.setting import both_sides, quick

SCALARS = ["relu", "leaky", "prelu", "relu6", "hardtanh", "elu", "softplus", "sigmoid", "tanh", "gelu", "silu"]
SCALARS += ["hardswish", "hardsigmoid", "abs", "square", "erf", "mish", "softsign", "softshrink"]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    fan = torch.Size(shape[1:]).numel()
    return float(1.5 / max(1, fan) ** 0.5) * torch.randn(*shape, generator=generator, dtype=torch.float64)


def scalar(b: Builder, op: str, x: str, generator: torch.Generator) -> str:
    match op:
        case "leaky":
            return scalar_functions.leaky_relu(b, "a", x, torch.tensor(0.2))
        case "prelu":
            slope = torch.rand(b.shape(x)[0], *(1,) * (len(b.shape(x)) - 1), generator=generator) * 2
            return scalar_functions.leaky_relu(b, "a", x, slope)
        case "relu6":
            return scalar_functions.clamp(b, "a", x, 0.0, 6.0)
        case "hardtanh":
            return scalar_functions.clamp(b, "a", x, -1.0, 1.0)
        case "elu":
            return scalar_functions.elu(b, "a", x, 1.3)
        case "gelu":
            return b.add_node("a", "gelu", [x], approximate="none")
        case "softplus":
            return scalar_functions.softplus(b, "a", x, 1.5, 2.0)
        case "softshrink":
            return scalar_functions.shrink(b, "a", x, 0.2, 0.2)
        case "hardsigmoid":
            return scalar_functions.hard_sigmoid(b, "a", x)
        case _:
            return b.add_node("a", op, [x])


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Draw a network of convolutions, pools, activations and branches with a linear end, for images or flat inputs."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    image = draw(st.booleans())
    b = Builder((draw(st.integers(1, 2)), 5, 5) if image else (draw(st.integers(2, 8)),), 1)
    x = b.input
    for _ in range(draw(st.integers(1, 4))):
        x = draw(blocks(b, x, generator))
    flat = b.reshape("flat", x, (torch.Size(b.shape(x)).numel(),))
    x = weighted_layers.linear(b, "hidden", flat, normal(generator, 5, b.shape(flat)[0]), normal(generator, 5))
    x = scalar(b, draw(st.sampled_from(SCALARS)), x, generator)
    x = weighted_layers.linear(b, "out", x, normal(generator, 3, 5), normal(generator, 3))
    return b.finish(x, torch.device("cpu"), torch.float64)


@st.composite
def blocks(draw: st.DrawFn, b: Builder, x: str, generator: torch.Generator) -> str:
    shape = b.shape(x)
    spatial = len(shape) == 3 and min(shape[1:]) >= 3
    kinds = ["scalar", "branch", "max", "min", "concat", "affine"]
    kinds += ["conv", "max_pool", "avg_pool"] if spatial else ["linear"] if len(shape) == 1 else []
    match draw(st.sampled_from(kinds)):
        case "conv":
            out = draw(st.integers(1, 3))
            stride, pad = draw(st.integers(1, 2)), draw(st.tuples(st.integers(0, 1), st.integers(0, 2)))
            weight, bias = normal(generator, out, shape[0], 3, 2), normal(generator, out)
            x = weighted_layers.conv(b, "c", x, weight, bias, SlidingWindow.of((3, 2), (stride, 1), [pad, (0, 1)]))
            return scalar(b, draw(st.sampled_from(SCALARS)), x, generator)
        case "linear":
            out = draw(st.integers(2, 6))
            x = weighted_layers.linear(b, "l", x, normal(generator, out, shape[0]), normal(generator, out))
            return scalar(b, draw(st.sampled_from(SCALARS)), x, generator)
        case "max_pool":
            around = draw(st.integers(0, 1))
            stride = draw(st.integers(1, 2))
            ceil = draw(st.booleans())
            return pooling.max_pool(b, "p", x, SlidingWindow.of((2, 3), (stride, 2), [(around, around)] * 2), ceil=ceil)
        case "avg_pool":
            count = draw(st.booleans())
            slide = SlidingWindow.of((2, 2), (1, 2), [(1, 1), (0, 0)])
            return pooling.avg_pool(b, "p", x, slide, ceil=False, count_padding=count)
        case "affine":
            return b.affine("n", x, normal(generator, *shape), normal(generator, *shape))
        case "scalar":
            return scalar(b, draw(st.sampled_from(SCALARS)), x, generator)
        case kind:
            other = scalar(
                b, draw(st.sampled_from(SCALARS)), b.affine("m", x, normal(generator, *shape), None), generator
            )
            if kind == "branch":
                return b.sub("s", x, other) if draw(st.booleans()) else b.add("s", x, other)
            if kind == "concat":
                return slicing.concat(b, "k", "cat", [x, other], draw(st.integers(1, len(shape))))
            return (scalar_functions.maximum if kind == "max" else scalar_functions.minimum)(b, "m", x, other)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    graph=networks(),
    eps=st.floats(0.0, 0.5),
    norm=st.sampled_from([1.0, 2.0, inf]),
    domain=st.booleans(),
    half=st.sampled_from([None, "+", "-"]),
    groups=st.integers(1, 4),
    seed=st.integers(0, 1000),
    name=st.sampled_from([*METHODS, "ibp+forward", "forward+backward", "ibp+forward+backward"]),
)
def test_no_bound_is_violated(
    graph: Graph, eps: float, norm: float, domain: bool, half: str | None, groups: int, seed: int, name: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, *graph.input.shape, generator=generator, dtype=torch.float64)
    x[0].round_()  # on the boundary of the domain
    mask = torch.randint(0, groups, x.shape, generator=generator)
    ball = Ball(eps, norm, (0.0, 1.0) if domain else None, half)  # type: ignore[arg-type]
    family = ball.at(x, mask)
    _, logits = sampled(graph, family, 100, seed=seed)
    everywhere = torch.cat([logits, climbed(graph, family, steps=6)])
    frozen = climbed(graph, family.split(), steps=4).reshape(2 * graph.classes, 2, family.members, graph.classes)
    full: list[Tensor] = []
    bounds: dict[str, Tensor] = {}
    for sharing in get_args(Sharing):
        lower, upper = both_sides(graph, family, quick(name), sharing)
        tolerance = 1e-9 * (1 + float(upper.abs().max() + lower.abs().max()))
        assert bool((everywhere <= upper[:, 0] + tolerance).all())
        assert bool((everywhere >= lower[:, 0] - tolerance).all())
        assert bool((frozen <= upper + tolerance).all())
        assert bool((frozen >= lower - tolerance).all())
        full.append(upper[:, 0])
        bounds[sharing] = upper
    tolerance = 1e-8 * (1 + float(full[0].abs().max()))
    assert bool((bounds["shared"] <= bounds["one-pass"] + tolerance).all())
    assert bool((bounds["shared"] <= bounds["shared"][:, :1]).all())
    assert bool((full[0] - full[2]).abs().max() <= tolerance)
