"""torch.nn layers of several operations, against torch: attention, recurrent layers, norms."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError, UnsupportedError
from proofmap.graph import bounded, trace
from tests.foreign import seeded
from tests.graph.torch.side_by_side import SideBySide
from tests.models import Apply

pytestmark = pytest.mark.slow

SHAPE = (3, 4)  # rows of a sample, or channels with their positions
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
BEFORE = torch.zeros(3, 3, dtype=torch.float64).masked_fill(~CAUSAL, -torch.inf)
PADDED = torch.tensor([[False, True, False]])


class With(nn.Module):
    """A function of a layer and its input."""

    def __init__(self, make: Callable[[], nn.Module], call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.call = make(), call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x).flatten(1)


def rows_first(call: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda layer, x: call(layer, x.transpose(0, 1)).transpose(0, 1)


def attends(which: int = 0, **how: Any) -> Callable[[nn.Module, Tensor], Tensor]:
    def call(layer: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = layer(x, 2 * x, x.flip(-1), **how)[which]
        return y

    return call


def sdpa(**how: Any) -> Callable[[nn.Module, Tensor], Tensor]:
    def call(layer: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(2, (2, 2)).transpose(1, 2) for one in (x, 2 * x, x.flip(1)))
        return F.scaled_dot_product_attention(q, k, v, **how)

    return call


def apply(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x)
    return y


def out(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x)[0]
    return y


def states(layer: nn.Module, x: Tensor) -> Tensor:
    last = layer(x)[1]
    parts = last if isinstance(last, tuple) else (last,)
    return torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)


def from_state(layer: nn.Module, x: Tensor) -> Tensor:
    """The first state is computed from the sample."""
    y: Tensor = layer(x, x[:, :2, :3].transpose(0, 1).contiguous())[0]
    return y


def cell(layer: nn.Module, x: Tensor) -> Tensor:
    state = layer(x[:, 0], None)
    state = layer(x[:, 1], state)
    y: Tensor = state[0] if isinstance(state, tuple) else state
    return y


def key_padding(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x, x, x, key_padding_mask=PADDED.expand(x.shape[0], 3))[0]
    return y


def one_input(function: Callable[[Tensor], Tensor]) -> tuple[Callable[[], nn.Module], Callable[..., Tensor]]:
    return nn.Identity, lambda layer, x: function(x)


def shared(x: Tensor) -> Tensor:
    """Attention with four query heads that share two key and value heads."""
    return F.scaled_dot_product_attention(x, x[:, 1:3], 2 * x[:, :2], enable_gqa=True)


def weighed(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x, torch.arange(6).reshape(3, 2).to(x).expand(len(x), 3, 2))
    return y


def attention(**how: Any) -> Callable[[], nn.Module]:
    return lambda: nn.MultiheadAttention(4, 2, **how)


def encoder(**how: Any) -> Callable[[], nn.Module]:
    return lambda: nn.TransformerEncoderLayer(4, 2, 8, **how)


def instance(tracked: bool) -> nn.Module:
    layer = nn.InstanceNorm1d(3, affine=True, track_running_stats=tracked)
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.copy_(torch.linspace(0.5, 2, tensor.numel()).reshape(tensor.shape))
    return layer


FIRST = {"batch_first": True}
MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "attention": (attention(**FIRST), attends()),
    "attention, rows first": (attention(), rows_first(attends())),
    "attention without weights": (attention(**FIRST), attends(need_weights=False)),
    "attention, rows first without weights": (attention(), rows_first(attends(need_weights=False))),
    "its weights": (attention(**FIRST), attends(1)),
    "weights of each head": (attention(**FIRST), attends(1, average_attn_weights=False)),
    "attention with a mask": (attention(**FIRST), attends(attn_mask=~CAUSAL)),
    "attention with numbers": (attention(**FIRST), attends(attn_mask=BEFORE, need_weights=False)),
    "attention with padding": (attention(**FIRST), key_padding),
    "attention with biases": (attention(add_bias_kv=True, add_zero_attn=True, **FIRST), attends()),
    "attention of other sizes": (attention(kdim=4, vdim=4, **FIRST), attends()),
    "sdpa": (nn.Identity, sdpa()),
    "sdpa causal": (nn.Identity, sdpa(is_causal=True)),
    "sdpa with a mask": (nn.Identity, sdpa(attn_mask=CAUSAL, scale=0.3)),
    "sdpa with numbers": (nn.Identity, sdpa(attn_mask=BEFORE + 0.25)),
    "sdpa without anything to see": (nn.Identity, sdpa(attn_mask=CAUSAL.tril(-1))),
    "sdpa of shared keys": one_input(lambda x: shared(x.unflatten(2, (4, 1)).transpose(1, 2))),
    "encoder layer": (encoder(**FIRST), apply),
    "encoder layer, norms first": (encoder(norm_first=True, activation="gelu", **FIRST), apply),
    "encoder layer, rows first": (encoder(), rows_first(apply)),
    "encoder layer with a mask": (encoder(**FIRST), lambda layer, x: layer(x, src_mask=BEFORE)),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), 2), apply),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(4, 2, 4, batch_first=True),
        lambda layer, x: layer(x, x.flip(1), tgt_mask=BEFORE),
    ),
    "lstm": (lambda: nn.LSTM(4, 3, batch_first=True), out),
    "lstm, rows first": (lambda: nn.LSTM(4, 3), rows_first(out)),
    "lstm both ways": (lambda: nn.LSTM(4, 2, 2, bidirectional=True, batch_first=True), out),
    "lstm states": (lambda: nn.LSTM(4, 2, 2, batch_first=True), states),
    "lstm projected": (lambda: nn.LSTM(4, 3, proj_size=2, batch_first=True), states),
    "gru": (lambda: nn.GRU(4, 3, batch_first=True), out),
    "gru both ways, rows first": (lambda: nn.GRU(4, 2, 2, bidirectional=True), rows_first(out)),
    "gru states": (lambda: nn.GRU(4, 2, 2, bias=False, batch_first=True), states),
    "gru from a state": (lambda: nn.GRU(4, 3, 2, batch_first=True), from_state),
    "rnn": (lambda: nn.RNN(4, 3, batch_first=True), out),
    "rnn of relu": (lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False), rows_first(out)),
    "rnn of one row": (lambda: nn.RNN(4, 3, batch_first=True), lambda layer, x: layer(x[:, :1])[0]),
    "lstm cell": (lambda: nn.LSTMCell(4, 3), cell),
    "gru cell": (lambda: nn.GRUCell(4, 3), cell),
    "rnn cell": (lambda: nn.RNNCell(4, 3), cell),
    "layer norm": (lambda: nn.LayerNorm((3, 4)), apply),
    "layer norm without weights": (lambda: nn.LayerNorm(4, elementwise_affine=False), apply),
    "rms norm": (lambda: nn.RMSNorm(4), apply),
    "rms norm of its own eps": (lambda: nn.RMSNorm((3, 4), eps=0.1), apply),
    "group norm": (lambda: nn.GroupNorm(3, 3), apply),
    "group norm of maps": (lambda: nn.GroupNorm(2, 4), lambda layer, x: layer(x.transpose(1, 2).unflatten(2, (1, 3)))),
    "instance norm": (lambda: instance(False), apply),
    "instance norm, tracked": (lambda: instance(True), apply),
    "instance norm, given what it does not use": one_input(
        lambda x: F.instance_norm(x, torch.ones(3).to(x), 2 * torch.ones(3).to(x), use_input_stats=True)
    ),
    "local response norm": (lambda: nn.LocalResponseNorm(2, alpha=0.3), apply),
    "glu": (nn.GLU, apply),
    "glu of rows": (lambda: nn.GLU(2), lambda layer, x: layer(torch.cat([x, -x], 2))),
    "softmax": (lambda: nn.Softmax(1), apply),
    "softmin": (lambda: nn.Softmin(2), apply),
    "softmax2d": (nn.Softmax2d, lambda layer, x: layer(x.unsqueeze(3))),
    "log-softmax": (lambda: nn.LogSoftmax(2), apply),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), lambda layer, x: layer(x, x.flip(1))),
    "bilinear with a constant": (lambda: nn.Bilinear(4, 2, 3), weighed),
    "cosine": (nn.CosineSimilarity, lambda layer, x: layer(x, x.flip(1) + 1)),
    "distance": (nn.PairwiseDistance, lambda layer, x: layer(x, x.flip(1) + 1)),
    "lp pool": (lambda: nn.LPPool1d(2, 2), apply),
    "lp pool of cubes": (lambda: nn.LPPool1d(3, 2), lambda layer, x: layer(x + 1)),
    "normalize": one_input(lambda x: F.normalize(x, dim=-1)),
    "norms": one_input(lambda x: torch.cat([x.norm(p=p, dim=1) for p in (1, 2, float("inf"))], 1)),
    "variances": one_input(lambda x: torch.cat([x.var(1), x.std(2), x.var(1, unbiased=False)], 1)),
    "variance and mean": one_input(lambda x: torch.cat(torch.var_mean(x, 2), 1)),
    "logsumexp": one_input(lambda x: x.logsumexp(2)),
    "logsumexp kept": one_input(lambda x: x - x.logsumexp((1, 2), keepdim=True)),
    "einsum": one_input(lambda x: torch.einsum("bij,bkj->bik", x, x.flip(1))),
    "einsum of heads": one_input(
        lambda x: torch.einsum("bihd,bjhd->bhij", x.unflatten(2, (2, 2)), 2 * x.unflatten(2, (2, 2)))
    ),
    "einsum of rows": one_input(lambda x: torch.einsum("bij,bik->bj", x, x.exp())),
    "powers": one_input(lambda x: torch.cat([x**3, x**6, (x + 2) ** -3, (x + 2) ** 0.7], 1)),
    "adaptive": (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2, 3], 1.0), lambda layer, x: layer.log_prob(x[:, 0])),
    "squeeze and excitation": (lambda: nn.Linear(4, 4), lambda layer, x: x * layer(x.mean(1, keepdim=True)).sigmoid()),
}  # fmt: skip


@cache
def together() -> SideBySide:
    modules = {name: seeded(lambda pair=pair: With(*pair)).double() for name, pair in MODULES.items()}  # type: ignore[misc]
    return SideBySide(modules, *SHAPE, low=-0.3)


@pytest.mark.parametrize("name", MODULES)
def test_a_layer_equals_torch(name: str) -> None:
    together().check(name)


KINDS: dict[str, set[str]] = {
    "attention with a mask": {"contract", "softmax"},
    "lstm": {"sigmoid", "tanh", "product"},
    "layer norm": {"square", "clamp", "rsqrt", "product"},
    "glu": {"sigmoid", "product"},
    "local response norm": {"square", "log", "exp", "reciprocal", "product"},
    "lp pool": {"square", "sqrt"},
    "bilinear": {"contract"},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_is_written_in_these_operations(name: str) -> None:
    graph = bounded(trace(seeded(lambda: With(*MODULES[name])).double(), torch.rand(1, *SHAPE, dtype=torch.float64)))
    kinds = {node.op for node in graph.nodes if not node.op.startswith("input")}
    linear = {
        "linear",
        "affine",
        "reshape",
        "permute",
        "slice",
        "concat",
        "index",
        "expand",
        "sum",
        "add",
        "pad",
        "avg_pool",
    }
    assert kinds - linear == KINDS[name]


LONGER = [pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "gru both ways, rows first")]


@pytest.mark.parametrize("name", ["encoder layer", "sdpa causal", *LONGER])
def test_points_of_a_ball_stay_within_bounds(name: str) -> None:
    size = MODULES[name][1](MODULES[name][0]().eval(), torch.rand(1, *SHAPE)).numel()
    model = seeded(lambda: nn.Sequential(With(*MODULES[name]), nn.Linear(size, 3))).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(1, *SHAPE, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        c = int(model(x).argmax())
        bound = pm.overlap(model, x, pm.Ball(0.05), target=c).full
        steps = torch.rand(256, *SHAPE, generator=generator, dtype=torch.float64) * 2 - 1
        logits = model(x + 0.05 * torch.cat([steps, steps.sign()]))
    margins = logits - logits[:, c : c + 1]
    margins[:, c] = -torch.inf
    assert float(margins.amax()) <= float(bound)


class Masked(nn.Module):
    """A module with a mask of minus infinity among its tensors."""

    def __init__(self, call: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("mask", BEFORE.clone())
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.mask, Tensor)
        return self.call(x @ x.mT, self.mask).flatten(1)


def test_a_mask_may_be_a_buffer() -> None:
    model = Masked(lambda scores, mask: (scores + mask).softmax(-1)).double()
    graph = bounded(trace(model, torch.rand(1, *SHAPE, dtype=torch.float64)))
    x = torch.rand(3, *SHAPE, dtype=torch.float64)
    assert float((graph(x) - model(x)).abs().max()) <= 1e-10


@pytest.mark.parametrize("call", [torch.add, F.linear])
def test_minus_infinity_outside_masks_is_refused(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(ModelError, match="has NaN or infinite entries, expected finite ones"):
        trace(Masked(call).double(), torch.rand(1, *SHAPE, dtype=torch.float64))


# --- errors ---

REFUSED: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], str]] = {
    "samples as time": (lambda: nn.LSTM(4, 3), out, r"lstm \(node 'layer'\) mixes the samples"),
    "samples attend to each other": (attention(), attends(), "mixes the samples"),
    "a state for each sample": (
        lambda: nn.GRU(4, 3, batch_first=True),
        lambda layer, x: layer(x, torch.arange(x.shape[0]).to(x)[None, :, None].expand(1, -1, 3).contiguous())[0],
        r"gru \(node 'layer'\) mixes the samples",
    ),
    "a row of nothing": (
        nn.Identity,
        lambda layer, x: (x @ x.mT).masked_fill(~CAUSAL.tril(-1), -torch.inf).softmax(-1),
        r"softmax \(node '.*'\) has a row with minus infinity only, whose softmax is not a number",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_are_not_functions_of_a_sample_are_refused(name: str) -> None:
    make, call, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        trace(seeded(lambda: With(make, call)), torch.rand(1, *SHAPE))


UNKNOWN: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "dropout": (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), "random|with dropout"),
    "norm": (lambda x: x.norm(p=3, dim=1), "aten.linalg_vector_norm of order 3"),
    "log-softmax of a mask": (
        lambda x: torch.where(CAUSAL, (x @ x.mT).masked_fill(~CAUSAL, -torch.inf).log_softmax(-1), 0.0),
        "of entries that are minus infinity",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_forms_without_a_rule_are_named(name: str) -> None:
    function, message = UNKNOWN[name]
    with pytest.raises((UnsupportedError, ModelError), match=message):
        bounded(trace(Apply(lambda x: function(x).flatten(1)), torch.rand(1, *SHAPE)))


def test_positions_in_a_table_are_refused_and_its_rows_are_not() -> None:
    """The test follows the advice of the message."""
    layers = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 3))
    x = torch.tensor([[1, 5, 2]])
    with pytest.raises(InputError, match=r"positions of rows in '0', expected floats.*get_submodule\('0'\)\(x\)\)$"):
        trace(layers, x)
    behind, ball = layers[1:], pm.Ball(0.01)
    assert pm.EVA(behind, ball, progress=False).explain(layers.get_submodule("0")(x).detach()).scores.isfinite().all()
