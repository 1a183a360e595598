"""Matrix products of two variable factors, as in attention, relaxed by their first-order expansion."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, Form, Interval, Nonlinear, Relaxation
from proofmap.rules.scalar_lines import at_rows
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class BilinearExpansion(Relaxation):
    """|a b - (a m + n b - n m)| <= radius, with n and m the middles of a and b: (cases, *shape) each.

    One plane with a distance on both sides: coefficients are not split by sign, and no sum over k is split.
    """

    first: Tensor  # n, (cases, ..., i, k)
    second: Tensor  # m, (cases, ..., k, j)
    radius: Tensor  # (cases, ..., i, j)

    def pull(self, form: Form, owner: Tensor | None) -> tuple[tuple[Any, ...], Tensor]:
        """Pull back rows; window forms become dense."""
        rows = form.dense() if isinstance(form, WindowForms) else form
        n, m = at_rows(self.first, rows, owner), at_rows(self.second, rows, owner)
        bias = dot(rows.abs(), at_rows(self.radius, rows, owner)) - dot(rows, at_rows(self.middle, rows, owner))
        return (rows @ m.mT, n.mT @ rows), bias

    @property
    def middle(self) -> Tensor:
        """n m."""
        return self.first @ self.second

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        a, b = inputs
        ends = []
        for of_a, of_b, extra in (
            ((a.lower_weight, a.upper_weight), (b.lower_weight, b.upper_weight), 1),
            ((a.lower_bias, a.upper_bias), (b.lower_bias, b.upper_bias), 0),
        ):
            n, m = (part.unsqueeze(1) if extra else part for part in (self.first, self.second))
            (a_middle, a_half), (b_middle, b_half) = (((low + up) / 2, (up - low) / 2) for low, up in (of_a, of_b))
            middle, half = a_middle @ m + n @ b_middle, a_half @ m.abs() + n.abs() @ b_half
            ends.append((middle - half, middle + half))
        (lower_w, upper_w), (lower_b, upper_b) = ends
        return AffineBounds(lower_w, lower_b - self.middle - self.radius, upper_w, upper_b - self.middle + self.radius)


class MatrixProduct(Nonlinear):
    """y_ij = Σ_k a_ik b_kj over the last two axes.

    (a - n)(b - m) lies between ± r_a r_b, with n, m the middles and r the radii of both intervals. These are the planes
    of `elementwise_product` with both shares at 1/2, added up. Where the shares are optimised,
    `with_entrywise_products` splits the matrix product into elementwise products.
    """

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """Add up the intervals of the products, one k at a time."""
        a, b = inputs
        shape = np.broadcast_shapes(a.lower[..., :1].shape, b.lower[..., :1, :].shape)
        lower, upper = a.lower.new_zeros(shape), a.lower.new_zeros(shape)
        for k in range(a.lower.shape[-1]):
            x = [end[..., k : k + 1] for end in (a.lower, a.upper)]
            y = [end[..., k : k + 1, :] for end in (b.lower, b.upper)]
            corners = torch.stack([one * other for one in x for other in y])
            lower, upper = lower + corners.amin(0), upper + corners.amax(0)
        return Interval(lower, upper)

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        a, b = inputs
        radius = ((a.upper - a.lower) / 2) @ ((b.upper - b.lower) / 2)
        return BilinearExpansion((a.lower + a.upper) / 2, (b.lower + b.upper) / 2, radius)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """Entries that vary, and are multiplied by an entry that varies."""
        a, b = (x.lower < x.upper for x in inputs)
        return a & b.any(-1).unsqueeze(-2), b & a.any(-2).unsqueeze(-1)
