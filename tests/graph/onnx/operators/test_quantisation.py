"""Static quantisation: files of onnxruntime's quantiser and single operators against onnxruntime; bounds at points."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import proofmap as pm
from proofmap.attack.pgd import attack
from proofmap.graph.onnx.runtime_session import start_session
from proofmap.graph.onnx.write import as_onnx

quantization = pytest.importorskip("onnxruntime.quantization")
BALL = pm.Ball(0.02, domain=(0.0, 1.0))


def network() -> nn.Module:
    """Return a network with large weights, so that its logits move."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)),
    ).eval()
    with torch.no_grad():
        for weight in layers.parameters():
            weight.mul_(3)
    return layers


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """Random inputs."""

    def __init__(self, name: str) -> None:
        generator = torch.Generator().manual_seed(1)
        self.feeds = iter([{name: torch.rand(1, 1, 6, 6, generator=generator).numpy()} for _ in range(10)])

    def get_next(self) -> Any:
        return next(self.feeds, None)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network in float32, as a file."""
    file = tmp_path_factory.mktemp("plain") / "plain.onnx"
    onnx.save(as_onnx(pm.trace(network(), torch.rand(1, 1, 6, 6))), file)
    return file


def quantised(plain: Path, folder: Path, form: str, **settings: Any) -> Path:
    name = onnx.load(plain).graph.input[0].name
    out = folder / "quantised.onnx"
    how = quantization.QuantFormat[form]
    quantization.quantize_static(plain, out, Calibration(name), quant_format=how, **settings)
    return out


FORMS = {
    "qdq": ("QDQ", {}),
    "qdq for each channel": ("QDQ", {"per_channel": True, "weight_type": quantization.QuantType.QInt8}),
    "signed": ("QDQ", {"activation_type": quantization.QuantType.QInt8, "weight_type": quantization.QuantType.QInt8}),
    "operators": ("QOperator", {}),
    "operators for each channel": ("QOperator", {"per_channel": True, "weight_type": quantization.QuantType.QInt8}),
}


@pytest.mark.parametrize("form", FORMS)
def test_quantised_files_are_read_and_bounded(form: str, plain: Path, tmp_path: Path) -> None:
    kind, settings = FORMS[form]
    file = quantised(plain, tmp_path, kind, **settings)
    graph = pm.load(file)
    assert graph.file is not None
    x = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    session = start_session(file.read_bytes(), plain=True)
    merged = start_session(file.read_bytes())  # with kernels of integers
    name = session.get_inputs()[0].name
    expected = np.concatenate([session.run(None, {name: row[None].numpy()})[0] for row in x])
    torch.testing.assert_close(graph(x), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)
    over = pm.overlap(graph, x, BALL)
    assert over.rigorous
    fast = pm.overlap(graph, x, BALL, rigorous=False)
    assert bool(((fast.full < over.full) & (over.full < fast.full + 0.05)).all())
    family, generator = BALL.at(x), torch.Generator().manual_seed(3)
    drawn = [*family.sample(30, generator), attack(graph, family, over.target, restarts=2, generator=generator)[1]]
    corners = [
        torch.where(torch.rand(x.shape, generator=generator) < 0.5, family.lower, family.upper) for _ in range(30)
    ]
    for delta in (*drawn, *corners):
        points = x + delta
        hardware = [
            np.concatenate([one.run(None, {name: p[None].numpy()})[0] for p in points]) for one in (session, merged)
        ]
        for logits, bound in ((graph(points), fast), *((torch.from_numpy(one), over) for one in hardware)):
            ahead = logits.scatter(1, over.target[:, None], -torch.inf).amax(1)
            margin = ahead - logits.gather(1, over.target[:, None])[:, 0]
            assert bool((margin <= bound.full + (0 if bound is over else 1e-5)).all())


def test_the_quantised_network_is_compared_with_the_original(plain: Path, tmp_path: Path) -> None:
    first, second = pm.load(plain), pm.load(quantised(plain, tmp_path, "QDQ"))
    x = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    found = pm.compare_models(first, second, x, BALL)
    assert not found.related
    for delta in BALL.at(x).sample(100, torch.Generator().manual_seed(4)):
        apart = (second(x + delta) - first(x + delta)).double()
        assert bool((found.difference[..., 0] - 1e-5 <= apart).all())
        assert bool((apart <= found.difference[..., 1] + 1e-5).all())


@pytest.mark.parametrize("form", ["qdq for each channel", "operators"])
def test_rigorous_bounds_enclose_what_onnxruntime_computes_at_a_point(form: str, plain: Path, tmp_path: Path) -> None:
    kind, settings = FORMS[form]
    file = quantised(plain, tmp_path, kind, **settings)
    graph, x = pm.load(file), torch.rand(20, 1, 6, 6, generator=torch.Generator().manual_seed(5))
    over = pm.overlap(graph, x, pm.Ball(1e-12), rigorous=True)
    for session in (start_session(file.read_bytes(), plain=True), start_session(file.read_bytes())):
        name = session.get_inputs()[0].name
        logits = torch.from_numpy(np.concatenate([session.run(None, {name: row[None].numpy()})[0] for row in x]))
        ahead = logits.scatter(1, over.target[:, None], -torch.inf).amax(1)
        margin = ahead - logits.gather(1, over.target[:, None])[:, 0]
        assert bool(((over.full_lower <= margin) & (margin <= over.full)).all())


def test_dynamic_quantisation_is_named(plain: Path, tmp_path: Path) -> None:
    quantization.quantize_dynamic(plain, tmp_path / "dynamic.onnx")
    graph, x = pm.load(tmp_path / "dynamic.onnx"), torch.rand(1, 1, 6, 6)
    with pytest.raises(
        pm.UnsupportedError, match=r"dynamic quantisation, whose scales depend on each input.*statically"
    ):
        pm.overlap(graph, x, BALL)
    pm.EmpiricalEVA(graph, BALL, samples=2, groups=pm.groups.grid(2)).explain(x)  # needs no rules


def test_dynamic_quantisation_over_a_batch_is_named(tmp_path: Path) -> None:
    """Its scales depend on all samples of a batch, so that the file is no function of one sample."""
    network = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.rand(2, 4),),
            tmp_path / "plain.onnx",
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes=axes,
        )
    quantization.quantize_dynamic(tmp_path / "plain.onnx", tmp_path / "dynamic.onnx")
    with pytest.raises(pm.ModelError, match=r"differently alone and beside others.*dynamic quantisation.*statically"):
        pm.load(tmp_path / "dynamic.onnx")


def single(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], shape: tuple[int, ...], opset: int
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        "single",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [10, 13, 19])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_ties_and_limits_are_those_of_onnxruntime(kind: type, opset: int, tmp_path: Path) -> None:
    zero = kind(7)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    model = single(nodes, {"s": np.float32(0.5), "z": zero}, (8,), opset)
    onnx.save(model, tmp_path / "single.onnx")
    x = torch.tensor([[0.25, 0.75, 1.25, -0.25, -0.75, 1e3, -1e3, 0.3]])
    (expected,) = start_session(model.SerializeToString(), plain=True).run(None, {"x": x.numpy()})
    graph = pm.load(tmp_path / "single.onnx")
    assert torch.equal(graph(x), torch.from_numpy(expected))
    assert [node.op for node in graph.nodes] == ["input", "round", "affine"]  # the zero point is not added


def test_at_a_tie_both_values_are_in_the_bounds(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    onnx.save(single(nodes, {"s": np.float32(0.5), "z": np.uint8(0)}, (2,), 13), tmp_path / "single.onnx")
    graph = pm.load(tmp_path / "single.onnx")
    over = pm.overlap(graph, torch.tensor([[1.25, 0.5]]), pm.Ball(0.0), target=0)
    assert float(over.full) >= 0.5 - 1.0  # 1.25 / 0.5 = 2.5 becomes 2, at a rounding error 3
    over = pm.overlap(graph, torch.tensor([[0.5, 1.25]]), pm.Ball(0.0), target=0)
    assert float(over.full) >= 1.5 - 0.5


@pytest.mark.parametrize(
    ("settings", "constants"),
    [
        ({}, {"s": np.array([0.1, 0.2], np.float32), "z": np.array([0, 0], np.uint8)}),
        ({"axis": 1}, {"s": np.array([0.1, 0.2], np.float32), "z": np.array([3, 4], np.uint8)}),
    ],
)
def test_several_scales_of_a_computed_value_have_no_rule(
    settings: dict[str, Any], constants: dict[str, Any], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **settings),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **settings),
    ]
    onnx.save(single(nodes, constants, (2,), 13), tmp_path / "single.onnx")
    graph = pm.load(tmp_path / "single.onnx")
    with pytest.raises(pm.UnsupportedError, match="with several scales for a computed value"):
        pm.overlap(graph, torch.rand(1, 2), BALL)


def test_parts_without_a_rule_run_as_the_file_is_written(tmp_path: Path) -> None:
    """onnxruntime's optimisation would merge both pairs, whose limits differ."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "low"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "low"], ["h"]),
        helper.make_node("QuantizeLinear", ["h", "s", "high"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "high"], ["k"]),
        helper.make_node("Sinh", ["k"], ["y"]),
    ]
    model = single(nodes, {"s": np.float32(0.25), "low": np.int8(-5), "high": np.int8(60)}, (3,), 21)
    onnx.save(model, tmp_path / "single.onnx")
    graph, x = pm.load(tmp_path / "single.onnx"), torch.tensor([[0.3, -0.9, 60.0]])
    assert any(node.op == "foreign" for node in graph.nodes)
    (expected,) = start_session(model.SerializeToString(), plain=True).run(None, {"x": x.numpy()})
    assert torch.equal(graph(x), torch.from_numpy(expected))


def test_matrix_products_of_whole_numbers(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    constants = {
        "s": np.float32(0.01),
        "z": np.uint8(10),
        "w": generator.integers(0, 255, (6, 3), dtype=np.uint8),
        "ws": np.float32(0.02),
        "wz": np.uint8(128),
        "ys": np.float32(0.05),
        "yz": np.uint8(100),
    }
    model = single(nodes, constants, (6,), 13)
    onnx.save(model, tmp_path / "single.onnx")
    x = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    (expected,) = start_session(model.SerializeToString(), plain=True).run(None, {"x": x.numpy()})
    torch.testing.assert_close(pm.load(tmp_path / "single.onnx")(x), torch.from_numpy(expected))
