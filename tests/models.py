"""Small models for the tests of the whole library, with at least one for every operation that has a rule.

    from tests.models import MODELS, Case, graph_of

A model in the table is part of every test over the table.
"""

import atexit
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proofmap.graph import Graph, trace

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A model with the shape and the range [low, high] of its inputs; it is also defined slightly outside the range."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return the model in evaluation mode, with the same weights at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(sum(map(ord, self.name)))
            model = self.make()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                    _train_a_little(module)
        return model.to(dtype).eval()

    def inputs(self, n: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
        """Return points (n, *shape), the same in every precision."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(n, *self.shape, generator=generator)
        return (self.low + (self.high - self.low) * drawn).to(dtype)


def _train_a_little(norm: nn.Module) -> None:
    """Set statistics and weights to values as after training: no zeros, no ones."""
    for name, tensor in (*norm.named_parameters(), *norm.named_buffers()):
        if name == "running_var":
            nn.init.uniform_(tensor, 0.5, 2.0)
        elif tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.3, 1.2) if name == "weight" else nn.init.uniform_(tensor, -0.5, 0.5)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Join(nn.Module):
    """Join two branches of one input."""

    def __init__(self, join: Callable[[Tensor, Tensor], Tensor], left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.join = join
        self.left = left
        self.right = right

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.left(x), self.right(x))


class Constants(nn.Module):
    """A function of the input and of constants drawn once."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for k, shape in enumerate(shapes):
            self.register_buffer(f"constant{k}", 0.5 + torch.rand(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.buffers())


class Attention(nn.Module):
    """Attention with two heads over tokens (T, 4), added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.parts = nn.Linear(4, 12)
        self.end = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.parts(self.norm(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in parts)
        out: Tensor = x + self.end(((query @ key.transpose(-1, -2)).softmax(-1) @ value).transpose(1, 2).flatten(2))
        return out


class Residual(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        same = stride == 1 and channels == out
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y)


class Inverted(nn.Module):
    """A mobile block: widen, depthwise filters, narrow, add."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


MODELS: dict[str, Case] = {}


def _add(name: str, make: Callable[[], nn.Module], shape: tuple[int, ...], low: float, high: float) -> None:
    assert name not in MODELS, f"two models are named {name!r}"
    MODELS[name] = Case(name, make, shape, low, high)


def _body(
    name: str, shape: tuple[int, ...], *layers: Callable[[], nn.Module], low: float = -1.0, high: float = 1.0
) -> None:
    """Return the layers with a dense layer to three logits at the end."""

    def make() -> nn.Module:
        body = nn.Sequential(*(layer() for layer in layers), nn.Flatten())
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once that an even kernel with padding="same" is slow
            features = body.eval()(torch.full((1, *shape), (low + high) / 2)).shape[1]
        return nn.Sequential(body, nn.Linear(features, 3))

    _add(name, make, shape, low, high)


def _function(name: str, shape: tuple[int, ...], function: Function, *, low: float = -1.0, high: float = 1.0) -> None:
    _body(name, shape, lambda: Apply(function), low=low, high=high)


def _activation(name: str, layer: Callable[[], nn.Module]) -> None:
    """Add a model: dense, activation, dense."""
    _body(name, (5,), lambda: nn.Linear(5, 7), layer)


def _image(name: str, *layers: Callable[[], nn.Module], shape: tuple[int, ...] = (2, 4, 4)) -> None:
    """Add a model: layers on a small map, then a ReLU."""
    _body(name, shape, *layers, nn.ReLU)


# --- products with weights ---

_add("linear", lambda: nn.Linear(6, 4), (6,), -1.0, 1.0)
_add("linear without bias", lambda: nn.Linear(6, 4, bias=False), (6,), -1.0, 1.0)
_body("linear over rows", (3, 4), lambda: nn.Linear(4, 5), nn.ReLU)
_body("matmul right", (3, 4), lambda: Constants(lambda x, w: x @ w, (4, 2)), nn.ReLU)
_body("matmul left", (3, 4), lambda: Constants(lambda x, w: (w - 1) @ x, (5, 3)), nn.ReLU)
_body("matmul stack", (2, 3, 4), lambda: Constants(lambda x, w, v: v @ (x @ (w - 1)), (2, 4, 3), (2, 3)), nn.ReLU)
_body("matmul vectors", (3, 4), lambda: Constants(lambda x, w, v: torch.cat([x @ w, v @ x], 1), (4,), (3,)), nn.ReLU)
_body("conv1d", (2, 9), lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.ReLU)
_image("conv2d", lambda: nn.Conv2d(2, 3, 3))
_image("conv2d stride", lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1))
_image("conv2d dilation", lambda: nn.Conv2d(2, 3, 3, padding=2, dilation=2))
_image("conv2d groups", lambda: nn.Conv2d(4, 6, (3, 2), padding=(1, 0), groups=2), shape=(4, 3, 3))
_image("conv2d same", lambda: nn.Conv2d(2, 3, (2, 4), padding="same"))
_image("conv2d reflect", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), shape=(2, 3, 3))
_image("conv2d circular", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), shape=(2, 3, 3))
_image("conv3d", lambda: nn.Conv3d(1, 2, 2, padding=1, stride=(1, 2, 2)), shape=(1, 2, 4, 4))
_body("conv_transpose1d", (2, 4), lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), nn.ReLU)
_image("conv_transpose2d", lambda: nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1), shape=(2, 2, 3))
_image("conv_transpose2d groups", lambda: nn.ConvTranspose2d(4, 6, 2, dilation=2, groups=2), shape=(4, 1, 2))
_image("conv_transpose3d", lambda: nn.ConvTranspose3d(1, 2, 2, stride=2), shape=(1, 2, 1, 2))

# --- normalisation and constants ---

_image("norm after conv", lambda: nn.Conv2d(2, 3, 3, padding=1), lambda: nn.BatchNorm2d(3))
_image("norm before conv", lambda: nn.BatchNorm2d(2), lambda: nn.Conv2d(2, 3, 3, bias=False))
_image("norm before padded conv", lambda: nn.BatchNorm2d(2), lambda: nn.Conv2d(2, 3, 3, padding=1))
_image(
    "norm after conv_transpose",
    lambda: nn.ConvTranspose2d(4, 4, 2, groups=2),
    lambda: nn.BatchNorm2d(4),
    shape=(4, 2, 3),
)
_body(
    "norm between linears", (5,), lambda: nn.Linear(5, 6), lambda: nn.BatchNorm1d(6), nn.ReLU, lambda: nn.BatchNorm1d(6)
)
_image("norm without weights", lambda: nn.BatchNorm2d(2, affine=False))
_body("norm of rows", (3, 4), lambda: nn.BatchNorm1d(3), nn.ReLU)
_image(
    "scale and shift",
    lambda: Constants(lambda x, m, s: (x - m) / s, (2, 1, 1), (1, 2, 1, 1)),
    lambda: nn.Conv2d(2, 2, 2),
)
_body("scale by scalars", (4,), lambda: Apply(lambda x: F.relu(3 - 2 * x) / 4 - (-x + 1)))
_body("constants broadcast", (1, 4), lambda: Constants(lambda x, c: x * c + 0.5, (3, 1)), nn.ReLU)
_body("constant of every sample", (4,), lambda: Apply(lambda x: F.relu(x - torch.ones_like(x) / 3)))
_body("whole numbers", (4,), lambda: Apply(lambda x: F.relu(x * torch.arange(4))))

# --- branches ---

_body("add", (4,), lambda: Join(torch.add, nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 5), nn.ReLU())))
_body("add broadcast", (4,), lambda: Join(torch.add, nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 1), nn.ReLU())))
_body("add with factor", (4,), lambda: Apply(lambda x: torch.add(x, F.relu(x), alpha=0.3)))
_body("sub with factor by place", (4,), lambda: Apply(lambda x: torch.ops.aten.sub.Scalar(F.relu(x), 0.8, 2.0)))
_body("sub", (4,), lambda: Join(torch.sub, nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 5), nn.ReLU())))
_body("product", (4,), lambda: Join(torch.mul, nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())))
_function(
    "product on a map", (2, 3, 3), lambda x: F.relu(x) * F.conv2d(x, x.new_ones(2, 2, 2, 2), padding=1)[..., 1:, 1:]
)
_function("matrix product", (2, 3), lambda x: F.relu(x) @ x.transpose(1, 2))
_function("softmax", (3, 4), lambda x: (4 * x).softmax(1) - x.log_softmax(2))
_body("attention", (3, 4), Attention)
_body("maximum", (4,), lambda: Join(torch.maximum, nn.Linear(4, 5), nn.Linear(4, 5)))
_body("minimum", (4,), lambda: Join(torch.minimum, nn.Linear(4, 5), nn.Linear(4, 1)))
_body("maximum with constants", (4,), lambda: Constants(lambda x, c: torch.maximum(x, c - 1).clamp(max=0.4), (4,)))
_body("minimum with constants", (4,), lambda: Constants(lambda x, c: torch.minimum(x, c - 1), (4,)))
_body(
    "concat",
    (4,),
    lambda: Join(lambda a, b: torch.cat([a, b], 1), nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 3), nn.ReLU())),
)
_function(
    "concat with constants",
    (2, 2),
    lambda x: F.relu(torch.cat([x.new_ones(x.shape[0], 1, 2), x, torch.zeros_like(x)], 1)),
)
_body("stack", (4,), lambda: Join(lambda a, b: torch.stack([a, b], -1), nn.Linear(4, 3), nn.Linear(4, 3)), nn.Tanh)
_function("split and chunk", (6,), lambda x: F.relu(x.split([1, 5], 1)[1][:, :3] - x.chunk(2, 1)[0]))

# --- entries and shapes ---

_function("slice", (6, 3), lambda x: F.relu(x[:, 1:6:2, -2:]))
_function("select", (6, 3), lambda x: F.relu(x[:, 2] + x[..., 1, :]))
_function("index", (4, 4), lambda x: F.relu(x[:, [0, 3]][:, :, torch.tensor([True, False, True, False])]))
_function("index pairs", (4, 4), lambda x: F.relu(x[:, torch.tensor([0, 2]), torch.tensor([1, -1])]))
_function("gather", (4, 2), lambda x: F.relu(x.gather(1, torch.tensor([[[0, 1], [3, 3]]]).expand(x.shape[0], 2, 2))))
_function("flip and roll", (4, 3), lambda x: F.relu(x.flip(1).roll(1, 2)))
_function("repeat", (3,), lambda x: F.relu(x.repeat(1, 2) + x.repeat_interleave(2, 1)))
_function(
    "reshape", (4, 3), lambda x: F.relu(x.reshape(-1, 2, 6).flatten(1).unflatten(1, (3, 4)).unsqueeze(1).squeeze(1))
)
_function("permute", (2, 3, 4), lambda x: F.relu(x.permute(0, 3, 1, 2).transpose(1, 2).movedim(3, 1)[:, :1]))
_function("expand", (1, 3), lambda x: F.relu(x.expand(-1, 4, 3)))
_image(
    "pixel shuffle", lambda: nn.Conv2d(2, 4, 2), lambda: nn.PixelShuffle(2), lambda: nn.Conv2d(1, 2, 3), shape=(2, 3, 3)
)
_image("pixel unshuffle", lambda: nn.PixelUnshuffle(2), lambda: nn.ChannelShuffle(2), shape=(1, 4, 4))
_function("unfold", (1, 4, 4), lambda x: F.relu(F.unfold(x, 2, stride=2)))
_image("pad", lambda: nn.ConstantPad2d((1, 0, 2, 0), 0.5), lambda: nn.ZeroPad2d((0, 1, -1, 0)), shape=(2, 3, 3))
_image("pad reflect", lambda: nn.ReflectionPad2d((1, 2, 0, 1)), shape=(2, 3, 3))
_image("pad replicate", lambda: nn.ReplicationPad2d(1), lambda: nn.Conv2d(2, 2, 3, stride=2), shape=(2, 3, 3))
_body(
    "pad three axes",
    (2, 2, 2),
    lambda: nn.Conv2d(2, 2, 1),
    nn.Tanh,
    lambda: Apply(lambda x: F.pad(x, (1, 0, 1, 1, 0, 1), "reflect")),
    nn.Tanh,
)
_body("pad all axes", (3, 2), nn.Tanh, lambda: Apply(lambda x: F.pad(x, (1, 0, 2, 1), "replicate")), nn.Tanh)
_image("pad circular", lambda: nn.CircularPad2d((1, 0, 0, 2)), shape=(1, 4, 4))
_image("upsample", lambda: nn.Upsample(scale_factor=2), lambda: nn.Conv2d(2, 2, 2), shape=(2, 2, 3))
_image("upsample to size", lambda: nn.Upsample(size=(5, 4)), shape=(2, 3, 3))
_image(
    "upsample by a fraction",
    lambda: nn.Upsample(scale_factor=1.7),
    lambda: nn.Upsample(scale_factor=1.5, mode="nearest-exact"),
    shape=(1, 3, 3),
)
_body("dropout and identity", (4,), lambda: nn.Linear(4, 5), nn.Dropout, nn.Identity, nn.ReLU, nn.AlphaDropout)

# --- constant positions, masks and factors ---

_MASK = torch.tensor([[True, False, True], [False, False, True]])


def _written(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:, ::2] = F.relu(x[:, :-1, 1:])
    y[:, 0] = 0.5
    y[:, [1, 2], 1] -= 0.3
    return y


_function(
    "where and lerp",
    (2, 3),
    lambda x: torch.lerp(torch.where(_MASK, F.relu(x), -x), x.flip(1), -0.3).masked_fill(~_MASK[0], 0.3).tanh(),
)
_function("slice assignment", (3, 3), lambda x: F.relu(_written(x)))
_body(
    "cumsum and einsum",
    (2, 3, 2),
    lambda: Constants(
        lambda x, u, v: F.relu(torch.einsum("nhij,hjk,ki->nkh", x.cumsum(2).tril(), u - 1, v)), (2, 2, 3), (3, 3)
    ),
)
_function("fold", (8, 6), lambda x: F.relu(F.fold(F.relu(x), (3, 4), 2, stride=(2, 1), padding=(1, 0))))
_image(
    "upsample smoothly",
    lambda: nn.Upsample(size=(4, 3), mode="bicubic", align_corners=True),
    lambda: nn.Upsample(scale_factor=(1, 1.7), mode="bilinear"),
    lambda: nn.Conv2d(1, 2, 3),
    shape=(1, 2, 3),
)

# --- sums and pools ---

_image("mean over the map", lambda: nn.Conv2d(2, 4, 2), nn.ReLU, lambda: Apply(lambda x: x.mean((2, 3))))
_function("sum", (2, 3, 4), lambda x: F.relu(x.sum((1, 3), keepdim=True) - x.sum(2, keepdim=True)))
_body("avg_pool1d", (2, 9), lambda: nn.AvgPool1d(3, 2, 1), nn.ReLU)
_image("avg_pool2d", lambda: nn.AvgPool2d(2))
_image("avg_pool2d padded", lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False))
_image("avg_pool2d ceil", lambda: nn.AvgPool2d((2, 3), 2, (1, 1), ceil_mode=True))
_image("avg_pool2d divisor", lambda: nn.AvgPool2d(2, 1, divisor_override=3))
_image("avg_pool2d negative divisor", lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=-3))
_image("avg_pool3d", lambda: nn.AvgPool3d(2, 1), shape=(1, 3, 3, 3))
_body("avg_pool without channels", (4, 4), lambda: nn.AvgPool2d(2), nn.ReLU)
_body("adaptive_avg_pool1d", (2, 7), lambda: nn.AdaptiveAvgPool1d(3), nn.ReLU)
_image("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d((2, 3)))
_image("global average", lambda: nn.Conv2d(2, 4, 2), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1))
_body("max_pool1d", (2, 9), lambda: nn.MaxPool1d(3, 2), nn.Tanh)
_image("max_pool2d", lambda: nn.Conv2d(2, 3, 2), lambda: nn.MaxPool2d(2))
_image("max_pool2d stride", lambda: nn.MaxPool2d(3, 1))
_image("max_pool2d padded", lambda: nn.MaxPool2d(3, 2, 1), lambda: nn.Conv2d(2, 2, 2))
_image("max_pool2d dilation", lambda: nn.MaxPool2d(2, 1, dilation=2))
_image("max_pool2d ceil", lambda: nn.MaxPool2d(2, ceil_mode=True), lambda: nn.Conv2d(2, 2, 2))
_image("max_pool3d", lambda: nn.MaxPool3d(2, 1), shape=(1, 3, 3, 3))
_image("adaptive_max_pool2d", lambda: nn.AdaptiveMaxPool2d((2, 3)))
_function("max over an axis", (3, 4), lambda x: x.amax(1) + x.max(1).values - x.min(1)[0])
_function("min over axes", (2, 3, 2), lambda x: x.amin((1, 3)))

# --- functions of one scalar ---

_activation("relu", nn.ReLU)
_activation("leaky_relu", lambda: nn.LeakyReLU(0.2))
_activation("prelu", nn.PReLU)
_image("prelu for each channel", lambda: nn.Conv2d(2, 3, 2), lambda: nn.PReLU(3), lambda: nn.Conv2d(3, 2, 2))
_activation("relu6", nn.ReLU6)
_activation("hardtanh", lambda: nn.Hardtanh(-0.3, 0.6))
_activation("clamp", lambda: Apply(lambda x: x.clamp(min=-0.2).clamp(max=0.5)))
_activation("clamp by tensors", lambda: Constants(lambda x, c: torch.clamp(x, -c / 4, c / 4), (7,)))
_activation("elu", lambda: nn.ELU(0.7))
_activation("elu upwards", lambda: nn.ELU(-0.7))
_activation("selu", nn.SELU)
_activation("celu", lambda: nn.CELU(0.5))
_activation("softplus", nn.Softplus)
_activation("softplus with beta", lambda: nn.Softplus(2.5))
_activation("softplus with a threshold", lambda: nn.Softplus(threshold=0))
_activation("softshrink", lambda: nn.Softshrink(0.2))
_activation("hardshrink", lambda: nn.Hardshrink(0.2))
_activation("threshold", lambda: nn.Threshold(0.1, -0.4))
_activation("threshold like relu", lambda: nn.Threshold(0.0, 0.0))
_activation("rrelu", nn.RReLU)
_activation("mish", nn.Mish)
_activation("softsign", nn.Softsign)
_activation("tanhshrink", nn.Tanhshrink)
_activation("log_sigmoid", nn.LogSigmoid)
_activation("sigmoid", nn.Sigmoid)
_activation("tanh", nn.Tanh)
_activation("round", lambda: Apply(lambda x: torch.round(3 * x) / 3))
_activation("floor", lambda: Apply(lambda x: torch.floor(3 * x) / 3))
_activation("ceil", lambda: Apply(lambda x: torch.ceil(3 * x) / 3))
_activation("trunc", lambda: Apply(lambda x: torch.trunc(4 * x) / 4))
_activation("sign", lambda: Apply(torch.sign))
_activation("sgn", lambda: Apply(torch.sgn))
_activation("binarised", lambda: Apply(lambda x: torch.sign(torch.sign(x) + 0.1)))
_activation("sin", lambda: Apply(lambda x: torch.sin(6 * x)))
_activation("cos", lambda: Apply(lambda x: torch.cos(4 * x)))
_activation("erf", lambda: Apply(torch.erf))
_activation("gelu", nn.GELU)
_activation("gelu by tanh", lambda: nn.GELU("tanh"))
_activation("silu", nn.SiLU)
_activation("hardswish", nn.Hardswish)
_activation("hardsigmoid", nn.Hardsigmoid)
_activation("abs", lambda: Apply(torch.abs))
_activation("square", lambda: Apply(torch.square))
_activation("product with itself", lambda: Apply(lambda x: x * x + x**2))
_activation("exp", lambda: Apply(torch.exp))
_function("log", (5,), torch.log, low=0.5, high=2.0)
_function("sqrt", (5,), torch.sqrt, low=0.5, high=2.0)
_function("reciprocal", (5,), torch.reciprocal, low=0.5, high=2.0)
_function("quotient", (5,), lambda x: 3 / (x + 1) - x.rsqrt() + x / 2.5, low=0.5, high=2.0)
_activation("log of softplus", lambda: Apply(lambda x: (F.softplus(x) + 0.5).log()))

# gates as exporters and users write them by hand
_activation("silu by hand", lambda: Apply(lambda x: x * torch.sigmoid(x)))
_activation("swish by hand", lambda: Apply(lambda x: 2 * x * torch.sigmoid(1.702 * x)))
_activation("gelu by hand", lambda: Apply(lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))))
_activation("mish by hand", lambda: Apply(lambda x: 2 * x * torch.tanh(F.softplus(x))))
_activation("softsign by hand", lambda: Apply(lambda x: 3 * x / (2 + abs(4 * x)) - x / (-1 - x.abs())))
_activation("hardswish by hand", lambda: Apply(lambda x: x * F.relu6(x + 3) / 6 + x * F.hardsigmoid(x)))

# --- deeper ---

_add("deep relu", lambda: _dense(nn.ReLU), (12,), 0.0, 1.0)
_add("deep sigmoid", lambda: _dense(nn.Sigmoid), (12,), 0.0, 1.0)
_add("deep conv", lambda: nn.Sequential(
    nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 2),
    nn.ReLU(), nn.Flatten(), nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 5),
), (1, 5, 5), 0.0, 1.0)  # fmt: skip
_add("deep pooled", lambda: nn.Sequential(
    nn.Conv2d(1, 2, 3, padding=1), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 4, 2), nn.Tanh(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(4, 4),
), (1, 6, 6), 0.0, 1.0)  # fmt: skip
_add("deep residual", lambda: nn.Sequential(
    nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU(), Residual(2, 2, 1), Residual(2, 3, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4),
), (1, 5, 5), 0.0, 1.0)  # fmt: skip
_add("deep mobile", lambda: nn.Sequential(
    nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(1, 2, 3, stride=2, bias=False), nn.BatchNorm2d(2), nn.ReLU6(),
    Inverted(2, 4), Inverted(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(2, 4),
), (1, 6, 6), 0.0, 1.0)  # fmt: skip


def _dense(activation: Callable[[], nn.Module]) -> nn.Module:
    pairs = itertools.pairwise((12, 16, 12, 10))
    layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(10, 4))


@cache
def _traced(name: str) -> Graph:
    """Return a graph from the cache that all test processes share; the first process traces it."""
    case, file = MODELS[name], _shared() / f"{list(MODELS).index(name)}.pt"
    graph: Graph
    with suppress(FileNotFoundError):
        graph = torch.load(file, weights_only=False)
        return graph
    graph = trace(case.build(torch.float64), case.inputs(1, torch.float64))
    written = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError, RuntimeError):  # another process may have finished and removed the folder
        torch.save(graph, written)
        written.replace(file)
    return graph


@cache
def _shared() -> Path:
    """Return a folder that all processes of a test run share until the last one ends."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    folder = Path(tempfile.gettempdir(), f"proofmap-graphs-{run}")
    folder.mkdir(mode=0o700, exist_ok=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def graph_of(case: Case, dtype: torch.dtype = torch.float32) -> Graph:
    """Return the case's graph, traced once for each session."""
    return _traced(case.name).to(torch.device("cpu"), dtype)


# For slow tests: one model in three is in the slow set, and the others are in the complete set.
SHARED = [
    pytest.param(case, id=case.name, marks=pytest.mark.whole if place % 3 else pytest.mark.slow)
    for place, case in enumerate(MODELS.values())
]
