"""Linear operations whose adjoint is worth writing down; the others take it from their derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.rules.rule import Linear

_WORTH = 16  # rows for which looking for empty columns costs less than it saves


class Dense(Linear):
    """y = x W' + b: L'(A) = A W.

    Behind a ReLU many columns of A are zero in all rows, those of the neurons that are off: on a CPU they are left out.
    """

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        weight = node.weight
        assert weight is not None
        if coefficients.device.type == "cpu" and coefficients.ndim == 2 and len(coefficients) > _WORTH:
            used = coefficients.ne(0).any(0).nonzero().flatten()
            if len(used) < 0.8 * len(weight):
                coefficients, weight = coefficients[:, used], weight[used]
        return (coefficients @ weight,)


class Convolution(Linear):
    """y = W * x + b: L'(A) is the transposed convolution, asked for without running the convolution first."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        a = node.attributes
        assert node.weight is not None
        like = coefficients.new_empty(1).expand(coefficients.shape[0], *shapes[0])
        gradient, _, _ = torch.ops.aten.convolution_backward(
            coefficients,
            like,
            node.weight,
            None,
            a["stride"],
            a["padding"],
            a["dilation"],
            False,
            [0] * len(a["stride"]),
            a["groups"],
            [True, False, False],
        )
        return (gradient,)


class Add(Linear):
    """y = Σ x_i: every input receives A."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients,) * len(shapes)


class Moving(Linear):
    """The entries in other places, each at most once."""

    def moves(self, node: Node) -> bool:
        return True


class Pad(Linear):
    """A frame of zeros, or of repeated entries."""

    def moves(self, node: Node) -> bool:
        return bool(node.attributes["mode"] == "constant")


class Reshape(Moving):
    """The entries in another shape, in the same order."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients.reshape(coefficients.shape[0], *shapes[0]),)


class Affine(Moving):
    """y = s x + b with constants entry by entry: L'(A) = s A."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients if node.weight is None else coefficients * node.weight,)
