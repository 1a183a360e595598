"""What each operation computes: one table, used to run a graph and to find the shapes of its nodes.

Tensors carry the sample dimension in front, so an axis `a` of a sample is the tensor's axis `a + 1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from proofmap.graph.ir import Node

Compute = Callable[..., Tensor]

# y = L(inputs) + bias, with L linear; all other operations are not
LINEAR = frozenset(
    {
        *("linear", "matmul", "conv", "conv_transpose", "affine", "add", "concat", "sum", "avg_pool"),
        *("adaptive_avg_pool", "reshape", "permute", "expand", "index", "slice", "pad"),
    }
)

_CONV: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE: dict[int, Any] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_AVG_POOL: dict[int, Any] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_MAX_POOL: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _plus(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _channels(bias: Tensor | None) -> Tensor | None:
    """(C, 1, ...) as convolutions take it: (C,)."""
    return None if bias is None else bias.flatten()


def _linear(node: Node, x: Tensor) -> Tensor:
    assert node.weight is not None
    return F.linear(x, node.weight, node.bias)


def _matmul(node: Node, x: Tensor) -> Tensor:
    assert node.weight is not None
    value = node.weight @ x if node.attributes["side"] == "left" else x @ node.weight
    return _plus(value, node.bias)


def _conv(node: Node, x: Tensor) -> Tensor:
    a = node.attributes
    apply = _CONV[x.ndim - 2]
    weight = node.weight
    assert weight is not None
    if x.shape[1] == 1:  # strides that mean nothing there lead oneDNN astray: torch 2.13 reads beyond some maps
        x = x.contiguous().view(-1).view(x.shape)
    if x.is_cuda and 1 < a["groups"] == x.shape[1]:  # one filter a channel: slow by a factor of ten, channels last
        x, weight = x.contiguous(), weight.contiguous()
    value: Tensor = apply(x, weight, _channels(node.bias), a["stride"], a["padding"], a["dilation"], a["groups"])
    return value


def _conv_transpose(node: Node, x: Tensor) -> Tensor:
    a = node.attributes
    apply = _CONV_TRANSPOSE[x.ndim - 2]
    value: Tensor = apply(
        x, node.weight, _channels(node.bias), a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"]
    )
    return value


def _affine(node: Node, x: Tensor) -> Tensor:
    return _plus(x if node.weight is None else x * node.weight, node.bias)


def _add(node: Node, *xs: Tensor) -> Tensor:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _concat(node: Node, *xs: Tensor) -> Tensor:
    return torch.cat(xs, dim=node.attributes["axis"] + 1)


def _sum(node: Node, x: Tensor) -> Tensor:
    axes = [axis + 1 for axis in node.attributes["axes"]]
    return x.sum(axes, keepdim=node.attributes["keepdim"])


def _avg_pool(node: Node, x: Tensor) -> Tensor:
    a = node.attributes
    rank = x.ndim - 2
    extra = () if a["divisor"] is None else (a["divisor"],)
    apply = _AVG_POOL[rank]
    value: Tensor = apply(x, a["kernel"], a["stride"], a["padding"], a["ceil"], a["count_padding"], *extra)
    return value


def _adaptive_avg_pool(node: Node, x: Tensor) -> Tensor:
    value: Tensor = _ADAPTIVE[x.ndim - 2](x, node.attributes["size"])
    return value


def _reshape(node: Node, x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], *node.attributes["shape"])


def _permute(node: Node, x: Tensor) -> Tensor:
    return x.permute(0, *(axis + 1 for axis in node.attributes["axes"]))


def _expand(node: Node, x: Tensor) -> Tensor:
    shape = node.attributes["shape"]
    return x.reshape(x.shape[0], *(1,) * (len(shape) + 1 - x.ndim), *x.shape[1:]).expand(x.shape[0], *shape)


def _index(node: Node, x: Tensor) -> Tensor:
    return x.index_select(node.attributes["axis"] + 1, node.attributes["index"].to(x.device))


def _slice(node: Node, x: Tensor) -> Tensor:
    start, stop, step = node.attributes["range"]
    return x[(slice(None),) * (node.attributes["axis"] + 1) + (slice(start, stop, step),)]


def _pad(node: Node, x: Tensor) -> Tensor:
    return F.pad(x, node.attributes["pads"], mode=node.attributes["mode"])


def _leaky_relu(node: Node, x: Tensor) -> Tensor:
    assert node.weight is not None
    return torch.where(x >= 0, x, x * node.weight)


def _clamp(node: Node, x: Tensor) -> Tensor:
    return x.clamp(node.attributes["low"], node.attributes["high"])


def _elu(node: Node, x: Tensor) -> Tensor:
    return F.elu(x, node.attributes["alpha"])


def _gelu(node: Node, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=node.attributes["approximate"])


def _max_pool(node: Node, x: Tensor) -> Tensor:
    a = node.attributes
    apply = _MAX_POOL[x.ndim - 2]
    value: Tensor = apply(x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil"])
    return value


def _unary(function: Callable[[Tensor], Tensor]) -> Compute:
    return lambda node, x: function(x)


COMPUTE: dict[str, Compute] = {
    # linear
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "affine": _affine,
    "add": _add,
    "concat": _concat,
    "sum": _sum,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "index": _index,
    "slice": _slice,
    "pad": _pad,
    # functions of one scalar
    "relu": _unary(F.relu),
    "leaky_relu": _leaky_relu,
    "clamp": _clamp,
    "abs": _unary(torch.abs),
    "elu": _elu,
    "softplus": _unary(F.softplus),
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "erf": _unary(torch.erf),
    "gelu": _gelu,
    "silu": _unary(F.silu),
    "hardswish": _unary(F.hardswish),
    "square": _unary(torch.square),
    "exp": _unary(torch.exp),
    "log": _unary(torch.log),
    "sqrt": _unary(torch.sqrt),
    "reciprocal": _unary(torch.reciprocal),
    # the largest of several
    "max_pool": _max_pool,
    "maximum": lambda node, a, b: torch.maximum(a, b),
    "larger": lambda node, d, a, b: torch.maximum(a, b),  # d = b - a
    # what somebody else computes
    "foreign": lambda node, x: node.attributes["run"](x),
}


def compute(node: Node, *values: Tensor) -> Tensor:
    """The node's value at the values of its inputs."""
    return COMPUTE[node.op](node, *values)
