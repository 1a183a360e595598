"""What those operations compute that take more than a line, from a node and the values of its inputs.

Tensors carry the sample dimension in front, so an axis `a` of a sample is the tensor's axis `a + 1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from proofmap.graph.ir import Node


def _plus(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _of_maps(function: str, x: Tensor, *args: Any) -> Tensor:
    """Torch's function of that name for maps with as many spatial axes as x has."""
    value: Tensor = getattr(F, f"{function}{x.ndim - 2}d")(x, *args)
    return value


def linear(node: Node, x: Tensor) -> Tensor:
    """x W' + b over the last axis, W (out, in)."""
    assert node.weight is not None
    return F.linear(x, node.weight, node.bias)


def matmul(node: Node, x: Tensor) -> Tensor:
    """W x + b or x W + b over the last two axes."""
    assert node.weight is not None
    value = node.weight @ x if node.attributes["side"] == "left" else x @ node.weight
    return _plus(value, node.bias)


def conv(node: Node, x: Tensor) -> Tensor:
    """A convolution, as torch has it."""
    a, weight = node.attributes, node.weight
    assert weight is not None
    if x.shape[1] == 1:  # strides that mean nothing there lead oneDNN astray: torch 2.13 reads beyond some maps
        x = x.contiguous().view(-1).view(x.shape)
    if x.is_cuda and 1 < a["groups"] == x.shape[1]:  # one filter a channel: slow by a factor of ten, channels last
        x, weight = x.contiguous(), weight.contiguous()
    bias = None if node.bias is None else node.bias.flatten()
    return _of_maps("conv", x, weight, bias, a["stride"], a["padding"], a["dilation"], a["groups"])


def conv_transpose(node: Node, x: Tensor) -> Tensor:
    """A transposed convolution, as torch has it."""
    a, bias = node.attributes, None if node.bias is None else node.bias.flatten()
    how = (a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"])
    return _of_maps("conv_transpose", x, node.weight, bias, *how)


def clamp(node: Node, x: Tensor) -> Tensor:
    """min(max(x, low), high), with the slope 0 at both, as ReLU has it at 0 and torch's ReLU6 at 0 and 6.

    The gradient of torch's clamp takes ten times as long, on a CPU a third of that of a network of ReLU6.
    """
    return F.hardtanh(x, node.attributes["low"], node.attributes["high"])


def affine(node: Node, x: Tensor) -> Tensor:
    """x · weight + bias, each broadcast to x."""
    return _plus(x if node.weight is None else x * node.weight, node.bias)


def keep(node: Node, x: Tensor) -> Tensor:
    """x · weight + bias with a weight of zeros and ones: what it drops is not read, and may be infinite or NaN."""
    assert node.weight is not None
    return _plus(torch.where(node.weight != 0, x, 0.0), node.bias)


def add(node: Node, *xs: Tensor) -> Tensor:
    """The sum of the inputs."""
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def summed(node: Node, x: Tensor) -> Tensor:
    """The sum over axes."""
    axes = [axis + 1 for axis in node.attributes["axes"]]
    return x.sum(axes, keepdim=node.attributes["keepdim"])


def avg_pool(node: Node, x: Tensor) -> Tensor:
    """The mean of each window, or its sum."""
    a = node.attributes
    extra = () if a["mean"] else (1,)  # the sum of each window
    return _of_maps("avg_pool", x, a["kernel"], a["stride"], a["padding"], a["ceil"], a["count_padding"], *extra)


def adaptive_avg_pool(node: Node, x: Tensor) -> Tensor:
    """Means over as many windows as the attributes say."""
    return _of_maps("adaptive_avg_pool", x, node.attributes["size"])


def expand(node: Node, x: Tensor) -> Tensor:
    """Axes of one repeated."""
    shape = node.attributes["shape"]
    return x.reshape(x.shape[0], *(1,) * (len(shape) + 1 - x.ndim), *x.shape[1:]).expand(x.shape[0], *shape)


def sliced(node: Node, x: Tensor) -> Tensor:
    """A range of entries along an axis."""
    start, stop, step = node.attributes["range"]
    return x[(slice(None),) * (node.attributes["axis"] + 1) + (slice(start, stop, step),)]


def pad(node: Node, x: Tensor) -> Tensor:
    """Entries around the last axes: zeros, or those of x repeated."""
    pads, mode = node.attributes["pads"], node.attributes["mode"]
    if mode != "constant" and len(pads) == 2 * (x.ndim - 1):  # torch would take the samples for channels, of which
        return F.pad(x.unsqueeze(1), pads, mode=mode).squeeze(1)  # there have to be some
    return F.pad(x, pads, mode=mode)


def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """x from zero on, x · weight below."""
    assert node.weight is not None
    return torch.where(x >= 0, x, x * node.weight)


def softplus(node: Node, x: Tensor) -> Tensor:
    """log(1 + exp(x)) up to the threshold, x itself above it."""
    return torch.where(x > node.attributes["threshold"], x, torch.logaddexp(x, x.new_zeros(())))


def shrink(node: Node, x: Tensor) -> Tensor:
    """x - shift above the limit, x + shift below -limit, 0 between."""
    limit, shift = node.attributes["limit"], node.attributes["shift"]
    return torch.where(x > limit, x - shift, torch.where(x < -limit, x + shift, 0.0))


def threshold(node: Node, x: Tensor) -> Tensor:
    """x above the limit, else a value."""
    return torch.where(x > node.attributes["limit"], x, node.attributes["value"])


def max_pool(node: Node, x: Tensor) -> Tensor:
    """The largest entry of each window."""
    a = node.attributes
    return _of_maps("max_pool", x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil"])
