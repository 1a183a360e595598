"""Opaque parts: models with operations without a rule run as they are, and only bounds refuse them."""

import copy
import pickle
from collections.abc import Callable
from math import inf
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError, UnsupportedError
from proofmap.graph import bounded, load
from proofmap.storage.hashing import hash_graph
from tests.foreign import MODELS, Branching, Sorting, file_graph, foreign_file, graph_of, inputs, seeded
from tests.graph.onnx.files import floats, ints, loaded, make, run
from tests.models import Apply

X = inputs(5)
ALL = pytest.mark.parametrize("name", MODELS)


@ALL
def test_the_graph_runs_as_the_model_does(name: str) -> None:
    model, _, split, gradients = MODELS[name]
    graph = graph_of(name)
    for n in (1, 2, 5):
        with torch.no_grad():
            torch.testing.assert_close(graph(X[:n]), model(X[:n]))
    assert split in [node.name for node in graph.nodes]
    assert [node.op for node in graph.nodes].count("foreign") == 1
    moved = graph.to(torch.device("cpu"), torch.float64)
    expected = copy.deepcopy(model).double()(X.double())
    torch.testing.assert_close(moved(X.double()), expected)
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):  # noqa: S301
        assert torch.equal(again(X), graph(X))
        assert hash_graph(again) == hash_graph(graph)
    if gradients:
        one, two = X.clone().requires_grad_(), X.clone().requires_grad_()
        graph(one).sum().backward()
        model(two).sum().backward()
        torch.testing.assert_close(one.grad, two.grad)


@ALL
def test_the_error_for_bounds_names_all_operations(name: str) -> None:
    model, missing, split, gradients = MODELS[name]
    ball = pm.Ball(0.01)
    calls: list[Callable[[], object]] = [
        lambda: bounded(graph_of(name)),
        lambda: pm.overlap(model, X, ball),
        lambda: pm.certified_radius(model, X),
        lambda: pm.EVA(model, ball, progress=False).explain(X),
        lambda: pm.EVA(graph_of(name), ball),
        lambda: pm.metrics.RobustnessSr().both(model, X, None, X),
    ]
    for call in calls[:1] if name != "functions" else calls:
        with pytest.raises(UnsupportedError) as caught:
            call()
        for part in (*missing, f"HybridEVA(split={split!r})", "EmpiricalEVA", "occlusion"):
            assert part in str(caught.value)
        assert ("GreedyAS" in str(caught.value)) == gradients
        assert "mixes" not in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert str(again) == str(caught.value)


def test_the_model_is_copied_and_not_changed() -> None:
    model = seeded(Sorting).train()
    graph = pm.trace(model, X)
    before = graph(X)
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    name = hash_graph(graph)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    assert torch.equal(graph(X), before)
    assert hash_graph(pm.trace(model, X)) != name


def test_the_hash_depends_on_code_and_settings() -> None:
    class Other(Branching):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    class Tuned(Branching):
        def __init__(self, limit: float) -> None:
            super().__init__()
            self.limit = limit

        def forward(self, x: Tensor) -> Tensor:
            rows = [self.one(row) if float(row.detach().sum()) > self.limit else self.two(row) for row in x.flatten(1)]
            return torch.stack(rows)

    makes = [Branching, Other, lambda: Tuned(3.0), lambda: Tuned(4.0)]
    names = [hash_graph(pm.trace(seeded(make), X)) for make in (*makes, *makes)]
    assert names[:4] == names[4:]
    assert len(set(names)) == 4


class Shifted(nn.Module):
    """Near zero, the input of its last function equals its output."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.leaky_relu(x.flatten(1).sort(1).values + 100, 0.5)


def test_values_are_read_at_their_site_and_not_at_a_site_with_equal_values() -> None:
    model = seeded(lambda: nn.Sequential(Shifted(), nn.Linear(16, 3)))
    graph = pm.trace(model, X)
    far = -1000 * torch.rand(5, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(graph(far), model(far))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.layer(x.flatten(1)).sinh()))
        return logits


def test_a_module_called_twice_is_read_at_the_right_call() -> None:
    model = seeded(Twice)
    graph = pm.trace(model, X)
    assert [node.name for node in graph.nodes] == ["input", "sinh", "layer", "head"]
    with torch.no_grad():
        torch.testing.assert_close(graph(X), model(X))


REFUSED = {
    "beside others": (lambda x: (x.sinh() if float(x.detach().sum()) > 1 else x.cosh()).flatten(1), "beside others"),
    "random": (lambda x: nn.functional.dropout(x.flatten(1), 0.5, training=True), "random numbers"),
    "not a tensor": (lambda x: [row.sinh() if float(row.detach().sum()) > 8 else row for row in x], "output is a list"),
    "a map": (lambda x: torch.stack([r.sinh() if float(r.detach().sum()) > 8 else r for r in x]), r"\(N, 4, 4\)"),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED)
def test_modules_that_are_not_functions_of_a_sample_are_refused(function: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        pm.trace(Apply(function), X)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_torchscript_is_run() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    graph = pm.trace(torch.jit.trace(model, X), X)
    torch.testing.assert_close(graph(X), model(X))
    with pytest.raises(UnsupportedError, match="TorchScript"):
        bounded(graph)


# --- files ---


@pytest.mark.parametrize(("batch", "kind"), [("n", TensorProto.FLOAT), (1, TensorProto.FLOAT), (3, TensorProto.DOUBLE)])
def test_a_file_runs_as_onnxruntime_does(batch: int | str, kind: int, tmp_path: Path) -> None:
    model = foreign_file(batch, kind=kind)
    graph = file_graph(tmp_path, batch, kind=kind)
    assert [(node.name, node.op) for node in graph.nodes] == [
        ("x", "input"),
        ("meet", "foreign"),
        ("hidden", "linear"),
        ("act", "relu"),
        ("logits", "linear"),
    ]
    dtype = torch.float64 if kind == TensorProto.DOUBLE else torch.float32
    x = inputs(3, dtype)
    whole = torch.cat([torch.from_numpy(run(model, part.numpy())) for part in x.split(batch if batch != "n" else 3)])
    torch.testing.assert_close(graph(x), whole)
    torch.testing.assert_close(graph(x[:2]), whole[:2])
    other = torch.float32 if dtype == torch.float64 else torch.float64
    assert graph.to(torch.device("cpu"), other)(x.to(other)).dtype == other
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301
    assert torch.equal(again(x), graph(x))
    assert hash_graph(again) == hash_graph(graph)


def test_the_error_for_bounds_of_a_file_names_the_operations_and_alternatives(tmp_path: Path) -> None:
    graph = file_graph(tmp_path)
    with pytest.raises(UnsupportedError) as caught:
        pm.overlap(graph, X, pm.Ball(0.01))
    assert dict(caught.value.nodes) == {"wave": "Sinh", "sign": "Tan"}
    for part in ("HybridEVA(split='meet')", "EmpiricalEVA", "rise, occlusion"):
        assert part in str(caught.value)
    assert "GreedyAS" not in str(caught.value)


def test_a_file_with_an_opaque_end_cannot_be_bounded(tmp_path: Path) -> None:
    graph = loaded(foreign_file(last=True), tmp_path)
    assert [node.op for node in graph.nodes] == ["input", "foreign"]
    with pytest.raises(UnsupportedError) as caught:
        bounded(graph)
    assert [name for name, _ in caught.value.nodes] == ["wave", "sign", "end"]


def test_the_hash_of_a_file_depends_on_its_content(tmp_path: Path) -> None:
    model = foreign_file()
    one = hash_graph(loaded(model, tmp_path))
    assert one == hash_graph(loaded(model, tmp_path))
    model.graph.node[1].op_type = "Cosh"
    assert one != hash_graph(loaded(model, tmp_path))


def test_a_file_without_gradients_says_which_methods_work(tmp_path: Path) -> None:
    graph = file_graph(tmp_path)
    split = next(node.name for node in graph.nodes if node.op == "foreign")
    maps = torch.rand_like(X)
    calls: list[Callable[[], object]] = [
        lambda: pm.explainers.as_attributor("saliency", graph).attribute(X),
        lambda: pm.explainers.as_attributor("grad-cam", graph).attribute(X),
        lambda: pm.FirstOrder(graph, pm.Ball(0.01)),
        lambda: pm.GreedyAS(graph, pm.Ball(0.01)),
        lambda: pm.HybridEVA(graph, pm.Ball(0.01), split=split, attacked=1),
        lambda: pm.metrics.RobustnessSr()(graph, X, None, maps),
    ]
    for call in calls:
        with pytest.raises(
            ModelError, match=r"needs gradients.*Sinh \(node 'wave'\), Tan \(node 'sign'\).*EmpiricalEVA, rise.*occl"
        ):
            call()


def test_a_file_that_mixes_samples_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], name="mean", axes=[0]),
        helper.make_node("Sub", ["x", "m"], ["d"], name="less"),
        helper.make_node("Sinh", ["d"], ["y"], name="wave"),
    ]
    with pytest.raises(ModelError, match=r"ReduceMean \(node 'mean'\) mixes the samples of a batch"):
        loaded(make(nodes, ("n", 4)), tmp_path)


def test_samples_may_move_inside_a_file(tmp_path: Path) -> None:
    """As in a transformer, the samples move from axis 0 to another axis and back."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="there", perm=[1, 0, 2]),
        helper.make_node("Relu", ["t"], ["r"], name="act"),
        helper.make_node("Transpose", ["r"], ["b"], name="back", perm=[1, 0, 2]),
        helper.make_node("Flatten", ["b"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w"], ["y"], name="logits", transB=1),
    ]
    model = make(nodes, ("n", 4, 4), {"w": floats(3, 16)})
    graph = loaded(model, tmp_path)
    torch.testing.assert_close(graph(X), torch.from_numpy(run(model, X.numpy())))
    bounded(graph)


def test_attention_in_a_file_is_named(tmp_path: Path) -> None:
    """Also if the samples leave axis 0, and if a node has several outputs."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="there", perm=[1, 0, 2]),
        helper.make_node("Transpose", ["t"], ["b"], name="back", perm=[1, 0, 2]),
        helper.make_node("Relu", ["t"], ["r"], name="act"),
        helper.make_node("Transpose", ["r"], ["s"], name="again", perm=[1, 0, 2]),
        helper.make_node("MatMul", ["s", "b"], ["m"], name="meet"),
        helper.make_node("Atan", ["m"], ["n"], name="bend"),
        helper.make_node("Softmax", ["n"], ["w"], name="weigh"),
        helper.make_node("Sinh", ["w"], ["p"], name="wave"),
        helper.make_node("TopK", ["p", "two"], ["v", "i"], name="best"),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["v", "c"], ["q"], name="sum"),
        helper.make_node("Flatten", ["q"], ["y"], name="flat"),
    ]
    graph = loaded(make(nodes, ("n", 4, 4), {"two": ints(2)}), tmp_path)
    with pytest.raises(UnsupportedError) as caught:
        bounded(graph)
    assert caught.value.nodes == (("bend", "Atan"), ("wave", "Sinh"), ("best", "TopK"))


@pytest.mark.parametrize("constants", [False, True])
def test_a_file_that_takes_too_much_memory_is_not_run(constants: bool, tmp_path: Path) -> None:
    first = helper.make_node("Sinh", ["x"], ["s"], name="wave")
    grown = [helper.make_node("Tile", ["s", "huge"], ["y"], name="grow")]
    if constants:
        grown = [
            helper.make_node("ConstantOfShape", ["huge"], ["c"], name="grow"),
            helper.make_node("Add", ["s", "c"], ["y"], name="sum"),
        ]
    with pytest.raises(ModelError, match=r"scalars a sample|more than \d+ numbers"):
        loaded(make([first, *grown], (1, 4), {"huge": ints(1, 2**40)}), tmp_path)


def test_without_onnxruntime_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UnsupportedError, match=r"Sinh \(node 'wave'\), Tan \(node 'sign'\).*'proofmap\[onnx\]'"):
        file_graph(tmp_path)


def test_the_error_says_that_onnxruntime_cannot_run_the_file(tmp_path: Path) -> None:
    model = foreign_file()
    model.graph.node[1].op_type = "Unheard"
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match=r"Unheard \(node 'wave'\).*onnxruntime cannot run the file either"):
        load(path)


def test_custom_weights_are_checked_in_files_too(tmp_path: Path) -> None:
    model = foreign_file()
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(floats(6, 16) * inf, "w1"))
    with pytest.raises((ModelError, InputError), match="NaN or infinite"):
        loaded(model, tmp_path)
