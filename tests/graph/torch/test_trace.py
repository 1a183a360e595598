"""`pm.trace`: modules that are read, and modules that are refused."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proofmap.errors import InputError, ModelError, UnsupportedError
from proofmap.graph import as_graph, bounded, trace
from proofmap.graph.opaque import opaque_node
from proofmap.graph.torch.operators.operator_table import CONVERTERS
from proofmap.verify.radius import radius
from tests.graph.test_readers import assert_same, drawn
from tests.models import MODELS, Apply, Case, Residual, graph_of

CASES = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
DEEP = [case for name, case in MODELS.items() if name.startswith("deep")]


# --- the table of models ---


@pytest.mark.parametrize("name", [*(c.name for c in DEEP), "conv2d same", "conv_transpose2d groups", "split and chunk"])
def test_decomposed_operators_give_equal_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are read directly, and after torch's decompositions."""
    monkeypatch.setattr(import_module("proofmap.graph.torch.export"), "_has_converters", lambda graph: False)
    case = MODELS[name]
    model = case.build(torch.float64)
    graph = trace(model, case.inputs(1, torch.float64))
    assert_same(graph, model, partial(drawn, case, torch.float64))
    assert [node.op for node in graph.nodes] == [node.op for node in graph_of(case).nodes]


@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_single_precision_can_be_traced(case: Case) -> None:
    model = case.build()
    graph = trace(model, case.inputs(3))
    assert graph.dtype == torch.float32
    assert_same(graph, model, partial(drawn, case, torch.float32))


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


def test_every_operator_of_torch_in_the_table_exists() -> None:
    for name in CONVERTERS:
        if name.startswith("aten."):
            _, op, overload = name.split(".")
            assert hasattr(getattr(torch.ops.aten, op), overload), name
            assert not getattr(getattr(torch.ops.aten, op), overload)._schema.is_mutable, name


# --- the model stays as it was ---


class Watched(nn.Module):
    """Stores its activations, as models with hooks for explanations do."""

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
        ("act", "affine"),  # the node with the value of a module has the module's name
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


def test_a_module_that_returns_its_input_does_not_rename_it() -> None:
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


def test_a_graph_lists_its_nodes() -> None:
    graph = graph_of(MODELS["relu"])
    assert "0.1: relu(0.0) -> (7,)" in repr(graph)
    assert (graph["0.1"].op, graph.classes) == ("relu", 3)


def test_a_graph_can_be_pickled() -> None:
    case = MODELS["deep mobile"]
    graph = pickle.loads(pickle.dumps(graph_of(case)))  # noqa: S301
    assert torch.equal(graph(case.inputs(2)), graph_of(case)(case.inputs(2)))
    assert torch.equal(copy.deepcopy(graph)(case.inputs(2)), graph(case.inputs(2)))


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


# --- errors ---


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: torch.where(x > 0, x, 2 * x), "aten.where.self with computed mask"),
        (lambda x: F.softplus(x, threshold=float("nan")), "aten.softplus with beta 1 and threshold nan"),
        (lambda x: F.celu(x, alpha=-1.0), "aten.celu with alpha -1"),
        (lambda x: F.threshold(x, 0.0, float("inf")), "aten.threshold with limit 0 and value inf"),
        (lambda x: torch.einsum("ni,ni,ni->ni", x, x, x), "aten.einsum of several computed values"),
        (lambda x: x.pow(20), "aten.pow.Tensor_Scalar with exponent 20"),
        (lambda x: x.norm(p=3, dim=1, keepdim=True).expand(-1, 2), "aten.linalg_vector_norm of order 3"),
        (lambda x: x * torch.atan(x), "aten.atan"),
        (lambda x: x.long().float(), "aten._to_copy to torch.int64"),
        (lambda x: x.cumprod(1), "aten.cumprod"),
        (lambda x: torch.tan(x / 2), "aten.tan"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "aten.div.Tensor_mode with rounding_mode 'floor'"),
    ],
)  # fmt: skip
def test_unsupported_operations_are_named(function: Callable[[Tensor], Tensor], op: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        bounded(trace(Apply(function), torch.rand(1, 4)))
    assert op in [operation for _, operation in caught.value.nodes]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["0.weight", "1.running_var", "1.bias"])
def test_weights_that_are_not_finite_are_refused(value: float, where: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        model.state_dict()[where].view(-1)[1] = value
    with pytest.raises(ModelError, match=f"'{where}' has NaN or infinite entries, expected finite weights"):
        trace(model, torch.rand(1, 4))


def test_constants_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ModelError, match=r"clamp \(node 'clamp'\) has limits nan"):
        trace(Apply(lambda x: x.clamp(min=float("nan"))), torch.rand(1, 4))


def test_complex_weights_are_refused() -> None:
    with pytest.raises(ModelError, match=r"'weight' is torch.complex64, expected float32 or float64"):
        trace(nn.Linear(4, 3, dtype=torch.complex64), torch.rand(1, 4))


def test_mixed_precisions_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3).double())
    with pytest.raises(ModelError, match=r"'0.weight' torch.float32 on cpu, '1.weight' torch.float64 on cpu"):
        trace(model, torch.rand(1, 4))


@pytest.mark.parametrize("x", [torch.rand(4), torch.ones(1, 4, dtype=torch.long), torch.rand(0, 4), torch.tensor(1.0)])
def test_bad_inputs_are_refused(x: Tensor) -> None:
    with pytest.raises(InputError, match=r"got x of shape .* expected \(N, \.\.\.\) of floats"):
        trace(nn.Linear(4, 3), x)


class Mapping(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"one": x + 1, "other": x + 2}


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


def test_compiled_modules_are_read_as_their_originals() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    graph = trace(torch.compile(model, backend="eager"), torch.rand(1, 4))  # type: ignore[arg-type]
    assert [node.name for node in graph.nodes] == ["input", "0", "1"]


class Holder(nn.Module):
    """A compiled part and a compiled function. `compiled` counts the graphs that their backend receives."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compiled: list[int] = []
        self.part = torch.compile(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), backend=self._backend)
        self.function = torch.compile(function, backend=self._backend)

    def _backend(self, module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.compiled.append(len(inputs))
        return module.forward

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.function(self.part(x))
        return value


@pytest.mark.parametrize(("function", "has_rule"), [(torch.abs, True), (torch.special.bessel_j0, False)])
def test_compiled_parts_are_run_as_their_originals(function: Callable[[Tensor], Tensor], has_rule: bool) -> None:
    """Tracing, a forward pass of the graph and the search for adversaries compile nothing."""
    model, x = Holder(function), torch.rand(2, 4)
    graph = trace(model, x)
    values = graph(x)
    if has_rule:
        radius(model, x, steps=2, progress=False)
    assert (opaque_node(graph) is None) == has_rule
    assert not model.compiled
    with torch.no_grad():
        assert torch.allclose(model(x), values)
    assert model.compiled  # outside Proofmap the user's module is compiled as before


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - torch.zeros_like(x) + 2 * torch.ones_like(x),
        lambda x: (x.t() - torch.zeros_like(x.t()) + 2 * torch.ones_like(x.t())).t(),
        lambda x: x * torch.arange(4).to(x).sin(),
    ],
    ids=["likes", "displaced likes", "constants"],
)
def test_common_calls_need_no_decomposition(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decomposition takes ten times as long. Calls of constants are computed as they are."""
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
    x = torch.rand(2, 4)
    torch.testing.assert_close(trace(Apply(function), x)(x), function(x))


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "dictionary": (Mapping(), "output is a dict with the tensors 'one' .*, expected one tensor"),
    "state": (Counting(), "writes to its buffers .*'seen'.*, expected one that keeps no state"),
    "decision": (Deciding(), "computes a sample differently alone and beside others"),
    "shape": (nn.Linear(5, 3), r"the model fails on a batch of shape \(N, 4\) \(RuntimeError: mat1 and mat2"),
    "undefined": (Apply(lambda x: (x - 5).log()), "output at x is NaN or infinite"),
    "fixed batch": (Apply(lambda x: x.view(29, 4)), "cannot take a batch of 2"),
}


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=REFUSED)
def test_other_models_are_refused(model: nn.Module, message: str) -> None:
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match=message):
        trace(model, torch.rand(1, 4))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def _picture_model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten())


def test_a_missing_batch_axis_is_advised() -> None:
    x = torch.rand(3, 8, 8)
    with pytest.raises(InputError, match=r"read as 3 samples of shape \(8, 8\).*add the batch axis, x\[None\]"):
        trace(_picture_model(), x)
    assert trace(_picture_model(), x[None]).input.shape == (3, 8, 8)


def test_channels_first_are_advised() -> None:
    x = torch.rand(2, 8, 8, 3)
    with pytest.raises(InputError, match=r"channels last.*use x\.permute\(0, 3, 1, 2\)"):
        trace(_picture_model(), x)
    assert trace(_picture_model(), x.permute(0, 3, 1, 2)).input.shape == (3, 8, 8)


@pytest.mark.filterwarnings("ignore")  # torch has deprecated its own quantisation
def test_quantised_layers_are_named() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ModelError, match=r"the model's '0' is the quantised layer torch\.ao.*before quantisation"):
        trace(model, torch.rand(1, 4))


def test_maps_of_one_channel_may_have_any_strides() -> None:
    """torch 2.13 reads out of bounds for such maps in single precision, with arbitrary strides of an axis of one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 5, (4, 3), (1, 2), (0, 1)), nn.Flatten())
        x = torch.randn(64, 6, 2, 1).movedim(-1, 1)
    graph = trace(model, x)
    truth = copy.deepcopy(model).double()(x.double())
    for _ in range(5):  # the memory out of bounds differs between runs
        torch.testing.assert_close(graph(x).double(), truth, rtol=0, atol=1e-5)


class Recording(nn.Module):
    """Registers hooks at its first call, and remembers this in an attribute, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "ready"):
            self.kept: list[Tensor] = []
            for layer in self.layers:
                layer.register_forward_hook(lambda _layer, _given, value: self.kept.append(value))
            self.ready = True
        self.kept.clear()
        self.layers(x)
        first, _, last = self.kept
        return first + last


def test_hooks_of_the_first_call_are_taken_back() -> None:
    """Otherwise the next call registers them a second time, and fails."""
    torch.manual_seed(0)
    model, x = Recording().eval(), torch.rand(2, 4)
    graph = trace(model, x)
    assert not any(layer._forward_hooks for layer in model.layers)
    assert torch.allclose(graph(x), model(x), atol=1e-6)


class Constant(nn.Module):
    """Adds an attention of constants, as a decoder has for its first tokens."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.last, self.rows, self.dropout = nn.Linear(4, 3), nn.Parameter(torch.rand(1, 5, 3)), dropout

    def forward(self, x: Tensor) -> Tensor:
        mixed = nn.functional.scaled_dot_product_attention(self.rows, self.rows, self.rows, dropout_p=self.dropout)
        logits: Tensor = self.last(x) + mixed[:, 0]
        return logits


def test_an_attention_of_constants_is_one_unless_it_draws() -> None:
    model, x = Constant(0.0).eval(), torch.rand(2, 4)
    assert torch.allclose(trace(model, x)(x), model(x), atol=1e-6)
    with pytest.raises(ModelError, match=r"draws random numbers|another output each time"):
        trace(Constant(0.5).eval(), x)
