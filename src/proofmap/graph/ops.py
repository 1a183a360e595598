"""The operations: one record each, from which follows all that is asked of one but its bounds (`rules`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph import operation_values as functions
from proofmap.graph.receptive_fields import Reach, Shapes, filtered, framed, nowhere, pooled, same_place, same_position

if TYPE_CHECKING:
    from proofmap.graph.ir import Node

_SMOOTH = 16  # torch's softplus, cut off above this, jumps by less than rounding in float32


def _never(node: Node) -> bool:
    return False


def _always(node: Node) -> bool:
    return True


@dataclass(frozen=True)
class Operation:
    """What an operation is.

    compute: its value, from the node and the values of its inputs.
    linear: None where it is not. "weighted" is y = L(inputs; weight) + bias, linear in the inputs and in the weight,
        which they are multiplied with and nothing else: |L| has |weight| for weight. "unsigned" is y = L(inputs)
        without a weight: no entry of the matrix is negative, whatever the attributes, so that |L| = L.
    reach: what an output position of a map reads, given the shapes of the inputs.
    steep: whether the node ends, jumps or is steep at an edge of what it takes: rounding may cross the edge.
    activation: whether networks have it behind a layer, as one.
    """

    compute: Callable[..., Tensor]
    linear: Literal["weighted", "unsigned"] | None = None
    reach: Callable[[Node, Shapes], Reach | None] = nowhere
    steep: Callable[[Node], bool] = _never
    activation: bool = False

    @property
    def entrywise(self) -> bool:
        """Whether an entry depends on the inputs' entries at its place alone; weight and bias broadcast to it."""
        return self.reach is same_place


_scalar = partial(Operation, reach=same_place)  # y = f(x), entry by entry


def _plain(function: Callable[[Tensor], Tensor], **more: Any) -> Operation:
    """The same, without settings."""
    return _scalar(lambda node, x: function(x), **more)


OPERATIONS: dict[str, Operation] = {
    "linear": Operation(functions.linear, "weighted"),
    "matmul": Operation(functions.matmul, "weighted"),
    "conv": Operation(functions.conv, "weighted", filtered),
    "conv_transpose": Operation(functions.conv_transpose, "weighted"),
    "affine": Operation(functions.affine, "weighted", same_place),
    "keep": Operation(functions.keep, "weighted", same_place),
    "add": Operation(functions.add, "unsigned", same_place),
    "concat": Operation(lambda node, *xs: torch.cat(xs, node.attributes["axis"] + 1), "unsigned", same_position),
    "sum": Operation(functions.summed, "unsigned"),
    "avg_pool": Operation(functions.avg_pool, "unsigned", pooled),
    "adaptive_avg_pool": Operation(functions.adaptive_avg_pool, "unsigned"),
    "reshape": Operation(lambda node, x: x.reshape(x.shape[0], *node.attributes["shape"]), "unsigned"),
    "permute": Operation(lambda node, x: x.permute(0, *(axis + 1 for axis in node.attributes["axes"])), "unsigned"),
    "expand": Operation(functions.expand, "unsigned"),
    "index": Operation(
        lambda node, x: x.index_select(node.attributes["axis"] + 1, node.attributes["index"].to(x.device)), "unsigned"
    ),
    "slice": Operation(functions.sliced, "unsigned"),
    "pad": Operation(functions.pad, "unsigned", framed),
    # functions of one scalar
    "relu": _plain(F.relu, activation=True),
    "leaky_relu": _scalar(functions.leaky_relu, activation=True),
    "clamp": _scalar(functions.clamp, activation=True),
    "abs": _plain(torch.abs),
    "shrink": _scalar(functions.shrink, activation=True, steep=_always),
    "threshold": _scalar(functions.threshold, activation=True, steep=_always),
    "elu": _scalar(lambda node, x: F.elu(x, node.attributes["alpha"]), activation=True),
    "softplus": _scalar(functions.softplus, activation=True, steep=lambda node: node.attributes["threshold"] < _SMOOTH),
    "sigmoid": _plain(torch.sigmoid, activation=True),
    "tanh": _plain(torch.tanh, activation=True),
    "softsign": _plain(F.softsign, activation=True),
    "erf": _plain(torch.erf),
    "gelu": _scalar(lambda node, x: F.gelu(x, approximate=node.attributes["approximate"]), activation=True),
    "silu": _plain(F.silu, activation=True),
    "mish": _plain(F.mish, activation=True),
    "hardswish": _plain(F.hardswish, activation=True),
    "square": _plain(torch.square),
    "exp": _plain(torch.exp),
    "log": _plain(torch.log, steep=_always),
    "sqrt": _plain(torch.sqrt, steep=_always),
    "rsqrt": _plain(torch.rsqrt, steep=_always),
    "reciprocal": _plain(torch.reciprocal, steep=_always),
    # of values that all move
    "product": Operation(lambda node, a, b: a * b, reach=same_place),
    "contract": Operation(lambda node, a, b: a @ b),  # over the last two axes
    "softmax": Operation(lambda node, x: x.softmax(node.attributes["axis"] + 1)),
    # the largest of several
    "max_pool": Operation(functions.max_pool, reach=pooled),
    "maximum": Operation(lambda node, a, b: torch.maximum(a, b), reach=same_place),
    "larger": Operation(lambda node, difference, a, b: torch.maximum(a, b), reach=same_place),  # difference = b - a
    # of two networks that differ by little: f(z) - f(x), f another node, with the difference z - x
    "change": Operation(lambda node, x, z, d: compute(node.attributes["of"], z) - compute(node.attributes["of"], x)),
    # of which nothing is known but what it makes of a whole sample
    "foreign": Operation(lambda node, x: node.attributes["run"](x), steep=_always),
}

WEIGHTED = frozenset(name for name, operation in OPERATIONS.items() if operation.linear == "weighted")
UNSIGNED = frozenset(name for name, operation in OPERATIONS.items() if operation.linear == "unsigned")
LINEAR = WEIGHTED | UNSIGNED


def compute(node: Node, *values: Tensor) -> Tensor:
    """The node's value at the values of its inputs."""
    return OPERATIONS[node.op].compute(node, *values)


def reach(node: Node, shapes: Shapes) -> Reach | None:
    """What an output position of the node reads of its inputs' maps; None where it is no window, or no map."""
    rank = len(node.shape)
    if rank < 2 or any(len(shape) != rank for shape in shapes):
        return None
    return OPERATIONS[node.op].reach(node, shapes)
