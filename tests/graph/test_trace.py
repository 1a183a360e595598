from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proofmap.errors import InputError, ModelError, UnsupportedError
from proofmap.graph import Graph, as_graph, bounded, trace
from proofmap.graph.ops import LINEAR, compute
from proofmap.graph.torch.aten import CONVERT
from tests.models import MODELS, Apply, Case, Residual, graph_of

CASES = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
DEEP = [case for name, case in MODELS.items() if name.startswith("deep")]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def assert_same(graph: Graph, model: nn.Module, case: Case, dtype: torch.dtype) -> None:
    for n in (1, 2, 5):
        x = case.inputs(n, dtype, seed=n)
        with torch.no_grad():
            expected = model(x)
        got = graph(x)
        assert got.dtype == dtype
        assert got.shape == expected.shape
        assert float((got - expected).abs().max()) <= TOLERANCE[dtype] * float(expected.abs().max())


# --- the table of models ---


@CASES
def test_graph_gives_what_the_model_gives(case: Case) -> None:
    for dtype in (torch.float64, torch.float32):
        assert_same(graph_of(case, dtype), case.build(dtype), case, dtype)


@pytest.mark.parametrize(
    "name", [*(case.name for case in DEEP), "conv2d same", "conv_transpose2d groups", "split and chunk"]
)
def test_operators_taken_apart_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read as it was written, and what only came through torch's decompositions."""
    monkeypatch.setattr(import_module("proofmap.graph.torch.export"), "_known", lambda graph: False)
    case = MODELS[name]
    model = case.build(torch.float64)
    graph = trace(model, case.inputs(1, torch.float64))
    assert_same(graph, model, case, torch.float64)
    assert [node.op for node in graph.nodes] == [node.op for node in graph_of(case).nodes]


@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_single_precision_can_be_traced(case: Case) -> None:
    model = case.build()
    graph = trace(model, case.inputs(3))
    assert graph.dtype == torch.float32
    assert_same(graph, model, case, torch.float32)


@CASES
def test_models_are_small_classifiers(case: Case) -> None:
    graph = graph_of(case)
    assert graph.input.shape == case.shape
    assert graph.input.size <= 60
    assert max(node.size for node in graph.nodes) <= 75
    assert 3 <= graph.classes <= 5
    assert torch.equal(case.build()(case.inputs(2)), case.build()(case.inputs(2)))
    assert float(case.inputs(50).min()) >= case.low
    assert float(case.inputs(50).max()) <= case.high


@CASES
def test_linear_operations_are_linear_up_to_their_bias(case: Case) -> None:
    """y = L(x) + bias, and |L| is L with |weight|: column by column."""
    graph = graph_of(case, torch.float64)
    for node in (node for node in graph.nodes if node.op in LINEAR):
        plain = replace(node, bias=None)
        positive = replace(plain, weight=None if node.weight is None else node.weight.abs())
        shapes = [graph[name].shape for name in node.inputs]
        points = [torch.rand(2, *shape, dtype=torch.float64) for shape in shapes]
        bias = 0.0 if node.bias is None else node.bias
        torch.testing.assert_close(compute(node, *points), compute(plain, *points) + bias)
        total = torch.zeros(2, *node.shape, dtype=torch.float64)
        for k, shape in enumerate(shapes):
            basis = torch.eye(prod(shape), dtype=torch.float64).reshape(-1, *shape)
            columns = [basis if j == k else basis.new_zeros(len(basis), *other) for j, other in enumerate(shapes)]
            images = compute(plain, *columns)
            torch.testing.assert_close(images.abs(), compute(positive, *columns))
            total += torch.einsum("ni,i...->n...", points[k].flatten(1), images)
        torch.testing.assert_close(total, compute(plain, *points))


def test_every_operator_of_torch_in_the_table_exists() -> None:
    for name in CONVERT:
        if name.startswith("aten."):
            _, op, overload = name.split(".")
            assert hasattr(getattr(torch.ops.aten, op), overload), name
            assert not getattr(getattr(torch.ops.aten, op), overload)._schema.is_mutable, name


# --- the model stays as it was ---


class Watched(nn.Module):
    """Keeps what it saw, as models with hooks for explanations do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.ReLU())
        self.head = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.width = x.shape[1]
        logits: Tensor = self.head(self.body(x))
        return logits


def test_the_model_is_not_changed() -> None:
    torch.manual_seed(0)
    model = Watched().eval()
    model.head.train()
    model.head.weight.requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    tensors = {name: (id(t), t.data_ptr()) for name, t in (*model.named_parameters(), *model.named_buffers())}
    graph = trace(model, torch.rand(1, 4))
    assert [module.training for module in model.modules()] == modes
    assert {n: (id(t), t.data_ptr()) for n, t in (*model.named_parameters(), *model.named_buffers())} == tensors
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not model.head.weight.requires_grad
    assert model.body[0].weight.requires_grad
    assert model.calls == 0
    assert not hasattr(model, "width")
    assert "body.2" not in [node.name for node in graph.nodes]  # dropout


def test_the_model_is_not_changed_by_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Apply(lambda x: x.flip(0))).train()
    with pytest.raises(ModelError):
        trace(model, torch.rand(1, 4))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_the_graph_shares_no_memory_with_the_model(case: Case) -> None:
    model = case.build()
    graph = trace(model, case.inputs(1))
    before = graph(case.inputs(2))
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    assert torch.equal(graph(case.inputs(2)), before)
    assert not any(t.requires_grad for node in graph.nodes for t in (node.weight, node.bias) if t is not None)


def test_gradients_pass_through_the_graph() -> None:
    case = MODELS["deep pooled"]
    x = case.inputs(2, torch.float64).requires_grad_()
    y = case.inputs(2, torch.float64).requires_grad_()
    graph_of(case, torch.float64)(x).sum().backward()
    case.build(torch.float64)(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


# --- names and nodes ---


def test_nodes_are_named_after_modules() -> None:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()))
    model.add_module("block", Residual(2, 2, 1))
    model.add_module("flat", nn.Flatten())
    model.add_module("act", nn.SELU())
    model.add_module("head", nn.Linear(8, 3))
    graph = trace(model.eval(), torch.rand(1, 1, 4, 4))
    assert [(node.name, node.op) for node in graph.nodes] == [
        ("input", "input"),
        ("features.0", "conv"),
        ("features.2", "relu"),
        ("block.conv1", "conv"),
        ("block", "relu"),
        ("block.conv2", "conv"),
        ("block#2", "add"),
        ("block#3", "relu"),
        ("flat", "reshape"),
        ("act.unit", "elu"),
        ("act", "affine"),  # the value of a module is what bears its name
        ("head", "linear"),
    ]


def test_functions_outside_modules_have_the_names_of_export() -> None:
    graph = trace(Apply(lambda x: torch.relu(x).exp()), torch.rand(1, 3))
    assert [node.name for node in graph.nodes] == ["input", "relu", "exp"]


def test_a_module_used_twice_is_numbered() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(torch.relu(self.layer(x)))
            return y

    assert [node.name for node in trace(Twice(), torch.rand(1, 3)).nodes] == ["input", "layer", "relu", "layer#2"]


def test_a_module_that_hands_on_a_value_leaves_it_its_name() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return torch.relu(y.clone()) + y

    graph = trace(nn.Sequential(Block()), torch.rand(1, 3))
    assert [(n.name, n.inputs) for n in graph.nodes[1:]] == [
        ("0.layer", ("input",)),
        ("0", ("0.layer",)),
        ("0#2", ("0", "0.layer")),
    ]


def test_a_graph_says_what_it_is() -> None:
    graph = graph_of(MODELS["relu"])
    assert "0.1: relu(0.0) -> (7,)" in repr(graph)
    assert graph["0.1"].op == "relu"
    assert graph.classes == 3


def test_a_graph_travels_between_processes() -> None:
    case = MODELS["deep mobile"]
    graph = pickle.loads(pickle.dumps(graph_of(case)))  # noqa: S301
    assert torch.equal(graph(case.inputs(2)), graph_of(case)(case.inputs(2)))
    assert torch.equal(copy.deepcopy(graph)(case.inputs(2)), graph(case.inputs(2)))


def test_a_graph_checks_its_input() -> None:
    graph = graph_of(MODELS["linear"])
    with pytest.raises(InputError, match=r"got an input of shape \(6,\), expected \(N, 6\)"):
        graph(torch.rand(6))
    with pytest.raises(InputError, match=r"got an input of type torch.float64, expected torch.float32"):
        graph(torch.rand(1, 6, dtype=torch.float64))


def test_a_model_without_weights_takes_both_precisions() -> None:
    graph = trace(nn.ReLU(), torch.rand(1, 3))
    for dtype in (torch.float32, torch.float64):
        assert graph(torch.rand(2, 3, dtype=dtype)).dtype == dtype


def test_as_graph_takes_graphs_and_modules_only() -> None:
    graph = graph_of(MODELS["linear"])
    x = torch.rand(1, 6)
    assert as_graph(graph, x) is graph
    assert as_graph(nn.Linear(6, 3), x).classes == 3
    with pytest.raises(InputError, match=r"got a model of type str, expected a torch.nn.Module or what pm.load"):
        as_graph("net.onnx", x)


# --- what is refused ---


def test_every_unsupported_node_is_named_at_once() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8)
            self.norm = nn.LayerNorm(8)
            self.act = nn.GLU()
            self.attend = nn.Softmax(1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.act(self.norm(self.first(x)))
            wide = h.cumprod(1).unsqueeze(2).repeat(1, 1, 2)
            largest, where = wide.sin().max(2)
            product: Tensor = self.attend(largest) * h + where
            return product**3

    with pytest.raises(UnsupportedError) as caught:
        bounded(trace(Odd(), torch.rand(1, 4)))
    assert dict(caught.value.nodes) == {
        "norm": "aten.layer_norm",
        "act": "aten.glu",
        "cumprod": "aten.cumprod",
        "sin": "aten.sin",
        "getitem_1": "<built-in function getitem> of the positions of a maximum",
        "attend": "aten.softmax.int",
        "mul": "aten.mul.Tensor of two branches",
        "pow_1": "aten.pow.Tensor_Scalar with exponent 3",
    }


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: torch.where(x > 0, x, 2 * x), "aten.where.self with computed mask"),
        (lambda x: F.softplus(x, threshold=float("nan")), "aten.softplus with beta 1 and threshold nan"),
        (lambda x: F.celu(x, alpha=-1.0), "aten.celu with alpha -1"),
        (lambda x: F.threshold(x, 0.0, float("inf")), "aten.threshold with limit 0 and value inf"),
        (lambda x: (x.unsqueeze(1) @ x.unsqueeze(2)).flatten(1), "aten.matmul of two branches"),
        (lambda x: torch.einsum("ni,ni->ni", x, x), "aten.einsum of several branches"),
        (lambda x: x * x.exp(), "aten.mul.Tensor of two branches"),
        (lambda x: x * torch.sigmoid(x + 1), "aten.mul.Tensor of two branches"),
        (lambda x: x * (1.001 + torch.erf(x / 2**0.5)), "aten.mul.Tensor of two branches"),
        (lambda x: x.long().float(), "aten._to_copy to torch.int64"),
        (lambda x: F.group_norm(x, 2), "aten.group_norm"),
        (lambda x: torch.floor(x / 2), "aten.floor"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "aten.div.Tensor_mode with rounding_mode 'floor'"),
    ],
)  # fmt: skip
def test_unsupported_operations_are_named(function: Callable[[Tensor], Tensor], op: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        bounded(trace(Apply(function), torch.rand(1, 4)))
    assert op in [operation for _, operation in caught.value.nodes]


MIXED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "flatten": (lambda x: x.flatten(), "flatten"),
    "view": (lambda x: x.view(-1, 2), "reshape"),
    "mean": (lambda x: x - x.mean(0), "mean"),
    "mean of all": (lambda x: x - x.mean(), "mean"),
    "sum": (lambda x: x + x.sum(0, keepdim=True), "sum"),
    "max": (lambda x: x + x.amax(0), "max"),
    "max of all": (lambda x: x + x.amax(), "max"),
    "transpose": (lambda x: x.transpose(0, 1), "transpose"),
    "gram matrix": (lambda x: x @ x.T, "permute"),
    "softmax": (lambda x: x.softmax(0), "softmax"),
    "log_softmax": (lambda x: x.log_softmax(0), "softmax"),
    "concat": (lambda x: torch.cat([x, x], 0), "cat"),
    "stack": (lambda x: torch.stack([x, x], 0), "stack"),
    "select": (lambda x: x + x[0], "select"),
    "slice": (lambda x: x[1:], "slice"),
    "flip": (lambda x: x.flip(0), "flip"),
    "roll": (lambda x: x.roll(1, 0), "roll"),
    "index": (lambda x: x[torch.arange(x.shape[0]).flip(0)], "index"),
    "index of samples": (lambda x: x[torch.arange(x.shape[0]), torch.arange(x.shape[0]) % 4], "index"),
    "split": (lambda x: x.split([1, x.shape[0] - 1])[1], "split"),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 0)), "pad"),
    "repeat": (lambda x: x.repeat(2, 1), "repeat"),
    "constants": (lambda x: x + torch.arange(x.shape[0])[:, None], "add"),
    "factors": (lambda x: x * torch.arange(x.shape[0])[:, None], "mul"),
    "left": (lambda x: torch.ones(x.shape[0], x.shape[0]) @ x, "matmul"),
    "broadcast": (lambda x: (x.sum(1) + x.unsqueeze(2)).flatten(1), "broadcasting of branches of different rank"),
    "unsqueeze": (lambda x: x.unsqueeze(0), "unsqueeze"),
    "convolution": (lambda x: F.conv1d(x.unsqueeze(0), torch.ones(3, x.shape[0], 2)), "unsqueeze"),
}


@pytest.mark.parametrize(("function", "op"), MIXED.values(), ids=MIXED)
def test_mixed_samples_are_refused(function: Callable[[Tensor], Tensor], op: str) -> None:
    with pytest.raises(ModelError, match=rf"^{op} \(node '.*'\) mixes the samples of a batch.*keep dimension 0"):
        trace(Apply(function), torch.rand(1, 4))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d(4)])
def test_batch_statistics_are_refused(norm: nn.BatchNorm1d) -> None:
    class Always(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.batch_norm(x, None, None, training=True)

    model = norm if not norm.track_running_stats else Always()
    with pytest.raises(ModelError, match=r"uses the statistics of the batch.*track_running_stats=True"):
        trace(model, torch.rand(1, 4))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["0.weight", "1.running_var", "1.bias"])
def test_weights_that_are_no_numbers_are_refused(value: float, where: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        model.state_dict()[where].view(-1)[1] = value
    with pytest.raises(ModelError, match=f"'{where}' has NaN or infinite entries, expected finite weights"):
        trace(model, torch.rand(1, 4))


def test_constants_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match=r"weight of affine \(node 'div'\) has NaN or infinite entries"):
        trace(Apply(lambda x: x / torch.zeros(4)), torch.rand(1, 4))
    with pytest.raises(ModelError, match=r"clamp \(node 'clamp'\) has limits nan"):
        trace(Apply(lambda x: x.clamp(min=float("nan"))), torch.rand(1, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_other_precisions_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError, match=rf"'weight' is {dtype}, expected float32 or float64"):
        trace(nn.Linear(4, 3, dtype=dtype), torch.rand(1, 4))


def test_mixed_precisions_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3).double())
    with pytest.raises(ModelError, match=r"'0.weight' torch.float32 on cpu, '1.weight' torch.float64 on cpu"):
        trace(model, torch.rand(1, 4))


@pytest.mark.parametrize("x", [torch.rand(4), torch.ones(1, 4, dtype=torch.long), torch.rand(0, 4), torch.tensor(1.0)])
def test_bad_inputs_are_refused(x: Tensor) -> None:
    with pytest.raises(InputError, match=r"got x of shape .* expected \(N, \.\.\.\) of floats"):
        trace(nn.Linear(4, 3), x)


class Several(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        return x + 1, x + 2


class Mapping(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": x + 1}


class Demanding(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return x + self.seen


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.filterwarnings("ignore")  # lazy modules are under development
def test_modules_without_weights_are_refused() -> None:
    lazy = nn.LazyLinear(3)
    with pytest.raises(ModelError, match="lazy layers have no weights yet"):
        trace(lazy, torch.rand(1, 4))


def test_compiled_modules_are_read_as_what_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    graph = trace(torch.compile(model, backend="eager"), torch.rand(1, 4))  # type: ignore[arg-type]
    assert [node.name for node in graph.nodes] == ["input", "0", "1"]


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "two outputs": (Several(), "1 inputs and 2 outputs, expected one tensor in and the logits out"),
    "two inputs": (Demanding(), "torch.export cannot follow the model.*takes one tensor of that shape"),
    "dictionary": (Mapping(), "output is a dict, expected one tensor of logits"),
    "state": (Counting(), "writes to its buffers .*'seen'.*, expected one that keeps no state"),
    "decision": (Deciding(), "computes a sample differently alone and beside others"),
    "shape": (nn.Linear(5, 3), r"torch.export cannot follow the model on a batch of 29 of shape \(4,\)"),
    "random": (Apply(lambda x: x + torch.rand(4)), "draws random numbers, expected a model that is a function"),
    "constant": (Apply(lambda x: torch.ones(x.shape[0], 3)), "output does not depend on its input"),
    "map": (Apply(lambda x: x.reshape(-1, 2, 2)), r"output has shape \(N, 2, 2\), expected logits"),
    "one number": (Apply(lambda x: x.sum(1)), r"output has shape \(N\), expected logits"),
    "undefined": (Apply(lambda x: (x - 5).log()), "output at x is NaN or infinite"),
    "fixed batch": (Apply(lambda x: x.view(29, 4)), "cannot take a batch of 2"),
    "batch size": (Apply(lambda x: x / x.shape[0]), "differ by .* look at the batch's size"),
}


@pytest.mark.parametrize(("model", "said"), REFUSED.values(), ids=REFUSED)
def test_other_models_are_refused(model: nn.Module, said: str) -> None:
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match=said):
        trace(model, torch.rand(1, 4))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_maps_of_one_channel_whatever_their_strides() -> None:
    """torch 2.13 reads beyond such maps in single precision, given strides that an axis of one makes meaningless."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 5, (4, 3), (1, 2), (0, 1)), nn.Flatten())
        x = torch.randn(64, 6, 2, 1).movedim(-1, 1)
    graph = trace(model, x)
    truth = copy.deepcopy(model).double()(x.double())
    for _ in range(5):  # what is read beyond differs from time to time
        torch.testing.assert_close(graph(x).double(), truth, rtol=0, atol=1e-5)
