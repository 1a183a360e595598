"""Max pools are maxima of two in the checker: bounds hold, trees split them, and they are as close as by CROWN."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper
from torch import nn

import proofmap as pm
from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, known, members_of, onnx_file, proof_of, question_of, write
from tests.proof.test_certificate import accepted

POOLS: dict[str, dict[str, Any]] = {
    "apart": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "overlapping": {"kernel_shape": [3, 3], "strides": [1, 2]},
    "padded": {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 2, 0]},
    "dilated": {"kernel_shape": [2, 3], "dilations": [3, 2]},
    "rows": {"kernel_shape": [1, 4], "strides": [2, 2]},
}


def pooled_file(path: Path, a: dict[str, Any], seed: int) -> Path:
    """A map by a convolution, their largest entries, and a dense layer."""
    random = np.random.default_rng(seed)
    probe = torch.zeros(1, 1, 6, 7)
    pads = a.get("pads", [0, 0, 0, 0])
    probe = nn.functional.pad(probe, (pads[1], pads[3], pads[0], pads[2]))
    pool = nn.MaxPool2d(tuple(a["kernel_shape"]), a.get("strides", [1, 1]), 0, a.get("dilations", [1, 1]))
    count = pool(probe).numel()
    tensors = {
        "w": random.normal(size=(1, 1, 2, 2)).astype(np.float32),
        "v": random.normal(size=(count, 3), scale=count**-0.5).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[0, 0, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], **a),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"]),
    ]
    return onnx_file(path, [1, 1, 6, 7], nodes, tensors)


def inside(question: checker.Question, count: int, seed: int) -> Array:
    """Points of the ball, most of them at its corners."""
    share = np.clip(np.random.default_rng(seed).random((count, len(question.x))) * 3 - 1, 0, 1)
    points = question.x + question.lower + share * (question.upper - question.lower)
    found: Array = np.clip(points, 0, 1).astype(np.float32).reshape(count, 1, 6, 7)
    return found


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("eps", ["0", "0.2"])
def test_no_point_is_above_what_is_derived(name: str, eps: str, tmp_path: Path) -> None:
    path = pooled_file(tmp_path / "m.onnx", POOLS[name], 1)
    network = checker.read_network(path, (1, 6, 7))
    question = question_of(np.random.default_rng(2).random((1, 6, 7)).astype(np.float32), 0, 3, {**BALL, "eps": eps})
    proof = proof_of(network, question)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    points = inside(question, 100, 3)
    logits = np.concatenate([session.run(None, {"x": point[None]})[0] for point in points]).astype(np.float64)
    reached = (logits[:, 1:].max(1) - logits[:, 0]).max()
    random = np.random.default_rng(4)
    count = int(((proof["intervals"][0] < 0) & (proof["intervals"][1] > 0)).sum())
    trees = {
        "roots": np.array([1, 2]),
        "tree": np.array([0, -1, 1, -1, -1] * 2) if count > 1 else np.array([-1, -1]),
        "slopes": random.integers(0, 256, (6 if count > 1 else 2, count)).astype(np.uint8),
        "multipliers": random.normal(size=(6 if count > 1 else 2, count), scale=0.3).astype(np.float16),
    }
    for more in ({}, trees):
        most = checker.Prover(network, question).derive({**proof, **more})[0, 0]
        assert reached <= most
        assert eps != "0" or most - reached < 1e-4
    prover = known(network, question, proof)
    own = [trees[name] for name in ("slopes", "multipliers")]
    units = np.flatnonzero((proof["intervals"][0] < 0) & (proof["intervals"][1] > 0))
    rows = np.array([[1, 0, -1], [0, 1, -1], [-1, 1, 0], [0, 0, -1]], np.float64).T
    for sides in (None, np.zeros((4, count), np.int8)):  # leaves with any slopes and multipliers, and default ones
        slopes, multipliers = (np.resize(part, (4, count)) for part in own)
        mine = None if sides is None else checker.Leaf(units, slopes, multipliers, sides)
        ends = prover.largest(len(network.nodes) - 1, checker.Forms(np.arange(3), rows), mine)[0, 0]
        assert ((logits @ rows).max(0) <= ends).all()


def test_a_value_that_is_added_to_itself_counts_twice(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "r"], ["y"])]
    network = checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 3], nodes, {}), (3,))
    question = question_of(np.array([0.5, 0.1, 0.2], np.float32), 0, 3, BALL)
    derived = checker.Prover(network, question).derive(proof_of(network, question))
    assert derived[1, 0] == pytest.approx(2 * (0.25 - 0.45), abs=1e-6)


def test_a_certificate_of_version_3_has_pools_without_units(tmp_path: Path) -> None:
    path, x = pooled_file(tmp_path / "m.onnx", POOLS["apart"], 1), np.random.default_rng(2).random((1, 6, 7))
    x, mask = x.astype(np.float32), np.arange(42).reshape(1, 6, 7) % 3
    members = members_of(path, x, mask, 0, pairs=False)
    np.save(tmp_path / "x.npy", x)
    assert checker.check(write(tmp_path / "a.proof", members), path, tmp_path / "x.npy")
    claim = json.loads(members["claim.json"])
    claim["version"], claim["model"]["exported_from"] = 4, None
    members["claim.json"] = json.dumps(claim).encode()
    with pytest.raises(checker.Rejected, match="the intervals do not fit the model"):
        checker.check(write(tmp_path / "b.proof", members), path, tmp_path / "x.npy")


def pools(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(2, 3)).eval()


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_backward_and_trees_are_as_close_as_without_a_certificate(seed: int, tmp_path: Path) -> None:
    x = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    groups, ball = pm.groups.grid(2), pm.Ball(0.1, domain=(0.0, 1.0))
    e = pm.EVA(pools(seed), ball, groups=groups, sharing="one-pass", progress=False).explain(x)
    certificate = e.certificate()
    found, engine = np.append(certificate.full, certificate.frozen), np.append(e.overlap.full, e.overlap.frozen)
    assert accepted(certificate, tmp_path)
    assert (found <= engine + 0.01 * np.abs(engine)).all()
    split = e.certificate(leaves=8)
    assert split.full < certificate.full - 1e-3
    assert accepted(split, tmp_path)


def test_the_line_above_a_maximum_meets_its_largest_value(tmp_path: Path) -> None:
    """Entries that move apart: the largest value of their maximum is the largest upper end; no bound is below it."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"]),
    ]
    path = onnx_file(tmp_path / "m.onnx", [1, 1, 1, 2], nodes, {"v": np.array([[0, 1]], np.float32)})
    x = np.array([[[0.5, 0.625]]], np.float32)
    network, question = checker.read_network(path, x.shape), question_of(x, 0, 2, {**BALL, "eps": "0.25"})
    assert 0.875 <= checker.Prover(network, question).derive(proof_of(network, question))[1, 0] < 0.875 + 1e-5
