"""Forward functions of operations: the value of a node from the values of its inputs.

Tensors carry the sample dimension in front, so an axis `a` of a sample is the tensor's axis `a + 1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from proofmap.graph.ir import Node


def _add_bias(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _spatial_function(function: str, x: Tensor, *args: Any) -> Tensor:
    """Call torch's function of that name for as many spatial axes as x has."""
    value: Tensor = getattr(F, f"{function}{x.ndim - 2}d")(x, *args)
    return value


def linear(node: Node, x: Tensor) -> Tensor:
    """Return x W' + b over the last axis, W (out, in)."""
    assert node.weight is not None
    return F.linear(x, node.weight, node.bias)


def matmul(node: Node, x: Tensor) -> Tensor:
    """Return W x + b or x W + b over the last two axes."""
    assert node.weight is not None
    value = node.weight @ x if node.attributes["side"] == "left" else x @ node.weight
    return _add_bias(value, node.bias)


def conv(node: Node, x: Tensor) -> Tensor:
    """Return torch's convolution."""
    a, weight = node.attributes, node.weight
    assert weight is not None
    if x.shape[1] == 1:  # the stride of an axis of 1 is arbitrary; with some, oneDNN in torch 2.13 reads out of bounds
        x = x.contiguous().view(-1).view(x.shape)
    if x.is_cuda and 1 < a["groups"] == x.shape[1]:  # depthwise: ten times slower with channels last
        x, weight = x.contiguous(), weight.contiguous()
    bias = None if node.bias is None else node.bias.flatten()
    return _spatial_function("conv", x, weight, bias, a["stride"], a["padding"], a["dilation"], a["groups"])


def conv_transpose(node: Node, x: Tensor) -> Tensor:
    """Return torch's transposed convolution."""
    a, bias = node.attributes, None if node.bias is None else node.bias.flatten()
    settings = (a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"])
    return _spatial_function("conv_transpose", x, node.weight, bias, *settings)


def clamp(node: Node, x: Tensor) -> Tensor:
    """Return min(max(x, low), high), with derivative 0 at low and high, as torch's ReLU6 has at 0 and 6.

    The gradient of `torch.clamp` takes ten times as long: on a CPU, a third of the gradient of a ReLU6 network.
    """
    return F.hardtanh(x, node.attributes["low"], node.attributes["high"])


def affine(node: Node, x: Tensor) -> Tensor:
    """Return x · weight + bias, both broadcast to x."""
    return _add_bias(x if node.weight is None else x * node.weight, node.bias)


def keep(node: Node, x: Tensor) -> Tensor:
    """Return x · weight + bias for a weight of zeros and ones. Entries with weight 0 may be infinite or NaN."""
    assert node.weight is not None
    return _add_bias(torch.where(node.weight != 0, x, 0.0), node.bias)


def add(node: Node, *xs: Tensor) -> Tensor:
    """Return the sum of the inputs."""
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def sum_axes(node: Node, x: Tensor) -> Tensor:
    """Return the sum over axes."""
    axes = [axis + 1 for axis in node.attributes["axes"]]
    return x.sum(axes, keepdim=node.attributes["keepdim"])


def avg_pool(node: Node, x: Tensor) -> Tensor:
    """Return the mean or the sum of each window."""
    a = node.attributes
    extra = () if a["mean"] else (1,)  # the sum of each window
    return _spatial_function(
        "avg_pool", x, a["kernel"], a["stride"], a["padding"], a["ceil"], a["count_padding"], *extra
    )


def adaptive_avg_pool(node: Node, x: Tensor) -> Tensor:
    """Return means over windows, as many as the attribute `size` says."""
    return _spatial_function("adaptive_avg_pool", x, node.attributes["size"])


def expand(node: Node, x: Tensor) -> Tensor:
    """Repeat axes of length one."""
    shape = node.attributes["shape"]
    return x.reshape(x.shape[0], *(1,) * (len(shape) + 1 - x.ndim), *x.shape[1:]).expand(x.shape[0], *shape)


def slice_axis(node: Node, x: Tensor) -> Tensor:
    """Return a range of entries along an axis."""
    start, stop, step = node.attributes["range"]
    return x[(slice(None),) * (node.attributes["axis"] + 1) + (slice(start, stop, step),)]


def pad(node: Node, x: Tensor) -> Tensor:
    """Pad the last axes with zeros, or with entries of x."""
    pads, mode = node.attributes["pads"], node.attributes["mode"]
    if mode != "constant" and len(pads) == 2 * (x.ndim - 1):  # torch would read the samples as channels, so one
        return F.pad(x.unsqueeze(1), pads, mode=mode).squeeze(1)  # channel is added
    return F.pad(x, pads, mode=mode)


def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """Return x for x >= 0, x · weight below."""
    assert node.weight is not None
    return torch.where(x >= 0, x, x * node.weight)


def softplus(node: Node, x: Tensor) -> Tensor:
    """Return log(1 + exp(x)) up to the threshold, and x above it."""
    return torch.where(x > node.attributes["threshold"], x, torch.logaddexp(x, x.new_zeros(())))


def shrink(node: Node, x: Tensor) -> Tensor:
    """Return x - shift above the limit, x + shift below -limit, and 0 between."""
    limit, shift = node.attributes["limit"], node.attributes["shift"]
    return torch.where(x > limit, x - shift, torch.where(x < -limit, x + shift, 0.0))


def round_steps(node: Node, x: Tensor) -> Tensor:
    """Return clamp(round(x / step), low, high), with ties to even.

    The gradient is that of clamp(x / step, low, high), the straight-through estimator: the true one is 0 everywhere.
    """
    a = node.attributes
    scaled: Tensor = x / a["step"]
    return _with_gradient_of(scaled.round().clamp(a["low"], a["high"]), x, scaled.clamp(a["low"], a["high"]))


def floor(node: Node, x: Tensor) -> Tensor:
    """Return the floor. The gradient is that of x, the straight-through estimator: the true one is 0 everywhere."""
    return _with_gradient_of(x.floor(), x, x)


def sign(node: Node, x: Tensor) -> Tensor:
    """Return -1, the attribute `at_zero` or 1.

    The gradient is that of asinh(x), which is largest at the jump: the true one is 0 everywhere.
    """
    value = torch.where(x == 0, node.attributes["at_zero"], x.sign())
    return _with_gradient_of(value, x, x.asinh()) if torch.is_grad_enabled() and x.requires_grad else value


def _with_gradient_of(value: Tensor, x: Tensor, smooth: Tensor) -> Tensor:
    """Return the value, with the gradient of `smooth` with respect to x."""
    if torch.is_grad_enabled() and x.requires_grad:
        return value.detach() + (smooth - smooth.detach())
    return value


def threshold(node: Node, x: Tensor) -> Tensor:
    """Return x above the limit, else a constant value."""
    return torch.where(x > node.attributes["limit"], x, node.attributes["value"])


def max_pool(node: Node, x: Tensor) -> Tensor:
    """Return the maximum of each window."""
    a = node.attributes
    return _spatial_function("max_pool", x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil"])
