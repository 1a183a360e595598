"""Both readers: the same networks give the same graphs, and the same faults the same errors."""

import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from torch import Tensor, nn

from proofmap.errors import InputError, ModelError, UnsupportedError
from proofmap.graph import Graph, bounded
from tests.graph.onnx.files import floats, ints, loaded, run
from tests.graph.readers import File, Module, Source, through_both
from tests.models import MODELS, Case, graph_of

node = helper.make_node

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def assert_same(graph: Graph, model: Callable[[Tensor], Tensor], draw: Callable[[int], Tensor]) -> None:
    """Check the model's values, shape and precision for any number of samples."""
    for n in (1, 2, 5):
        x = draw(n)
        with torch.no_grad():
            expected, got = model(x), graph(x)
        assert got.dtype == expected.dtype == x.dtype
        assert got.shape == expected.shape == (n, graph.classes)
        assert float((got - expected).abs().max()) <= TOLERANCE[x.dtype] * float(expected.abs().max())


# --- the table of models ---

NOT_EXPORTED = dict.fromkeys(("adaptive_max_pool2d", "rrelu"), "torch.onnx has no function for it")
# torch.onnx writes these as a selection by a comparison, not as ONNX's own operators
COMPARED = {"softshrink": "Greater", "hardshrink": "LessOrEqual", "threshold": "LessOrEqual"}
COMPARED["threshold like relu"] = "LessOrEqual"
MOVED = {"avg_pool without channels": "torch.onnx pools with the samples on the axis of the channels"}

EXPORTED = [name for name in MODELS if name not in NOT_EXPORTED]
TOGETHER = 32  # models in one export; two processes that share the tests then repeat few exports


class Together(nn.Module):
    """Run models side by side: one export of all costs little more than that of one."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        return tuple(model(x) for model, x in zip(self.models, xs, strict=True))


@cache
def exported(folder: Path, part: int) -> onnx.utils.Extractor:
    cases = [MODELS[name] for name in EXPORTED[part * TOGETHER : (part + 1) * TOGETHER]]
    torch.onnx.export(
        Together([case.build() for case in cases]).eval(),
        tuple(case.inputs(2) for case in cases),
        folder / f"{part}.onnx",
        dynamo=True,
        dynamic_shapes=(tuple({0: torch.export.Dim.AUTO} for _ in cases),),
        input_names=[f"in {case.name}" for case in cases],
        output_names=[f"out {case.name}" for case in cases],
        verbose=False,
        external_data=False,
    )
    return onnx.utils.Extractor(onnx.load(folder / f"{part}.onnx"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


def extracted(name: str, folder: Path) -> onnx.ModelProto:
    return exported(folder, EXPORTED.index(name) // TOGETHER).extract_model([f"in {name}"], [f"out {name}"])


def drawn(case: Case, dtype: torch.dtype, n: int) -> Tensor:
    return case.inputs(n, dtype, seed=n)


@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
def test_a_traced_graph_equals_the_model(case: Case) -> None:
    for dtype in (torch.float64, torch.float32):
        assert_same(graph_of(case, dtype), case.build(dtype), partial(drawn, case, dtype))


@pytest.mark.slow  # exports are slow
@pytest.mark.filterwarnings("ignore")  # the exporter warns about itself
@pytest.mark.parametrize("name", EXPORTED)
def test_a_loaded_graph_equals_onnxruntime(name: str, folder: Path) -> None:
    case, model = MODELS[name], extracted(name, folder)
    assert_same(
        loaded(model, folder), lambda x: torch.from_numpy(run(model, x.numpy())), partial(drawn, case, torch.float32)
    )


@pytest.mark.slow  # exports are slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MOVED)
def test_samples_that_the_exporter_moves_are_tracked(name: str, folder: Path) -> None:
    bounded(loaded(extracted(name, folder), folder))


@pytest.mark.slow  # exports are slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPARED)
def test_choices_by_a_comparison_are_refused_by_name(name: str, folder: Path) -> None:
    with pytest.raises(UnsupportedError, match=COMPARED[name]):
        bounded(loaded(extracted(name, folder), folder))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOT_EXPORTED)
def test_models_that_torch_cannot_export_are_still_so(name: str, tmp_path: Path) -> None:
    case = MODELS[name]
    with pytest.raises(torch.onnx.errors.OnnxExporterError):
        torch.onnx.export(case.build(), (case.inputs(2),), tmp_path / "net.onnx", dynamo=True, verbose=False)


# --- networks written both ways ---

WEIGHTS = {"w1": floats(6, 4), "b1": floats(6), "w2": floats(3, 6, seed=2), "b2": floats(3, seed=3)}
FILTERS = {"k": floats(2, 1, 2, 2), "s": np.array([0.5, 2.0], dtype=np.float32)}


def dense() -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict(hidden=nn.Linear(4, 6), act=nn.ReLU(), logits=nn.Linear(6, 3))
    model = nn.Sequential(layers).eval()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), WEIGHTS.values(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    return model


def normalised() -> nn.Module:
    """A convolution, batch norm, an activation and dropout."""
    norm = nn.BatchNorm2d(2)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(torch.from_numpy(FILTERS["s"]))
    conv = nn.Conv2d(1, 2, 2, bias=False)
    conv.weight.data = torch.from_numpy(FILTERS["k"]).clone()
    return nn.Sequential(OrderedDict(conv=conv, norm=norm, act=nn.SiLU(), drop=nn.Dropout(), flat=nn.Flatten())).eval()


NETWORKS: dict[str, tuple[Module, File, list[tuple[str, str]]]] = {
    "dense": (
        Module(dense),
        File(
            [
                node("Gemm", ["x", "w1", "b1"], ["a"], name="hidden", transB=1),
                node("Relu", ["a"], ["b"], name="act"),
                node("Gemm", ["b", "w2", "b2"], ["y"], name="logits", transB=1),
            ],
            WEIGHTS,
        ),
        [("hidden", "linear"), ("act", "relu"), ("logits", "linear")],
    ),
    "normalised": (
        Module(normalised, (1, 3, 3)),
        File(
            [
                node("Conv", ["x", "k"], ["a"], name="conv"),
                node("BatchNormalization", ["a", "s", "s", "s", "s"], ["b"], name="norm"),
                node("Sigmoid", ["b"], ["c"], name="gate"),
                node("Mul", ["b", "c"], ["d"], name="act"),
                node("Dropout", ["d"], ["e"], name="drop"),
                node("Flatten", ["e"], ["y"], name="flat"),
            ],
            FILTERS,
            ("n", 1, 3, 3),
            opset=15,  # in older opsets, onnx's evaluator uses the statistics of the batch
        ),
        [("conv", "conv"), ("act", "silu"), ("flat", "reshape")],
    ),
}
EITHER = pytest.mark.parametrize("source", [NETWORKS["dense"][0], NETWORKS["dense"][1]], ids=["torch", "onnx"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_both_readers_give_one_graph(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """The operations, names, values and precision are equal."""
    module, file, expected = NETWORKS[name]
    traced, read = module.read(tmp_path, dtype), file.read(tmp_path, dtype)
    shape = module.shape
    for graph, source in ((traced, module), (read, file)):
        assert [(one.name, one.op) for one in graph.nodes[1:]] == expected
        assert graph.input.shape == shape
        assert graph.dtype == dtype
        assert_same(graph, source.run, lambda n: torch.rand(n, *shape, dtype=dtype))
    x = torch.rand(3, *shape, dtype=dtype)
    torch.testing.assert_close(traced(x), read(x), rtol=0, atol=TOLERANCE[dtype])


@EITHER
def test_gradients_pass_through_the_graph(source: Source, tmp_path: Path) -> None:
    graph, model = source.read(tmp_path, torch.float64), dense().double()
    x, y = (torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4).requires_grad_() for _ in range(2))
    graph(x).sum().backward()
    model(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@EITHER
def test_a_graph_can_be_pickled(source: Source, tmp_path: Path) -> None:
    graph, x = source.read(tmp_path), torch.rand(2, 4)
    assert torch.equal(pickle.loads(pickle.dumps(graph))(x), graph(x))  # noqa: S301


@EITHER
def test_a_graph_checks_its_input(source: Source, tmp_path: Path) -> None:
    graph = source.read(tmp_path)
    with pytest.raises(InputError, match=r"got an input of shape \(4,\), expected \(N, 4\)"):
        graph(torch.rand(4))
    with pytest.raises(InputError, match=r"got an input of type torch.float64, expected torch.float32"):
        graph(torch.rand(1, 4, dtype=torch.float64))


# --- samples that are mixed ---

NUMBERS = {"all": ints(-1), "zero": ints(0), "one": ints(1), "pads": ints(1, 0, 0, 0), "rows": floats(3, 4)}


def mixing(op: str, *inputs: str, named: str | None = None, **attributes: Any) -> tuple[File, str]:
    return File([node(op, ["x", *inputs], ["y"], name="bad", **attributes)], NUMBERS), named or op


def mixed(function: Callable[[Tensor], Tensor], op: str) -> tuple[Module, str]:
    return Module.of(function), op


MIXED: dict[str, list[tuple[Source, str]]] = {
    "flatten": [mixed(lambda x: x.flatten(), "flatten"), mixing("Flatten", axis=0)],
    "reshape": [mixed(lambda x: x.view(-1, 2), "reshape"), mixing("Reshape", "all")],
    "transpose": [mixed(lambda x: x.transpose(0, 1), "transpose"), mixing("Transpose")],
    "mean": [mixed(lambda x: x - x.mean(0), "mean"), mixing("ReduceMean", axes=[0])],
    "sum": [mixed(lambda x: x + x.sum(0, keepdim=True), "sum")],
    "sum of all": [mixed(lambda x: x - x.sum(), "sum"), mixing("ReduceSum")],
    "mean of all": [mixed(lambda x: x - x.mean(), "mean")],
    "max": [mixed(lambda x: x + x.amax(0), "max")],
    "max of all": [mixed(lambda x: x + x.amax(), "max")],
    "softmax": [mixed(lambda x: x.softmax(0), "softmax"), mixing("Softmax", axis=0)],
    "log_softmax": [mixed(lambda x: x.log_softmax(0), "log-softmax")],
    "concat": [
        mixed(lambda x: torch.cat([x, x], 0), "cat"),
        (File([node("Concat", ["x", "x"], ["y"], name="bad", axis=0)]), "Concat"),
    ],
    "stack": [mixed(lambda x: torch.stack([x, x], 0), "stack")],
    "one of the samples": [mixed(lambda x: x + x[0], "select"), mixing("Gather", "zero", axis=0)],
    "slice": [mixed(lambda x: x[1:], "slice"), mixing("Slice", "zero", "one")],
    "pad": [mixed(lambda x: F.pad(x, (0, 0, 1, 0)), "pad"), mixing("Pad", "pads", named="pad")],
    "constants": [mixed(lambda x: x + torch.arange(x.shape[0])[:, None], "add"), mixing("Add", "rows", named="add")],
    "factors": [mixed(lambda x: x * torch.arange(x.shape[0])[:, None], "mul")],
    "product from the left": [
        mixed(lambda x: torch.ones(x.shape[0], x.shape[0]) @ x, "matmul"),
        (File([node("MatMul", ["rows", "x"], ["y"], name="bad")], NUMBERS), "matmul"),
    ],
    "transposed product": [mixed(lambda x: x @ x.T, "permute"), mixing("Gemm", "rows", transA=1)],
    "flip": [mixed(lambda x: x.flip(0), "flip")],
    "roll": [mixed(lambda x: x.roll(1, 0), "roll")],
    "index": [mixed(lambda x: x[torch.arange(x.shape[0]).flip(0)], "index")],
    "index of samples": [mixed(lambda x: x[torch.arange(x.shape[0]), torch.arange(x.shape[0]) % 4], "index")],
    "split": [mixed(lambda x: x.split([1, x.shape[0] - 1])[1], "split")],
    "repeat": [mixed(lambda x: x.repeat(2, 1), "repeat")],
    "broadcast": [mixed(lambda x: (x.sum(1) + x.unsqueeze(2)).flatten(1), "broadcasting of values of different rank")],
    "unsqueeze": [mixed(lambda x: x.unsqueeze(0), "unsqueeze")],
    "convolution": [mixed(lambda x: F.conv1d(x.unsqueeze(0), torch.ones(3, x.shape[0], 2)), "unsqueeze")],
}


@through_both(MIXED)
def test_mixed_samples_are_refused(source: Source, expected: str, tmp_path: Path) -> None:
    """A file may leave the number of samples free, or fix it."""
    for one in [source, replace(source, shape=(3, 4))] if isinstance(source, File) else [source]:
        with pytest.raises(ModelError, match=rf"^{expected} \(node '.*'\) mixes the samples .*keep dimension 0"):
            one.read(tmp_path)


# --- operations without a rule ---


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.act = nn.GLU()
        self.attend = nn.Softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.first(x)).atan())
        largest, where = h.cumprod(1).unsqueeze(2).repeat(1, 1, 2).sinh().max(2)
        product: Tensor = self.attend(largest) * h + where
        return product**20


ODD = [
    node("Cosh", ["x"], ["a"], name="first"),
    node("Relu", ["a"], ["b"]),
    node("Pow", ["b", "many"], ["c"], name="power"),
    node("Einsum", ["c", "c", "c"], ["d"], name="product", equation="ni,ni,ni->ni"),
    node("NonZero", ["d"], ["e"], name="places"),  # its shape is unknown, and later nodes are still searched
    node("Cast", ["e"], ["f"], to=TensorProto.FLOAT),
    node("Transpose", ["f"], ["t"], perm=[1, 0]),
    node("Sinh", ["t"], ["g"], name="wave"),
    node("Mul", ["c", "b"], ["h"], name="times"),
    node("LogSoftmax", ["h"], ["i"], name="probabilities"),
    node("Gelu", ["i"], ["j"], name="other", domain="com.microsoft"),
    node("Sum", ["i", "j", "g"], ["y"]),
]


class Foreign(File):
    """A file with operators of another domain."""

    def model(self, dtype: torch.dtype = torch.float32) -> onnx.ModelProto:
        model = super().model(dtype)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return model


@through_both(
    {
        "odd": [
            (
                Module(Odd),
                {
                    "atan": "aten.atan",
                    "cumprod": "aten.cumprod",
                    "sinh": "aten.sinh",
                    "getitem_1": "getitem of the positions of a maximum",
                    "pow_1": "aten.pow.Tensor_Scalar with exponent 20",
                },
            ),
            (
                Foreign(ODD, {"many": np.asarray(np.float32(20))}, opset=18),
                {
                    "first": "Cosh",
                    "power": "Pow with exponent 20",
                    "product": "Einsum of several computed values",
                    "places": "NonZero",
                    "wave": "Sinh",
                    "other": "com.microsoft.Gelu",
                },
            ),
        ]
    }
)
def test_every_unsupported_node_is_named_at_once(source: Source, expected: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        bounded(source.read(tmp_path))
    assert dict(caught.value.nodes) == expected


# --- numbers, types, inputs and outputs ---


def spoiled(value: float) -> list[tuple[Source, str]]:
    def module() -> nn.Module:
        model = dense()
        with torch.no_grad():
            model.state_dict()["logits.weight"].view(-1)[1] = value
        return model

    weights = {name: array.copy() for name, array in WEIGHTS.items()}
    weights["w2"][1, 2] = value
    words = "has NaN or infinite entries, expected finite"
    where = r"\(node 'logits.product'\)" if value == -inf else "'w2'"  # -inf is allowed in a mask, not in a weight
    file = replace(NETWORKS["dense"][1], constants=weights)
    return [(Module(module), f"'logits.weight' {words}"), (file, f"{where} {words}")]


class Several(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return x + 1, x + 2


class TwoOutputs(File):
    def model(self, dtype: torch.dtype = torch.float32) -> onnx.ModelProto:
        model = super().model(dtype)
        model.graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, None))
        return model


class TwoInputs(File):
    def model(self, dtype: torch.dtype = torch.float32) -> onnx.ModelProto:
        model = super().model(dtype)
        model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.INT64, ["n", 4]))
        return model


class Demanding(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Always(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True)


NOISE = [node("RandomNormal", [], ["a"], name="noise", shape=[1, 4]), node("Sum", ["x", "a"], ["y"])]
LOG = [node("Log", ["c"], ["d"]), node("Mul", ["x", "d"], ["y"], name="times")]
TRAINING = [node("BatchNormalization", ["x", *"ssss"], ["y", "m", "v"], name="norm", training_mode=1)]
SIZED = [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["n"], axis=0),
    node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
    node("Div", ["x", "f"], ["y"], name="share"),
]
DENSE = NETWORKS["dense"][1]

REFUSED: dict[str, list[tuple[Source, str]]] = {
    **{f"a weight of {value}": spoiled(value) for value in (float("nan"), float("inf"), -float("inf"))},
    "constants that are no numbers": [
        (Module.of(lambda x: x / torch.zeros(4)), r"weight of affine \(node 'div'\) has NaN or infinite entries"),
        (
            File(LOG, {"c": np.array([1.0, 0.0, -1.0, 2.0], dtype=np.float32)}),
            r"weight of affine \(node 'times'\) has NaN or infinite entries",
        ),
    ],
    "the statistics of a batch": [
        (Module(Always), r"batch_norm \(node .*\) uses the statistics of the batch.*track_running_stats=True"),
        (Module(lambda: nn.BatchNorm1d(4, track_running_stats=False)), r"uses the statistics of the batch"),
        (
            File(TRAINING, {"s": np.ones(4, dtype=np.float32)}, opset=15),
            r"BatchNormalization \(node 'norm'\) is in training mode",
        ),
    ],
    "two outputs": [
        (Module(Several), r"a tuple with the tensors 0 \(N, 4\), 1 \(N, 4\), expected one tensor"),
        (TwoOutputs(DENSE.nodes, WEIGHTS), r"2 outputs \(y, .*\), expected one, or one of floats beside labels"),
    ],
    "two inputs": [
        (Module(Demanding), r"the model fails on a batch of shape.*takes 2 inputs, give them as a tuple, \(x, y\)"),
        (TwoInputs(DENSE.nodes, WEIGHTS), r"2 inputs \(x, other\), and 'other' is INT64, expected floats"),
    ],
    "no dependence on the input": [
        (Module.of(lambda x: torch.ones(x.shape[0], 3)), "output does not depend on its input"),
        (File([node("Relu", ["c"], ["y"])], {"c": floats(1, 3)}), "output does not depend on its input"),
    ],
    "random numbers": [
        (Module.of(lambda x: x + torch.rand(4)), "draws random numbers, expected a model that is a function"),
        (File(NOISE), "another output each time: does it draw random numbers"),
    ],
    "the number of samples": [
        (Module.of(lambda x: x / x.shape[0]), "differ by .* look at the batch's size"),
        (File(SIZED, NUMBERS), r"\(node 'share'\) depends on the number of samples, expected every sample"),
    ],
}


@through_both(REFUSED)
def test_other_networks_are_refused(source: Source, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=expected):
        source.read(tmp_path)
