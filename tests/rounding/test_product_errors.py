"""Float32's products, matrix products and softmax are as close to the truth as is counted, and so are their planes."""

from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from torch import Tensor

import proofmap as pm
from fuzz.hunting.mixing import Attention, Mix, Products, Softmax
from proofmap import Ball
from proofmap.bounds import IBP, Backward, Cases, Forward, Method, solve
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.ir import Node
from proofmap.rounding.float32_sums import float32_error
from proofmap.rounding.magnitudes import MAGNITUDES, Magnitudes
from proofmap.rules import Interval


def error_at(node: Node, *inputs: Tensor) -> Tensor:
    """Return the counted error of float32's values at points (cases, *shape)."""
    sizes: Magnitudes = MAGNITUDES[node.op](node, *(Interval(x, x) for x in inputs))
    error = torch.zeros(()) if sizes.value is None else float32_error(sizes.value, sizes.errors)
    return error if sizes.extra is None else error + sizes.extra


def softmaxes(x: Tensor) -> list[Tensor]:
    """Softmax over the last axis of x (N, n) in float32: torch, numpy in both orders of summation, and exp2."""
    parts = np.exp((x - x.amax(1, keepdim=True)).numpy())
    forward, backward = (np.cumsum(part, 1, dtype=np.float32)[:, -1:] for part in (parts, parts[:, ::-1]))
    log2 = np.float32(np.log2(np.e))
    doubled = np.exp2(x.numpy() * log2 - x.amax(1, keepdim=True).numpy() * log2)
    exp2 = doubled / doubled.sum(1, keepdims=True)
    return [x.softmax(1), *map(torch.from_numpy, (parts / forward, parts * (1 / backward), exp2))]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 100.0, 1e4, 1e12])
@pytest.mark.parametrize("count", [1, 2, 17, 400])
def test_softmax_in_float32_is_as_close_as_is_counted(count: int, scale: float) -> None:
    x = scale * torch.randn(200, count, generator=torch.Generator().manual_seed(count))
    x[:50] += 10 * scale
    error = error_at(Node("n", "softmax", ("x",), (count,), attributes={"axis": 0}), x)
    exact = x.double().softmax(1)
    for found in softmaxes(x):
        assert bool(((found.double() - exact).abs() <= error).all())
    assert float(error.max()) <= 1 + 2.0**-5
    if scale <= 10:
        assert bool((error <= 1e-3 * exact + 1e-30).all())


def test_onnxruntime_and_fused_attention_compute_softmax_as_is_counted() -> None:
    x = 10 * torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=1)], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy()})
    error = error_at(Node("n", "softmax", ("x",), (96,), attributes={"axis": 0}), x)
    assert bool(((torch.from_numpy(found).double() - x.double().softmax(1)).abs() <= error).all())
    keys, values = torch.eye(96)[None, None], torch.randn(96, 7)
    mixed = F.scaled_dot_product_attention(x[None, None], keys, values[None, None], scale=1.0)[0, 0].double()
    exact = x.double().softmax(1) @ values.double()
    node = Node("m", "contract", ("a", "b"), (64, 7))
    room = error @ values.abs() + error_at(node, x.softmax(1)[None], values[None])[0]
    assert bool(((mixed - exact).abs() <= room).all())


@pytest.mark.parametrize("count", [1, 3, 600])
def test_sums_of_products_are_as_close_as_is_counted(count: int) -> None:
    """Added one after the other, in several orders, all of one sign: the error grows with their number."""
    rng = np.random.default_rng(count)
    a, b = (rng.uniform(0.5, 1, size).astype(np.float32) for size in ((1, count), (count, 1)))
    node = Node("n", "contract", ("a", "b"), (1, 1))
    error = Fraction(float(error_at(node, torch.from_numpy(a)[None], torch.from_numpy(b)[None])))
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[0], b[:, 0], strict=True))
    worst = Fraction(0)
    for order in (np.arange(count), np.arange(count)[::-1], np.argsort(-a[0] * b[:, 0])):
        total = np.float32(0)
        for k in order:
            total = np.float32(total + np.float32(a[0, k] * b[k, 0]))
        worst = max(worst, abs(Fraction(float(total)) - exact))
    assert worst <= error
    assert error <= (count + count // 8 + 80) * exact / 2**24 + Fraction(1, 2**100)


def test_a_subnormal_factor_may_count_as_zero() -> None:
    """Flushed to zero, 2⁻¹³⁰ · 2²⁰ is off by itself, far above the rounding of a product."""
    tiny, large = torch.full((1, 1), 2.0**-130), torch.full((1, 1), 2.0**20)
    assert float(error_at(Node("n", "product", ("a", "b"), (1,)), tiny, large)) > 2.0**-110
    assert float(error_at(Node("n", "contract", ("a", "b"), (1, 1)), tiny[None], large[None])) > 2.0**-110


def graph_with(mix: Mix, size: int) -> pm.Graph:
    b = Builder((size,), 1)
    return b.finish(mix.add(b, "mix", b.input), torch.device("cpu"), torch.float64)


@pytest.mark.parametrize("method", [IBP(), Forward(), Backward()], ids=repr)
@pytest.mark.parametrize("mix", [Products(), Softmax(), Attention()], ids=lambda mix: type(mix).__name__)
def test_bounds_of_one_operation_contain_exact_values(mix: Mix, method: Method) -> None:
    """On balls of all sizes: at corners and at x, where nothing but rounding parts bound and value; and in float32."""
    generator, rng, fooled = torch.Generator().manual_seed(0), np.random.default_rng(0), 0
    graph = graph_with(mix, 4)
    for scale, eps in ((1.0, 0.0), (30.0, 0.0), (1.0, 0.1), (10.0, 3.0), (1.0, 1e-6)):
        x = scale * torch.randn(1, 4, generator=generator)
        rows = torch.cat([torch.eye(4), -torch.eye(4), torch.randn(3, 4, generator=generator)])
        sides = torch.cat([torch.zeros(1, 4), torch.randint(-1, 2, (6, 4), generator=generator)])
        reached = torch.full((len(rows),), -np.inf, dtype=torch.float64)
        for side in sides:
            value = mix.exact([Fraction(float(v)) + Fraction(eps) * int(s) for v, s in zip(x[0], side, strict=True)])
            point = (x[0] + 0.999 * eps * side).numpy()
            runs = [list(map(Fraction, mix.run(point, order, rng).tolist())) for order in range(4)]
            for one in (value, *runs):
                forms = [sum(Fraction(float(c)) * v for c, v in zip(row, one, strict=True)) for row in rows]
                reached = reached.maximum(torch.tensor([_rounded_down(form) for form in forms], dtype=torch.float64))
        for dtype in (torch.float32, torch.float64):
            cases = Cases(Ball(eps).at(x.to(dtype)))
            found = [
                solve(graph.to(x.device, dtype), cases, rows.to(dtype)[None], method, "one-pass", 2**26, rigorous=r)
                for r in (True, False)
            ]
            assert bool((found[0][0, 0].double() >= reached).all()), (scale, eps, dtype)
            fooled += int((found[1][0, 0].double() < reached).sum())
    assert fooled > 0  # without rounding errors, bounds are exceeded


def _rounded_down(value: Fraction | int) -> float:
    near = float(value)
    return near if Fraction(near) <= value else float(np.nextafter(near, -np.inf))
