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

# y = L(inputs; weight) + bias, linear in the inputs and in the weight, which they are multiplied with and nothing else:
# |L| has |weight| for weight. Whatever may be negative in a linear operation belongs into a weight.
WEIGHTED = frozenset({"linear", "matmul", "conv", "conv_transpose", "affine", "keep"})

# y = L(inputs) without a weight: no entry of the matrix is negative, whatever the attributes, so that |L| = L.
UNSIGNED = frozenset(
    {
        *("add", "concat", "sum", "avg_pool", "adaptive_avg_pool"),
        *("reshape", "permute", "expand", "index", "slice", "pad"),
    }
)

LINEAR = WEIGHTED | UNSIGNED  # all other operations are not

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


def _keep(node: Node, x: Tensor) -> Tensor:
    """x · weight + bias with a weight of zeros and ones: what it drops is not read, and may be infinite or NaN."""
    assert node.weight is not None
    return _plus(torch.where(node.weight != 0, x, 0.0), node.bias)


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
    extra = () if a["mean"] else (1,)  # the sum of each window
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
    pads, mode = node.attributes["pads"], node.attributes["mode"]
    if mode != "constant" and len(pads) == 2 * (x.ndim - 1):  # torch would take the samples for channels, of which
        return F.pad(x.unsqueeze(1), pads, mode=mode).squeeze(1)  # there have to be some
    return F.pad(x, pads, mode=mode)


def _leaky_relu(node: Node, x: Tensor) -> Tensor:
    assert node.weight is not None
    return torch.where(x >= 0, x, x * node.weight)


def _clamp(node: Node, x: Tensor) -> Tensor:
    return x.clamp(node.attributes["low"], node.attributes["high"])


def _elu(node: Node, x: Tensor) -> Tensor:
    return F.elu(x, node.attributes["alpha"])


def _softplus(node: Node, x: Tensor) -> Tensor:
    """log(1 + exp(x)) up to the threshold, x itself above it."""
    return torch.where(x > node.attributes["threshold"], x, torch.logaddexp(x, x.new_zeros(())))


def _shrink(node: Node, x: Tensor) -> Tensor:
    """x - shift above the limit, x + shift below -limit, 0 between."""
    limit, shift = node.attributes["limit"], node.attributes["shift"]
    return torch.where(x > limit, x - shift, torch.where(x < -limit, x + shift, 0.0))


def _threshold(node: Node, x: Tensor) -> Tensor:
    """x above the limit, else a value."""
    return torch.where(x > node.attributes["limit"], x, node.attributes["value"])


def _gelu(node: Node, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=node.attributes["approximate"])


def _max_pool(node: Node, x: Tensor) -> Tensor:
    a = node.attributes
    apply = _MAX_POOL[x.ndim - 2]
    value: Tensor = apply(x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil"])
    return value


def _unary(function: Callable[[Tensor], Tensor]) -> Compute:
    return lambda node, x: function(x)


SCALAR: dict[str, Compute] = {  # y = f(x), entry by entry
    "relu": _unary(F.relu),
    "leaky_relu": _leaky_relu,
    "clamp": _clamp,
    "abs": _unary(torch.abs),
    "shrink": _shrink,
    "threshold": _threshold,
    "elu": _elu,
    "softplus": _softplus,
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "softsign": _unary(F.softsign),
    "erf": _unary(torch.erf),
    "gelu": _gelu,
    "silu": _unary(F.silu),
    "mish": _unary(F.mish),
    "hardswish": _unary(F.hardswish),
    "square": _unary(torch.square),
    "exp": _unary(torch.exp),
    "log": _unary(torch.log),
    "sqrt": _unary(torch.sqrt),
    "reciprocal": _unary(torch.reciprocal),
}

COMPUTE: dict[str, Compute] = {
    # linear
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "affine": _affine,
    "keep": _keep,
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
    **SCALAR,
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
