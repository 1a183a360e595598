"""The table of operations: one `Operation` record each. Bounding rules are in `proofmap.rules`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph import operation_values
from proofmap.graph.receptive_fields import (
    ReceptiveField,
    Shapes,
    convolution_window,
    no_window,
    padding_window,
    pooling_window,
    same_place,
    same_position,
)

if TYPE_CHECKING:
    from proofmap.graph.ir import Node

_SMOOTH_SOFTPLUS_THRESHOLD = 16  # above it, torch's jump from softplus to x is below float32 rounding


def _never(node: Node) -> bool:
    return False


def _always(node: Node) -> bool:
    return True


@dataclass(frozen=True)
class Operation:
    """The properties of an operation.

    compute: the value, from the node and the values of its inputs.
    linear: None for a nonlinear operation. "weighted" is y = L(inputs; weight) + bias, linear in the inputs and in the
        weight, which is the only factor: |L| has |weight| for weight. "unsigned" is y = L(inputs) without a weight: no
        entry of the matrix is negative, whatever the attributes, so that |L| = L.
    reach: the window of input positions that an output position of a map reads, given the shapes of the inputs.
    steep: whether the function is discontinuous, undefined or steep at some input, which rounding errors may cross.
    activation: whether networks use the operation as an activation function.
    plain: whether it is a function of one scalar without attributes. Both readers then read the operator of this name.
    curve: how large its values are, from which `rounding.magnitudes` derives rounding errors. "bounded": |y| <= 1, and
        the slope is at most 2. "unbounded": |y| <= 1 + s |x|, where s, 2 or the attribute alpha, bounds the slope.
        None: the operation is linear, has its own line in `rounding.magnitudes`, or has no known rounding errors.
    """

    compute: Callable[..., Tensor]
    linear: Literal["weighted", "unsigned"] | None = None
    reach: Callable[[Node, Shapes], ReceptiveField | None] = no_window
    steep: Callable[[Node], bool] = _never
    activation: bool = False
    plain: bool = False
    curve: Literal["bounded", "unbounded"] | None = None

    @property
    def entrywise(self) -> bool:
        """True if an output entry depends only on the input entries at its position (weight and bias broadcast)."""
        return self.reach is same_place


_scalar = partial(Operation, reach=same_place)  # y = f(x), entry by entry


def _plain(function: Callable[[Tensor], Tensor], **more: Any) -> Operation:
    """Return the record of a function of one scalar without attributes."""
    return _scalar(lambda node, x: function(x), plain=True, **more)


OPERATIONS: dict[str, Operation] = {
    "linear": Operation(operation_values.linear, "weighted"),
    "matmul": Operation(operation_values.matmul, "weighted"),
    "conv": Operation(operation_values.conv, "weighted", convolution_window),
    "conv_transpose": Operation(operation_values.conv_transpose, "weighted"),
    "affine": Operation(operation_values.affine, "weighted", same_place),
    "keep": Operation(operation_values.keep, "weighted", same_place),
    "add": Operation(operation_values.add, "unsigned", same_place),
    "concat": Operation(lambda node, *xs: torch.cat(xs, node.attributes["axis"] + 1), "unsigned", same_position),
    "sum": Operation(operation_values.sum_axes, "unsigned"),
    "avg_pool": Operation(operation_values.avg_pool, "unsigned", pooling_window),
    "adaptive_avg_pool": Operation(operation_values.adaptive_avg_pool, "unsigned"),
    "reshape": Operation(lambda node, x: x.reshape(x.shape[0], *node.attributes["shape"]), "unsigned"),
    "permute": Operation(lambda node, x: x.permute(0, *(axis + 1 for axis in node.attributes["axes"])), "unsigned"),
    "expand": Operation(operation_values.expand, "unsigned"),
    "index": Operation(
        lambda node, x: x.index_select(node.attributes["axis"] + 1, node.attributes["index"].to(x.device)), "unsigned"
    ),
    "slice": Operation(operation_values.slice_axis, "unsigned"),
    "pad": Operation(operation_values.pad, "unsigned", padding_window),
    # functions of one scalar
    "relu": _plain(F.relu, activation=True),
    "leaky_relu": _scalar(operation_values.leaky_relu, activation=True),
    "clamp": _scalar(operation_values.clamp, activation=True),
    "abs": _plain(torch.abs),
    "shrink": _scalar(operation_values.shrink, activation=True, steep=_always, curve="unbounded"),
    "threshold": _scalar(operation_values.threshold, activation=True, steep=_always),
    "round": _scalar(operation_values.round_steps, steep=_always),
    "floor": _scalar(operation_values.floor, steep=_always, plain=True),
    "sign": _scalar(operation_values.sign, steep=_always),
    "elu": _scalar(lambda node, x: F.elu(x, node.attributes["alpha"]), activation=True, curve="unbounded"),
    "softplus": _scalar(
        operation_values.softplus,
        activation=True,
        steep=lambda node: node.attributes["threshold"] < _SMOOTH_SOFTPLUS_THRESHOLD,
        curve="unbounded",
    ),
    "sigmoid": _plain(torch.sigmoid, activation=True, curve="bounded"),
    "tanh": _plain(torch.tanh, activation=True, curve="bounded"),
    "sin": _plain(torch.sin, curve="bounded"),
    "cos": _plain(torch.cos, curve="bounded"),
    "softsign": _plain(F.softsign, activation=True, curve="bounded"),
    "erf": _plain(torch.erf, curve="bounded"),
    "gelu": _scalar(
        lambda node, x: F.gelu(x, approximate=node.attributes["approximate"]), activation=True, curve="unbounded"
    ),
    "silu": _plain(F.silu, activation=True, curve="unbounded"),
    "mish": _plain(F.mish, activation=True, curve="unbounded"),
    "hardswish": _plain(F.hardswish, activation=True, curve="unbounded"),
    "square": _plain(torch.square),
    "exp": _plain(torch.exp),
    "log": _plain(torch.log, steep=_always),
    "sqrt": _plain(torch.sqrt, steep=_always),
    "rsqrt": _plain(torch.rsqrt, steep=_always),
    "reciprocal": _plain(torch.reciprocal, steep=_always),
    # products of computed values, and softmax
    "product": Operation(lambda node, a, b: a * b, reach=same_place),
    "contract": Operation(lambda node, a, b: a @ b),  # over the last two axes
    "softmax": Operation(lambda node, x: x.softmax(node.attributes["axis"] + 1)),
    # maxima
    "max_pool": Operation(operation_values.max_pool, reach=pooling_window),
    "maximum": Operation(lambda node, a, b: torch.maximum(a, b), reach=same_place),
    "larger": Operation(lambda node, difference, a, b: torch.maximum(a, b), reach=same_place),  # difference = b - a
    # twin networks: f(z) - f(x) for another node f, with the difference z - x as an input
    "change": Operation(lambda node, x, z, d: compute(node.attributes["of"], z) - compute(node.attributes["of"], x)),
    # an opaque part: only its value for a whole sample is known
    "foreign": Operation(lambda node, x: node.attributes["run"](x), steep=_always),
}

WEIGHTED = frozenset(name for name, operation in OPERATIONS.items() if operation.linear == "weighted")
UNSIGNED = frozenset(name for name, operation in OPERATIONS.items() if operation.linear == "unsigned")
LINEAR = WEIGHTED | UNSIGNED
ROUNDED = "rounded"  # attribute of a difference: the two nodes whose rounding errors it has (`rewrite.model_pair`)
PLAIN = frozenset(name for name, operation in OPERATIONS.items() if operation.plain)


def compute(node: Node, *values: Tensor) -> Tensor:
    """Return the node's value for the values of its inputs."""
    return OPERATIONS[node.op].compute(node, *values)


def reach(node: Node, shapes: Shapes) -> ReceptiveField | None:
    """Return the window of input positions that an output position reads; None if there is no map or no window."""
    rank = len(node.shape)
    if rank < 2 or any(len(shape) != rank for shape in shapes):
        return None
    return OPERATIONS[node.op].reach(node, shapes)
