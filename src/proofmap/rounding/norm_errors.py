"""Float32 errors of normalisation layers, which runtimes compute in other ways than the graph states.

A graph has a norm as mean m, c = x - m, v = mean c², r = rsqrt(v + eps) and y = c r. Runtimes compute v in two passes
or by Welford's updates (Chan, Golub & LeVeque 1983), and y also as x r - m r, with r times the weight of the layer.
Their errors are relative to |x| and |m|, not to |c|. They are counted here, beside those of the graph's operations.

- v. The mean of two passes is off by e <= γ_{n+16} mean |x|, which moves mean c² by e². Welford's running means are off
  by e_k, with Σ e_k² <= n (γ_{n/2+16} q)² and q² = mean x². The n products then miss their exact sum n v by at most
  2 √(2 n v) √(Σ e_k²) + Σ e_k², and are rounded and added. So, for either algorithm,

      |v' - v| <= s √v + s²,    s = γ_{3n+64} q,    v' >= 0.

  This is the error of each square of a sum c = a + b, of which n are added up; its q² is mean (a² + b²).
- y. A product of a sum c = a + b with r is off by γ_8 (|a| + |b|) |r|. A product of r and a weight w may underflow,
  which costs 2⁻¹²⁵ (|a| + |b|) / |w|.
- A clamp that states a fact (attribute `claimed`: none of n normalised numbers exceeds √n) is not in the model. There,
  y may exceed the limit by `_excess`.

Not covered: v as mean x² - m², which loses all digits where v is far below m².
"""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.rounding.float32_sums import FLOAT32_UNIT, UNDERFLOW, float32_error, gamma
from proofmap.rounding.magnitudes import COPIES, MAGNITUDES, Magnitudes, magnitude
from proofmap.rules import Interval

IntervalOf = Callable[[str], Interval]

_STATISTIC_ERRORS = 64  # rounding errors of a variance beside three for each entry
_SUMMAND_ERRORS = 8  # rounding errors of a product with a sum of two, computed as two products
_SCALE_ERRORS = 64  # rounding errors of 1 / sqrt(v + eps) and of the product with it
_LEAST_SIZE = 2.0**-100  # smaller sums of squares may consist of underflow
_ROUNDED_UP = 1 + 2.0**-16  # factor above the rounding errors of the sums in this file


def value_error(graph: Graph, node: Node, sizes: Magnitudes, interval: IntervalOf) -> Tensor | float:
    """Return the error R (C, *shape) of float32's values of a nonlinear operation, given its magnitudes."""
    error: Tensor | float = 0.0 if sizes.value is None else float32_error(sizes.value, sizes.errors)
    for more in (sizes.extra, _norm_error(graph, node, interval)):
        error = error if more is None else error + more
    return error


def _norm_error(graph: Graph, node: Node, interval: IntervalOf) -> Tensor | None:
    """Return what other computations of a norm add to the error of a node; None: nothing."""
    if node.op == "square":
        return _square_error(graph, node, interval)
    if node.op == "product":
        return _distributed_error(graph, node, interval)
    return _excess(graph, node, interval) if "claimed" in node.attributes else None


def _summands(graph: Graph, name: str, interval: IntervalOf) -> list[Tensor]:
    """Return the magnitudes of the values that a node adds; none for other operations."""
    node = graph[name]
    return [magnitude(interval(one)) for one in node.inputs] if node.op == "add" else []


def _square_error(graph: Graph, node: Node, interval: IntervalOf) -> Tensor | None:
    """Return s √v + s², the same for all entries that are added up; None if the square is not that of a sum."""
    found = _statistic_error(graph, node.inputs[0], interval)
    if found is None:
        return None
    distance, axes = found
    size = magnitude(interval(node.inputs[0])).double().square().mean(axes, keepdim=True)
    error = (distance * (size.sqrt() + distance) * _ROUNDED_UP + UNDERFLOW).expand(-1, *node.shape)
    return error.to(interval(node.inputs[0]).lower)


def _statistic_error(graph: Graph, name: str, interval: IntervalOf) -> tuple[Tensor, list[int]] | None:
    """Return s in float64 and the axes of a variance of the sum `name`; None if it is no sum, or has no variance.

    s is infinite where a square may overflow.
    """
    parts = _summands(graph, name, interval)
    axes = _variance_axes(graph, name) if parts else None
    if axes is None:
        return None
    squares = torch.stack([part.double().square() for part in parts]).sum(0)
    squares = torch.where(squares < 2.0**100, squares, torch.inf)
    count = 3 * prod(parts[0].shape[axis] for axis in axes) + _STATISTIC_ERRORS
    return gamma(count, FLOAT32_UNIT) * squares.mean(axes, keepdim=True).sqrt() * _ROUNDED_UP, axes


def _variance_axes(graph: Graph, name: str) -> list[int] | None:
    """Return the axes over which squares of the node's entries are added up; None if there is no such sum."""
    squares = {one.name for one in graph.nodes if one.op == "square" and one.inputs == (name,)}
    sums = [one for one in graph.nodes if one.op == "sum" and one.inputs[0] in squares]
    return [axis + 1 for axis in sums[0].attributes["axes"]] if len(sums) == 1 else None


def _distributed_error(graph: Graph, node: Node, interval: IntervalOf) -> Tensor | None:
    error: Tensor | None = None
    for one, other in (node.inputs, node.inputs[::-1]):
        parts = _summands(graph, one, interval)
        if parts:
            reach = torch.stack(parts).sum(0)
            more = float32_error(reach * magnitude(interval(other)), _SUMMAND_ERRORS)
            more = more + UNDERFLOW / node.attributes.get("least_factor", 1.0) * (reach + 1)
            error = more if error is None else error + more
    return error


def _excess(graph: Graph, node: Node, interval: IntervalOf) -> Tensor:
    """Bound how far a float32 value exceeds the limits of a clamp that does not exist in the model.

    It is at most the excess of the interval. With |c| <= √(n v), y = c r also obeys

        |y| <= √n √(v / (max(v - s √v - s², 0) + eps)) (1 + γ) + R.

    If eps > 1.81 s², the quotient is largest at √v = 2 (eps - s²) / s, where it is 1 / (1 - s² / (4 (eps - s²))).
    Otherwise it is largest where the maximum leaves 0, at √v = 1.62 s. Without a mean, v' is off by γ v alone.
    """
    (name,), limit = node.inputs, node.attributes["high"]
    x = interval(name)
    far = torch.maximum(x.upper - limit, -limit - x.lower).clamp(min=0)
    product = graph[name]
    if product.op != "product":
        return far
    growth = _growth(graph, node, product, interval)
    if growth is None:
        return far
    sizes: Magnitudes = MAGNITUDES["product"](product, *map(interval, product.inputs))
    near = limit * growth + value_error(graph, product, sizes, interval)
    return torch.where(near < far, near, far)


def largest_quotient(square: Tensor, eps: float) -> Tensor:
    """Return the largest v / (max(v - s √v - s², 0) + eps) over all v, given s² (see `_excess`)."""
    late = 1 / (1 - square / (4 * (eps - square)).clamp(min=1e-300))
    return torch.where(eps > 1.82 * square, late, 2.7 * square / eps if eps > 0 else torch.inf)


def _growth(graph: Graph, node: Node, product: Node, interval: IntervalOf) -> Tensor | None:
    """Return by how much |y| may exceed the limit, relative to it; None if the norm has been rewritten."""
    first, factor = (graph[name] for name in product.inputs)
    while factor.op in COPIES:
        factor = graph[factor.inputs[0]]
    if factor.op not in ("rsqrt", "reciprocal"):
        return None
    eps, count = node.attributes["eps"], node.attributes["claimed"]
    more = 2 * gamma(3 * count + _STATISTIC_ERRORS + _SCALE_ERRORS, FLOAT32_UNIT)
    if node.attributes["centred"]:
        found = _statistic_error(graph, first.name, interval)
        if found is None:
            return None
        growth = largest_quotient(found[0].square(), eps).sqrt() * (1 + more) - 1
    else:
        growth = torch.where(interval(factor.inputs[0]).lower >= _LEAST_SIZE, more, torch.inf)
    return growth.to(interval(product.name).lower) if growth.ndim == 1 + len(node.shape) else None
