"""Try every layer of torch.nn, and write docs/layers.md: the layers that can be bounded, and the errors for the others.

    python scripts/layers.py            # write the page
    python scripts/layers.py NAME ...   # print the lines of these layers

A layer works if three conditions hold. Proofmap reads the network of the layer and a linear layer. The values at random
points equal those of the module. The overlap at random points of a small ball stays below the bound. The layers are the
public classes of torch.nn with their own forward, without losses and containers.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import ProofmapError
from proofmap.graph import bounded

PAGE_FILE = Path(__file__).parents[1] / "docs" / "layers.md"
RADIUS, POINT_COUNT = 0.01, 64
_PAGE_TEXT = """# The layers of torch.nn

`python scripts/layers.py` wrote this page with torch {version}. It tries each layer with a linear layer behind it.
A layer *works* if three conditions hold:

1. Proofmap reads the network.
2. Its values equal those of the module to 1e-10 in double precision.
3. The overlaps at {points} points of the ball of radius {radius:g} stay below the bound of `Backward()`.

If a layer is refused, the table contains the sentence of the error.
Of {count} layers {works} work in every way that was tried.

| Layer | Result |
| --- | --- |
"""


@dataclass(frozen=True)
class Trial:
    """One way to use a layer: how to make it, the shape of a sample, and how to call it on a batch."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4,)
    call: Callable[[nn.Module, Tensor], Tensor] = lambda layer, x: layer(x)
    label: str = ""
    positions: bool = False  # True if the samples are row numbers of a table


class Network(nn.Module):
    """A layer with a linear layer behind it."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.layer = trial.make().eval()
        self.call = trial.call
        self.head = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.call(self.layer, x).flatten(1))
        return logits


def layers() -> list[str]:
    """Return the names of torch.nn's layers."""
    found = {name: kind for name, kind in vars(nn).items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    apart = ("torch.nn.modules.loss", "torch.nn.modules.container")
    return sorted(
        name
        for name, kind in found.items()
        if kind.__module__.startswith("torch.nn.modules.")
        and kind.__module__ not in apart
        and kind.forward is not nn.Module.forward
    )


def line(name: str) -> str:
    """Try a layer; return its line of the table."""
    answers = [(trial.label, attempt(trial)) for trial in trials(name)]
    if all(answer is None for _, answer in answers):
        return f"| `{name}` | works{_listed([label for label, _ in answers if label])} |"
    works = [label for label, answer in answers if answer is None]
    parts = [f"works{_listed(works)}"] if works else []
    parts += [f"refused{f' {label}' if label else ''}: {answer}" for label, answer in answers if answer is not None]
    return f"| `{name}` | {'; '.join(parts)} |"


def _listed(labels: list[str]) -> str:
    return f" ({', '.join(labels)})" if labels else ""


def attempt(trial: Trial) -> str | None:
    """Return the reason why the layer is refused, or None if it works."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own code
        torch.manual_seed(0)
        try:
            model, x = _made(trial)
            graph = bounded(pm.trace(model, x[:1]))
            with torch.no_grad():
                off = float((graph.as_model(graph(x)) - model(x)).abs().max())
            if off > 1e-10:
                return f"WRONG: the graph is off by {off:.1e}"
            excess = _excess(model, x[:1])
            return f"WRONG: a point is above the bound by {excess:.1e}" if excess > 1e-9 else None
        except ProofmapError as error:
            return str(error).replace("\n", " ").replace("|", "\\|")


def _made(trial: Trial) -> tuple[nn.Module, Tensor]:
    x = torch.rand(5, *trial.shape, dtype=torch.float64) * 2 - 1
    if trial.positions:
        x = torch.randint(0, 4, (5, *trial.shape))
    model = Network(trial)
    with torch.no_grad():
        model.double()(x)
    return model.double().eval(), x


def _excess(model: nn.Module, x: Tensor) -> float:
    """Return the largest overlap at points of the ball minus the bound; a sound bound makes it negative or 0."""
    bound = pm.overlap(model, x, pm.Ball(RADIUS), bounds=pm.bounds.Backward()).full
    with torch.no_grad():
        steps = torch.rand(POINT_COUNT, *x.shape[1:], dtype=x.dtype) * 2 - 1
        steps[: POINT_COUNT // 2] = steps[: POINT_COUNT // 2].sign()
        logits, c = model(x + RADIUS * steps), int(model(x).argmax())
    margins = logits - logits[:, c : c + 1]
    margins[:, c] = -torch.inf
    return float(margins.amax() - bound)


# --- how layers are made ---

_SHAPES_BY_RANK = {"1d": (4, 6), "2d": (4, 4, 4), "3d": (4, 4, 4, 4)}
_TOKENS = (3, 4)  # three tokens of four features
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "MaxPool", "MaxUnpool"), (2,)),
    **dict.fromkeys(("LPPool",), (2.0, 2)),
    **dict.fromkeys(("BatchNorm", "InstanceNorm", "SyncBatchNorm"), (4,)),
    **dict.fromkeys(("Conv", "ConvTranspose"), (4, 3, 2)),
    **dict.fromkeys(("LazyConv", "LazyConvTranspose"), (3, 2)),
    **dict.fromkeys(("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad"), (1,)),
    "ConstantPad": (1, 0.5),
    "FractionalMaxPool": (2, 2),
    "Linear": (4, 3),
    "LazyLinear": (3,),
    "Softmax": (1,),
    "Softmin": (1,),
    "LogSoftmax": (1,),
    "Threshold": (0.1, 0.5),
    "LayerNorm": (4,),
    "RMSNorm": (4,),
}


def _plain(name: str, shape: tuple[int, ...] | None = None, label: str = "", **settings: Any) -> Trial:
    stem, axes = re.fullmatch(r"(.*?)([123]d)?", name).groups()  # type: ignore[union-attr]
    make = partial(getattr(nn, name), *_ARGUMENTS.get(stem, ()), **settings)
    return Trial(make, shape or _SHAPES_BY_RANK.get(axes, (4,)), label=label)


def trials(name: str) -> Iterator[Trial]:
    """Yield the trials of a layer: those of the table, or one with its standard arguments."""
    if name in _TRIALS:
        yield from _TRIALS[name]
    elif re.match(r"(Batch|SyncBatch|Lazy.*Batch)Norm", name):
        yield _plain(name, (4, 4) if name == "SyncBatchNorm" else None, "with statistics of the training data")
        yield _plain(name, (4, 4) if name == "SyncBatchNorm" else None, "without", track_running_stats=False)
    elif name.startswith("MaxUnpool"):
        yield replace(_plain(name), call=_unpooled)
    elif "InstanceNorm" in name:
        yield _plain(name, label="with its own statistics")
        yield _plain(name, label="with those of the training data", track_running_stats=True, affine=True)
    else:
        yield _plain(name)


def _halves(layer: nn.Module, x: Tensor) -> Tensor:
    """Call a layer of two inputs with the two halves of x."""
    y: Tensor = layer(x, x.flip(-1) * 0.5 + 0.3)
    return y


def _attends(layer: nn.Module, x: Tensor, *, first: bool = True, **how: Any) -> Tensor:
    rows = x if first else x.transpose(0, 1)
    y: Tensor = layer(rows, rows, rows, **how)[0]
    return y if first else y.transpose(0, 1)


def _turned(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x.transpose(0, 1)).transpose(0, 1)
    return y


def _last_state(layer: nn.Module, x: Tensor) -> Tensor:
    state = layer(x)[1]
    y: Tensor = state[0][-1] if isinstance(state, tuple) else state[-1]
    return y


def _sequence(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x)[0]
    return y


def _time_first(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x.transpose(0, 1))[0][-1]
    return y


def _cell(layer: nn.Module, x: Tensor) -> Tensor:
    state = layer(x)
    y: Tensor = state[0] if isinstance(state, tuple) else state
    return y


def _recurrent(kind: Callable[..., nn.Module]) -> list[Trial]:
    return [
        Trial(lambda: kind(4, 3, batch_first=True), _TOKENS, _sequence, "samples first"),
        Trial(lambda: kind(4, 3), _TOKENS, _time_first, "time first"),
        Trial(
            lambda: kind(4, 3, 2, batch_first=True, bidirectional=True),
            _TOKENS,
            _last_state,
            "two layers both ways",
        ),
    ]


def _unpooled(layer: nn.Module, x: Tensor) -> Tensor:
    axes = x.ndim - 2
    pool = getattr(nn.functional, f"max_pool{axes}d")
    y: Tensor = layer(*pool(x, 2, return_indices=True))
    return y


_CAUSAL = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
_ENCODER = partial(nn.TransformerEncoderLayer, 4, 2, 8)
_TRIALS: dict[str, list[Trial]] = {
    **{kind: _recurrent(getattr(nn, kind)) for kind in ("LSTM", "GRU")},
    "RNN": [
        *_recurrent(nn.RNN),
        Trial(lambda: nn.RNN(4, 3, nonlinearity="relu", batch_first=True), _TOKENS, _sequence, "with ReLU"),
    ],
    **{cell: [Trial(partial(getattr(nn, cell), 4, 3), (4,), _cell)] for cell in ("LSTMCell", "GRUCell", "RNNCell")},
    "AdaptiveLogSoftmaxWithLoss": [
        Trial(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4], 1.0), (4,), lambda layer, x: layer.log_prob(x))  # type: ignore[operator]
    ],
    "Bilinear": [Trial(lambda: nn.Bilinear(4, 4, 3), (4,), _halves)],
    "ChannelShuffle": [Trial(lambda: nn.ChannelShuffle(2), (4, 2, 2))],
    "CosineSimilarity": [Trial(lambda: nn.CosineSimilarity(-1), _TOKENS, _halves)],
    "CrossMapLRN2d": [Trial(lambda: nn.CrossMapLRN2d(2), (4, 2, 2))],
    "Embedding": [Trial(lambda: nn.Embedding(4, 3), (5,), positions=True)],
    "EmbeddingBag": [Trial(lambda: nn.EmbeddingBag(4, 3), (5,), positions=True)],
    "Fold": [Trial(lambda: nn.Fold((3, 3), 2), (8, 4))],
    "GLU": [Trial(nn.GLU)],
    "GroupNorm": [Trial(lambda: nn.GroupNorm(2, 4), (4, 2, 2))],
    "LocalResponseNorm": [Trial(lambda: nn.LocalResponseNorm(2), (4, 2, 2))],
    "MultiheadAttention": [
        Trial(lambda: nn.MultiheadAttention(4, 2, batch_first=True), _TOKENS, _attends, "samples first"),
        Trial(lambda: nn.MultiheadAttention(4, 2), _TOKENS, partial(_attends, first=False), "time first"),
        Trial(
            lambda: nn.MultiheadAttention(4, 2, batch_first=True),
            _TOKENS,
            partial(_attends, need_weights=False),
            "without weights",
        ),
        Trial(
            lambda: nn.MultiheadAttention(4, 2, batch_first=True),
            _TOKENS,
            partial(_attends, attn_mask=_CAUSAL),
            "with a causal mask",
        ),
    ],
    "PairwiseDistance": [Trial(nn.PairwiseDistance, _TOKENS, _halves)],
    "PixelShuffle": [Trial(lambda: nn.PixelShuffle(2), (4, 2, 2))],
    "PixelUnshuffle": [Trial(lambda: nn.PixelUnshuffle(2), (1, 4, 4))],
    "Softmax2d": [Trial(nn.Softmax2d, (4, 2, 2))],
    "Transformer": [
        Trial(lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), _TOKENS, _halves, "samples first"),
        Trial(
            lambda: nn.Transformer(4, 2, 1, 1, 8), _TOKENS,
            lambda layer, x: _halves(layer, x.transpose(0, 1)).transpose(0, 1), "time first",
        ),
    ],
    "TransformerDecoder": [
        Trial(lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 2), _TOKENS, _halves)
    ],
    "TransformerDecoderLayer": [Trial(lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), _TOKENS, _halves)],
    "TransformerEncoder": [
        Trial(lambda: nn.TransformerEncoder(_ENCODER(batch_first=True), 2), _TOKENS, label="samples first"),
        Trial(lambda: nn.TransformerEncoder(_ENCODER(), 2), _TOKENS, _turned, "time first"),
    ],
    "TransformerEncoderLayer": [
        Trial(lambda: _ENCODER(batch_first=True), _TOKENS, label="samples first"),
        Trial(lambda: _ENCODER(batch_first=True, norm_first=True, activation="gelu"), _TOKENS, label="norms first"),
        Trial(_ENCODER, _TOKENS, _turned, "time first"),
        Trial(
            lambda: _ENCODER(batch_first=True), _TOKENS,
            lambda layer, x: layer(x, src_mask=_CAUSAL), "with a causal mask",
        ),
    ],
    "Unflatten": [Trial(lambda: nn.Unflatten(1, (2, 2)))],
    "Unfold": [Trial(lambda: nn.Unfold(2), (2, 3, 3))],
    "Upsample": [
        *(Trial(partial(nn.Upsample, scale_factor=1.5, mode=mode), shape, label=mode) for mode, shape in (
            ("nearest", (2, 3)), ("linear", (2, 3)), ("bilinear", (2, 3, 3)), ("bicubic", (2, 3, 3)),
            ("trilinear", (2, 2, 2, 2)),
        ))
    ],
    "UpsamplingBilinear2d": [Trial(lambda: nn.UpsamplingBilinear2d(5), (2, 3, 3))],
    "UpsamplingNearest2d": [Trial(lambda: nn.UpsamplingNearest2d(5), (2, 3, 3))],
}  # fmt: skip


def main() -> None:
    """Print the lines of some layers, or write the page."""
    if sys.argv[1:]:
        print("\n".join(map(line, sys.argv[1:])))
        return
    names = layers()
    lines = [line(name) for name in names]
    works = sum("refused" not in one for one in lines)
    version = torch.__version__.partition("+")[0]
    head = _PAGE_TEXT.format(version=version, points=POINT_COUNT, radius=RADIUS, count=len(names), works=works)
    PAGE_FILE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{works} of {len(names)} layers work: {PAGE_FILE.relative_to(PAGE_FILE.parents[1])}")


if __name__ == "__main__":
    main()
