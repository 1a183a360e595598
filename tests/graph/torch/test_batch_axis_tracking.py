"""Samples that leave axis 0 and come back are tracked; operations that mix them are refused."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph import bounded, trace
from proofmap.graph.torch.batch_axis_tracking import DISPLACED_CONVERTERS
from proofmap.graph.torch.operators.operator_table import CONVERTERS
from tests.graph.torch.side_by_side import SideBySide
from tests.models import Apply

pytestmark = pytest.mark.slow

Function = Callable[[Tensor], Tensor]  # inputs (N, 3, 4): rows of four features

ROWS, MATRIX = torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(-1, 1, 20).reshape(5, 4)
MASK = torch.tensor([[True, False, True], [True, True, False], [False, True, True]])


PLACES = torch.tensor([[[2, 0], [1, 1], [0, 2]], [[0, 0], [2, 1], [1, 2]]])
KERNELS = torch.linspace(-1, 1, 8).reshape(2, 1, 2, 2)
SERIES = torch.linspace(-1, 1, 27).reshape(3, 3, 3)


def normalised(x: Tensor, channels: int = 4) -> Tensor:
    """Batch norm of axis 1 with four or fewer channels."""
    numbers = torch.linspace(0.5, 2, channels).to(x)
    return F.batch_norm(x, numbers - 1, numbers, numbers.flip(0), numbers / 2)


def heads(x: Tensor) -> Tensor:
    """(N, 3, 4) -> (N · 2, 3, 2)."""
    return torch.unflatten(x, 2, (2, 2)).transpose(1, 2).reshape(-1, 3, 2)


def from_heads(x: Tensor) -> Tensor:
    return torch.unflatten(x, 0, (-1, 2)).transpose(1, 2).flatten(2)


def first(function: Function) -> Function:
    """Apply a function with the rows first: (3, N, 4)."""
    return lambda x: function(x.transpose(0, 1)).transpose(0, 1)


def folded(function: Function) -> Function:
    """Apply a function with heads merged into the samples."""
    return lambda x: from_heads(function(heads(x)))


def usual(x: Tensor) -> Tensor:
    """Attention as in vision transformers: queries, keys and values on the first axis."""
    q, k, v = torch.cat([x, x.flip(1), -x], 2).reshape(-1, 3, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
    return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(-1, 3, 4)


FUNCTIONS: dict[str, Function] = {
    "attention": usual,
    "entries": first(lambda x: x.tanh().exp() * 2 + x.sigmoid() / 3 - x.clamp(-0.5, 0.5)),
    "two branches": first(lambda x: x * x.flip(0)),
    "a constant": first(lambda x: x + ROWS[:, None].to(x)),
    "a constant for each sample": folded(lambda x: x + torch.ones(x.shape[0], 1, 1).to(x)),
    "a larger constant": lambda x: (x.transpose(0, 1) + torch.ones(2, 1, 1, 1).to(x)).permute(2, 0, 1, 3).flatten(2),
    "where": first(lambda x: torch.where(ROWS[:, None] > 0, x, 2 * x)),
    "masked_fill": first(lambda x: x.masked_fill(ROWS[:, None] > 0, 0.5)),
    "linear": first(lambda x: F.linear(x, MATRIX.to(x), torch.arange(5).to(x))),
    "a vector": lambda x: (x.transpose(0, 1) @ MATRIX[0].to(x)).t(),
    "as one matrix": lambda x: (x.transpose(0, 1).reshape(-1, 4) @ MATRIX.t().to(x)).reshape(3, -1, 5).transpose(0, 1),
    "matrix products": folded(lambda x: x @ x.transpose(1, 2) @ x),
    "of a constant": folded(lambda x: torch.ones(3, 3).to(x) @ x),
    "baddbmm": folded(lambda x: torch.baddbmm(torch.ones(1, 3, 3).to(x), x, x.transpose(1, 2), beta=0.5, alpha=2) @ x),
    "softmax": first(lambda x: x.softmax(0) + x.softmax(-1)),
    "softmax of a mask": folded(lambda x: (x @ x.mT).masked_fill(~MASK, -torch.inf).softmax(-1) @ x),
    "sdpa": folded(lambda x: F.scaled_dot_product_attention(x, 2 * x, x, attn_mask=MASK)),
    "norm": first(lambda x: F.layer_norm(x, (4,), MATRIX[1].to(x), MATRIX[2].to(x)) + F.rms_norm(x, (4,))),
    "means": lambda x: x.transpose(0, 1).mean(0) + x.permute(2, 0, 1).amax(0, keepdim=True).sum((0, 2))[:, None],
    "slices": first(lambda x: torch.cat([x[1:], x[:1], x[:, :, 2:].repeat_interleave(2, 2)[:, :, :4]], 0)),
    "a row": lambda x: x.transpose(0, 1)[-1] + x.permute(1, 2, 0)[0, 1][:, None],
    "all rows": lambda x: torch.stack(x.transpose(0, 1).unbind(0)[::-1], 1),
    "stack": lambda x: torch.stack([x.transpose(0, 1), x.transpose(0, 1) ** 2], 2).permute(1, 2, 0, 3).flatten(2),
    "split": first(lambda x: torch.cat(x.split([1, 3], 2)[::-1], 2) + torch.cat(x.chunk(2, 2), 2)),
    "expand": lambda x: x[:, :1].transpose(0, 1).expand(3, -1, -1).transpose(0, 1) + x,
    "shapes": lambda x: x.unsqueeze(0).permute(2, 0, 3, 1).squeeze(1).flatten(0, 1).t().unflatten(1, (3, 4)),
    "zeros": first(lambda x: torch.cat([x, torch.zeros_like(x)], 0)),
    "cumsum": first(lambda x: x.cumsum(0)),
    "vector norms": folded(lambda x: x / (x.norm(dim=-1, keepdim=True) + 1) + x.norm(1, 1)[:, None]),
    "gather": folded(lambda x: x.gather(-1, torch.tensor([[1, 0], [0, 0], [1, 1]]).expand(x.shape[0], 3, 2))),
    "gather of heads": folded(lambda x: x.gather(1, PLACES.repeat(x.shape[0] // 2, 1, 1))),
    "batch norm of tokens": lambda x: normalised(x.flatten(0, 1)).reshape(-1, 3, 4),
    "batch norm of heads": folded(lambda x: normalised(x, 3)),
    "convolutions of frames": lambda x: F.conv2d(x.reshape(-1, 1, 2, 2), KERNELS.to(x), padding=1).reshape(-1, 3, 18),
    "convolutions of heads": folded(lambda x: F.conv1d(x, SERIES.to(x), padding=1)),
}
TOGETHER = SideBySide(FUNCTIONS, 3, 4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_equals_torch(name: str) -> None:
    TOGETHER.check(name)


def test_common_attention_becomes_cheap_nodes() -> None:
    """The graph has no lists of positions; splitting and joining heads costs nothing."""
    graph = bounded(trace(Apply(lambda x: usual(x).flatten(1)), torch.rand(1, 3, 4)))
    kinds = [node.op for node in graph.nodes]
    assert "index" in kinds  # the flip
    assert kinds.count("index") == 1
    assert (kinds.count("contract"), kinds.count("softmax"), kinds.count("slice")) == (2, 1, 3)
    there_and_back = trace(Apply(lambda x: x.transpose(0, 1).tanh().transpose(0, 1).flatten(1)), torch.rand(1, 3, 4))
    assert [node.op for node in there_and_back.nodes if node.op != "reshape"] == ["input", "tanh"]


MIXED: dict[str, Function] = {
    "softmax": lambda x: x.transpose(0, 1).softmax(1).transpose(0, 1),
    "softmax of heads": lambda x: from_heads(heads(x).softmax(0)),
    "mean": lambda x: x - x.transpose(0, 1).mean(1),
    "sum of all": lambda x: x - x.transpose(0, 1).sum(),
    "norm": lambda x: F.layer_norm(x.permute(1, 2, 0), (4, x.shape[0])).permute(2, 0, 1),
    "linear": lambda x: F.linear(x.permute(1, 2, 0), torch.ones(x.shape[0], x.shape[0])).permute(2, 0, 1),
    "product": lambda x: (x.permute(1, 0, 2) @ x.permute(1, 2, 0)).permute(1, 0, 2),
    "product with a constant": lambda x: (torch.ones(x.shape[0], x.shape[0]) @ x.permute(1, 0, 2)).permute(1, 0, 2),
    "attention over samples": first(lambda x: F.scaled_dot_product_attention(x, x, x)),
    "another order": lambda x: x.permute(1, 2, 0) + x.permute(2, 1, 0).permute(1, 0, 2).reshape(3, 4, -1).flip(2),
    "two places": lambda x: (x.transpose(0, 1)[:1] + x[:, :1]).transpose(0, 1),
    "a constant": lambda x: (x.transpose(0, 1) + torch.arange(x.shape[0])[:, None]).transpose(0, 1),
    "one sample": lambda x: x.transpose(0, 1)[:, 0] + x.mean(1, keepdim=True),
    "a slice": lambda x: torch.cat([x.transpose(0, 1)[:, 1:], x.transpose(0, 1)[:, :1]], 1).transpose(0, 1),
    "joined": lambda x: torch.cat([x.transpose(0, 1), x.transpose(0, 1)], 1).transpose(0, 1),
    "folded otherwise": lambda x: heads(x).reshape(2, -1, 3, 2).transpose(0, 1).flatten(1),
    "not back": lambda x: x.transpose(0, 1).flatten(1),
    "cumsum": lambda x: x.transpose(0, 1).cumsum(1).transpose(0, 1),
    "flip": lambda x: x.transpose(0, 1).flip(1).transpose(0, 1),
    "vector norm": lambda x: (x.transpose(0, 1) / x.transpose(0, 1).norm(dim=1, keepdim=True)).transpose(0, 1),
    "gather": first(lambda x: x.gather(1, torch.zeros(x.shape, dtype=torch.long))),
    "gather of other entries": folded(lambda x: x.gather(1, torch.arange(x.numel()).reshape(x.shape) % 7 % 3)),
    "convolution": lambda x: F.conv1d(x.permute(1, 2, 0), torch.ones(4, 4, 3).to(x), padding=1).permute(2, 0, 1),
}


@pytest.mark.parametrize("function", MIXED.values(), ids=MIXED)
def test_operations_that_mix_displaced_samples_are_refused(function: Function) -> None:
    with pytest.raises(ModelError, match="mixes the samples of a batch, expected every sample to be computed"):
        trace(Apply(lambda x: function(x).flatten(1)), torch.rand(1, 3, 4))


def test_every_operator_on_displaced_samples_has_a_converter() -> None:
    assert {*DISPLACED_CONVERTERS} <= {*CONVERTERS}
