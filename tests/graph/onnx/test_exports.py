"""Transformers, recurrent networks and gates as torch's two exporters write them: equal logits, sound bounds."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proofmap import Ball
from proofmap.bounds import Backward
from proofmap.graph import bounded, load
from tests.bounds.setting import both_sides
from tests.graph.onnx.files import run

SIZE, TOKENS = 8, 5


class Sequence(nn.Module):
    """A recurrent layer, and a head on its last output or on its last state."""

    def __init__(self, kind: Callable[..., nn.Module], *, state: bool = False, **how: Any) -> None:
        super().__init__()
        self.layer, self.state = kind(SIZE, 6, batch_first=True, **how), state
        self.head = nn.Linear(6 * (1 + bool(how.get("bidirectional"))), 3)

    def forward(self, x: Tensor) -> Tensor:
        y, last = self.layer(x)
        state: Tensor = self.head(last[-1] if self.state else y[:, -1])
        return state


class Encoder(nn.Module):
    """Torch's transformer layer, with the tokens or the samples first."""

    def __init__(self, *, first: bool, activation: str) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(SIZE, 2, 12, 0.0, activation, batch_first=first)
        self.layers, self.first = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), first
        self.head = nn.Linear(SIZE, 3)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.head(self.layers(x if self.first else x.transpose(0, 1)).mean(1 if self.first else 0))
        return value


class Causal(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.head = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.parts(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        value: Tensor = self.head(y.transpose(1, 2).flatten(2).mean(1))
        return value


class Block(nn.Module):
    """A block as in verification benchmarks: batch norm instead of layer norm, softmax attention, a ReLU network."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.norms = nn.ModuleList(nn.BatchNorm1d(SIZE) for _ in range(2))
        self.dense = nn.Sequential(nn.Linear(SIZE, 12), nn.ReLU(), nn.Linear(12, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x.transpose(1, 2)).transpose(1, 2)
        n, tokens, _ = y.shape
        q, k, v = self.parts(y).reshape(n, tokens, 3, 2, SIZE // 2).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * (SIZE // 2) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, tokens, SIZE))
        value: Tensor = x + self.dense(self.norms[1](x.transpose(1, 2)).transpose(1, 2))
        return value


class Vision(nn.Module):
    """A vision transformer: patches by a convolution, positions, blocks, and the class token or the mean of all."""

    def __init__(self, *, token: bool) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(1, SIZE, 2, 2), nn.Sequential(Block(), Block())
        self.token = nn.Parameter(torch.randn(1, 1, SIZE)) if token else None
        self.positions, self.head = nn.Parameter(torch.randn(1, 4 + token, SIZE)), nn.Linear(SIZE, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = self.blocks(x + self.positions)
        value: Tensor = self.head(x.mean(1) if self.token is None else x[:, 0])
        return value


class Excited(nn.Module):
    """Squeeze and excitation, group and instance norm, and a SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.group = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 1), nn.Sigmoid()]
        self.gate, self.last, self.head = nn.Sequential(*squeeze), nn.InstanceNorm2d(4, affine=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.group(self.first(x))
        value: Tensor = self.head((self.last(F.silu(y * self.gate(y)))[:, :, :2]).sum((2, 3)))
        return value


WORDS, PICTURE = (TOKENS, SIZE), (1, 4, 4)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lstm": (partial(Sequence, nn.LSTM), WORDS),
    "two lstms both ways": (partial(Sequence, nn.LSTM, num_layers=2, bidirectional=True), WORDS),
    "gru": (partial(Sequence, nn.GRU, state=True), WORDS),
    "rnn": (partial(Sequence, nn.RNN, nonlinearity="relu"), WORDS),
    "encoder": (partial(Encoder, first=True, activation="relu"), WORDS),
    "encoder, tokens first": (partial(Encoder, first=False, activation="gelu"), WORDS),
    "causal": (Causal, WORDS),
    "vision": (partial(Vision, token=False), PICTURE),
    "vision with a token": (partial(Vision, token=True), PICTURE),
    "excited": (Excited, PICTURE),
}


def assert_read(name: str, folder: Path, *, opset: int, dynamo: bool, free: bool) -> None:
    """Check the loaded network against onnxruntime and torch, and check that its bounds hold."""
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.rand(3, *shape)
    path = folder / "net.onnx"
    how: dict[str, Any] = {"opset_version": opset, "dynamo": dynamo, "input_names": ["x"], "output_names": ["y"]}
    if free and dynamo:
        how["dynamic_shapes"] = ({0: torch.export.Dim("n", min=2, max=64)},)
    elif free:
        how["dynamic_axes"] = {"x": {0: "n"}}
    torch.onnx.export(model, (x if free else x[:1],), str(path), external_data=False, verbose=False, **how)
    graph = load(path)
    bounded(graph)
    torch.testing.assert_close(graph(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    file = onnx.load(path)
    expected = [torch.from_numpy(run(file, part.numpy())) for part in x.split(3 if free else 1)]
    torch.testing.assert_close(graph(x), torch.cat(expected), rtol=1e-4, atol=1e-5)
    lower, upper = both_sides(graph, Ball(1e-3, domain=(0.0, 1.0)).at(x[:1]), Backward(), "shared")
    noise = torch.rand(300, *shape, generator=torch.Generator().manual_seed(1)) * 2e-3 - 1e-3
    values = graph((x[:1] + noise).clamp(0, 1))
    assert bool((values >= lower[0, 0] - 1e-5).all())
    assert bool((values <= upper[0, 0] + 1e-5).all())
    assert float((upper - lower).max()) < 0.5 * float(values.abs().max())


@pytest.mark.filterwarnings("ignore")  # the exporter warns about itself
@pytest.mark.parametrize("name", NETWORKS)
def test_files_of_the_older_exporter_are_read(name: str, tmp_path: Path) -> None:
    assert_read(name, tmp_path, opset=17, dynamo=False, free=True)


@pytest.mark.whole  # exports are slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opset", [18, 21, 23])
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_files_of_the_newer_exporter_are_read(name: str, free: bool, opset: int, tmp_path: Path) -> None:
    assert_read(name, tmp_path, opset=opset, dynamo=True, free=free)
