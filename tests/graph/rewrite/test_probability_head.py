"""Removal of the probability head: the network decides as before."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from torch import Tensor, nn

import proofmap as pm
from proofmap import sources
from proofmap.errors import ModelError
from proofmap.graph import bounded
from proofmap.storage.hashing import hash_graph
from tests.foreign import Angles
from tests.graph.onnx.files import floats, ints, loaded, make, run
from tests.models import Apply

node = helper.make_node
X = torch.rand(3, 4, generator=torch.Generator().manual_seed(1))


def ending(*last: nn.Module, classes: int = 3) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, classes), *last).eval()


TAKEN: dict[str, tuple[nn.Module, int, str]] = {
    "softmax": (nn.Softmax(1), 3, "softmax"),
    "softmax from behind": (nn.Softmax(-1), 3, "softmax"),
    "log-softmax": (nn.LogSoftmax(1), 3, "log-softmax"),
    "function": (Apply(lambda z: F.softmax(z, dim=-1)), 3, "softmax"),
    "temperature": (Apply(lambda z: (z / -0.5).softmax(1)), 3, "softmax"),
    "maps": (nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.Softmax(1), nn.Flatten()), 3, "softmax"),
}


@pytest.mark.parametrize(("last", "classes", "taken_off"), TAKEN.values(), ids=TAKEN)
def test_the_probability_head_of_a_classifier_is_removed(last: nn.Module, classes: int, taken_off: str) -> None:
    model = ending(last, classes=classes)
    graph = pm.trace(model, X)
    assert graph.taken_off == taken_off
    assert not {"sigmoid", "foreign"} & {n.op for n in graph.nodes}
    with torch.no_grad():
        assert torch.equal(graph(X).argmax(1), model(X).argmax(1))
        torch.testing.assert_close(graph.as_model(graph(X)), model(X))
        if not isinstance(last, Apply) or classes != 3 or taken_off != "softmax":
            torch.testing.assert_close(graph(X), model[:3](X))
    assert pm.overlap(model, X, pm.Ball(0.01)).certified
    assert pm.EVA(model, pm.Ball(0.01), progress=False).explain(X).settings["taken_off"] == taken_off
    assert "taken_off" not in pm.EVA(ending(), pm.Ball(0.01), progress=False).explain(X).settings


def test_one_probability_is_two_classes() -> None:
    for last in (nn.Sigmoid(), nn.Sequential(nn.Sigmoid(), nn.Flatten(0))):
        model = ending(last, classes=1)
        graph = pm.trace(model, X)
        with torch.no_grad():
            logit = model[:3](X)
            torch.testing.assert_close(graph(X), torch.cat([torch.zeros_like(logit), logit], 1))
            torch.testing.assert_close(graph.as_model(graph(X)), model(X).reshape(-1, 1))
        assert (graph.taken_off, graph.classes) == ("sigmoid of one output", 2)
        torch.testing.assert_close(pm.overlap(model, X, pm.Ball(0.0)).full, -logit[:, 0].abs() + 2.0**-16)


@pytest.mark.parametrize("last", [nn.Sequential(nn.Softmax(1), nn.Linear(3, 3)), Apply(lambda z: z.softmax(1) * z)])
def test_a_softmax_that_something_follows_stays(last: nn.Module) -> None:
    model = ending(last)
    graph = bounded(pm.trace(model, X))
    assert graph.taken_off is None
    assert [n.op for n in graph.nodes].count("softmax") == 1
    with torch.no_grad():
        torch.testing.assert_close(graph(X), model(X))
    assert pm.overlap(model, X, pm.Ball(0.01)).certified


@pytest.mark.parametrize("classes", [2, 3])
def test_a_sigmoid_of_several_classes_stays(classes: int) -> None:
    graph = pm.trace(ending(nn.Sigmoid(), classes=classes), X)
    assert graph.taken_off is None
    assert graph[graph.output].op == "sigmoid"


def test_the_hash_of_a_model_depends_on_the_removed_head() -> None:
    assert hash_graph(pm.trace(ending(nn.Softmax(1)), X)) != hash_graph(pm.trace(ending(), X))


@pytest.mark.parametrize("metric", [pm.metrics.Deletion(seed=3), pm.metrics.MuFidelity()])
def test_no_metric_applies_a_softmax_twice(metric: pm.metrics.Metric[Tensor]) -> None:
    maps = X.clone()
    expected = metric(ending(), X, None, maps)
    torch.testing.assert_close(metric(ending(nn.Softmax(1)), X, None, maps), expected)


ARGMAX: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda z: z.argmax(1),
    "positions": lambda z: z.max(1).indices,
    "kept": lambda z: z.argmax(1, keepdim=True),
    "as floats": lambda z: z.argmax(1).float().unsqueeze(1),
}


@pytest.mark.parametrize("last", ARGMAX.values(), ids=ARGMAX)
def test_an_argmax_at_the_end_is_refused(last: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(
        ModelError, match=r"^the model ends in .*(argmax|max).*: it names a class and not by how much, expected"
    ):
        pm.trace(ending(Apply(last)), X)


# --- files ---

WEIGHTS = {"w": floats(3, 4), "b": floats(3, seed=2)}
GEMM = node("Gemm", ["x", "w", "b"], ["z"], name="logits", transB=1)
COLUMN = {"w": floats(1, 4), "b": floats(1, seed=2)}
FILES = {
    "softmax": ([node("Softmax", ["z"], ["y"], axis=1)], "softmax"),
    "log-softmax": ([node("LogSoftmax", ["z"], ["y"], axis=-1)], "log-softmax"),
    "maps": (
        [node("Reshape", ["z", "map"], ["m"]), node("Softmax", ["m"], ["s"], axis=1), node("Flatten", ["s"], ["y"])],
        "softmax",
    ),
}


@pytest.mark.parametrize(("last", "taken_off"), FILES.values(), ids=FILES)
def test_the_heads_of_files_are_removed_as_those_of_modules(
    last: list[onnx.NodeProto], taken_off: str, tmp_path: Path
) -> None:
    constants = {**WEIGHTS, "map": ints(-1, 3, 1, 1)}
    used = {name: value for name, value in constants.items() if any(name in n.input for n in (GEMM, *last))}
    model = make([GEMM, *last], ("n", 4), used)
    graph = loaded(model, tmp_path)
    assert graph.taken_off == taken_off
    bounded(graph)
    torch.testing.assert_close(graph.as_model(graph(X)), torch.from_numpy(run(model, X.numpy())))
    assert pm.EVA(graph, pm.Ball(0.01), progress=False).explain(X).settings["taken_off"] == taken_off


def test_one_probability_of_a_file_is_two_classes(tmp_path: Path) -> None:
    model = make([GEMM, node("Sigmoid", ["z"], ["y"])], ("n", 4), COLUMN)
    graph = loaded(model, tmp_path)
    assert (graph.taken_off, graph.classes) == ("sigmoid of one output", 2)
    torch.testing.assert_close(graph.as_model(graph(X)), torch.from_numpy(run(model, X.numpy())))


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_of_old_opsets_covers_all_later_axes(opset: int, tmp_path: Path) -> None:
    """Before opset 13, softmax flattens its axis and all later axes."""
    nodes = [node("Softmax", ["x"], ["s"], axis=1), node("Flatten", ["s"], ["y"])]
    assert loaded(make(nodes, ("n", 3, 2), opset=opset), tmp_path).taken_off == ("softmax" if opset == 11 else None)


def test_an_argmax_at_the_end_of_a_file_is_refused(tmp_path: Path) -> None:
    model = make([GEMM, node("ArgMax", ["z"], ["y"], name="pick", axis=1)], ("n", 4), WEIGHTS)
    with pytest.raises(ModelError, match=r"^the model ends in ArgMax \(node 'pick'\): it names a class"):
        loaded(model, tmp_path)


def test_preparation_keeps_the_removed_head(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(make([GEMM, *FILES["softmax"][0]], ("n", 4), WEIGHTS).SerializeToString())
    model = sources.read_model(str(path), preparation=sources.Preparation(mean=(0.5,)))
    assert isinstance(model.network, pm.Graph)
    assert model.network.taken_off == "softmax"
    assert np.isfinite(float(model.graph(X)(X).sum()))


def test_the_head_after_an_opaque_part_is_removed(tmp_path: Path) -> None:
    graph = pm.trace(nn.Sequential(nn.Linear(4, 5), Angles(), nn.Linear(5, 3), nn.Softmax(1)).eval(), X)
    assert [n.name for n in graph.nodes] == ["input", "1", "2"]
    assert graph.taken_off == "softmax"
    nodes = [GEMM, node("Sinh", ["z"], ["s"], name="wave"), node("Relu", ["s"], ["r"], name="act")]
    file = make([*nodes, node("Softmax", ["r"], ["y"], axis=1)], ("n", 4), WEIGHTS)
    read = loaded(file, tmp_path)
    assert [n.name for n in read.nodes] == ["x", "wave", "act"]
    assert read.taken_off == "softmax"
    torch.testing.assert_close(read.as_model(read(X)), torch.from_numpy(run(file, X.numpy())))
