"""Certificates of properties: what Proofmap makes is accepted, and true of tiny networks by exact enumeration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph
from proofmap.graph.rewrite.output_heads import without_two_logits
from proofmap.proof import check as checker
from proofmap.proof.halving_tree import ProofLimits, _minimised
from proofmap.proof.property_certificate import certify_property
from proofmap.sources import read_model, read_specification
from tests.bounds.exact import Array
from tests.proof.making import mlp_file, write
from tests.proof.properties import Region, depth_of, drawn_property, exactly_at, meets, property_members, text_of
from tests.sources.files import write_known

Layers = list[tuple[Array, Array]]


def graph_of(model: Path, path: Path) -> Graph:
    """The network as the command reads it for a property."""
    read = read_model(str(model))
    return without_two_logits(read.graph(read_specification(path, read.preparation)[0].lower.float()[None]))


def layers_of(model: Path) -> Layers:
    """The weights of dense layers."""
    held = {one.name: numpy_helper.to_array(one).astype(np.float64) for one in onnx.load(model).graph.initializer}
    return [(held[f"w{k}"], held[f"b{k}"]) for k in range(len(held) // 2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_known(tmp_path / "net.onnx")
    return tmp_path


KNOWN = Region(["0.25", "0.1"], ["0.5", "0.3"], [])


def written(folder: Path, *cases: list[tuple[dict[int, str], str, str]]) -> Path:
    """The property of cases over the box of the known network."""
    (folder / "p.vnnlib").write_text(text_of([Region(KNOWN.lower, KNOWN.upper, list(cases))], 2))
    return folder / "p.vnnlib"


def test_a_property_that_holds_is_certified(folder: Path) -> None:
    path = written(folder, [({0: "1", 1: "-1"}, "<=", "0.05")], [({1: "1"}, ">=", "0.36"), ({0: "1"}, "<=", "0.45")])
    made = certify_property(graph_of(folder / "net.onnx", path), path)
    assert made.summary().startswith(
        "Proven: the property holds: no input of its box has outputs in one of its 2 unsafe"
    )
    assert made.summary().endswith("float32 arithmetic. 1 part.")
    files = made.save(folder / "p.proof")
    assert files == (folder / "p.proof", folder / "net.onnx", path)
    assert checker.check(*files).splitlines()[0] == made.proven.verdict()
    assert made.content == certify_property(graph_of(folder / "net.onnx", path), path).content
    with pytest.raises(InputError, match=r"ends in \.proof"):
        made.save(folder / "p.txt")


def test_a_row_that_contradicts_another_needs_no_network(folder: Path) -> None:
    path = written(folder, [({0: "1"}, "<=", "0.3"), ({0: "1"}, ">=", "0.31")])
    certify_property(graph_of(folder / "net.onnx", path), path)


def test_a_counterexample_is_certified_in_the_case_that_it_meets(folder: Path) -> None:
    path = written(folder, [({0: "1"}, "<=", "0")], [({1: "1"}, ">=", "0.35")])
    graph = graph_of(folder / "net.onnx", path)
    made = certify_property(graph, path, point=np.array([0.5, 0.125], np.float32))
    assert made.claim["case"] == [0, 1]
    assert "VIOLATED" in made.summary()
    for point, why in (([0.5, 0.15], "not shown to meet"), ([0.6, 0.125], "in no box")):
        with pytest.raises(BoundError, match=why):
            certify_property(graph, path, point=np.array(point, np.float32))


def test_a_point_at_a_decimal_corner_is_moved_into_the_box(folder: Path) -> None:
    """Proofmap reads 0.1 as the nearest float64 number, which is above 1/10; 0.3 is read as a smaller number."""
    box = Region(["0.25", "0.3"], ["0.5", "0.6"], [[({1: "1"}, ">=", "0.15")]])
    path = folder / "p.vnnlib"
    path.write_text(text_of([box], 2))
    made = certify_property(graph_of(folder / "net.onnx", path), path, point=np.array([0.5, 0.3]))
    assert Fraction(made.arrays["point.npy"][1]) >= Fraction("0.3") > Fraction(0.3)
    path.write_text(text_of([replace(box, lower=["0.25", "-0.1"], upper=["0.5", "0.1"])], 2))
    made = certify_property(graph_of(folder / "net.onnx", path), path, point=np.array([0.5, 0.1]))
    assert Fraction(made.arrays["point.npy"][1]) <= Fraction("0.1") < Fraction(0.1)


def test_a_network_that_was_simplified_for_a_box_is_not_exported(folder: Path) -> None:
    """Its certificate is about the user's file; if the checker cannot read that file, there is none."""
    path = written(folder, [({1: "1"}, ">=", "0.45")])
    graph = graph_of(folder / "net.onnx", path)
    assert certify_property(replace(graph, file=None), path, file=graph.file).network is None
    assert certify_property(replace(graph, file=None), path).exported is not None  # a network from memory
    model = onnx.load(folder / "net.onnx")
    model.graph.node.append(onnx.helper.make_node("Identity", ["x"], ["unused"]))
    onnx.save(model, folder / "net.onnx")
    graph = graph_of(folder / "net.onnx", path)
    assert "was exported from an ONNX file" in str(certify_property(graph, path).exported)
    with pytest.raises(BoundError, match=r"cannot be exported for all inputs.*the checker cannot read that file"):
        certify_property(replace(graph, file=None), path, file=graph.file)


def test_limits_are_kept_and_named(folder: Path) -> None:
    path = written(folder, [({1: "1"}, ">=", "0.35")])  # which is violated
    graph = graph_of(folder / "net.onnx", path)
    with pytest.raises(BoundError, match="the proof needs more than 7 parts, so there is no certificate"):
        certify_property(graph, path, limits=ProofLimits(parts=7))
    with pytest.raises(BoundError, match=r"not found within 0 s \(\d+ parts so far\)"):
        certify_property(graph, path, limits=ProofLimits(seconds=0.0))


def test_a_box_with_many_inputs_is_divided_by_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofmap.proof.property_certificate._MAX_HALVED_INPUTS", 2)
    model = mlp_file(tmp_path / "net.onnx", (3, 8, 3), 1)
    layers = layers_of(model)
    region = Region(["-0.8"] * 3, ["0.8"] * 3, [])
    most = depth_of(layers, region, [({0: "1", 1: "-1"}, ">=", "0")])
    cases = [[({0: "1", 1: "-1"}, ">=", f"{most + 0.01:.6f}")]]
    path = tmp_path / "p.vnnlib"
    path.write_text(text_of([Region(region.lower, region.upper, cases)], 3))
    made = certify_property(graph_of(model, path), path)
    assert made.proven.parts > 1
    assert "0-tree.npy" in made.arrays
    path.write_text(
        text_of([Region(region.lower, region.upper, [[({0: "1", 1: "-1"}, ">=", f"{most - 0.2:.6f}")]])], 3)
    )
    with pytest.raises(BoundError, match="no certificate"):
        certify_property(graph_of(model, path), path, limits=ProofLimits(parts=40, seconds=5))


def test_weights_are_those_of_the_smallest_largest_value() -> None:
    """The rows δ and -δ, each 0.1 above 0 at the middle, exclude each other with equal weights."""
    weights = _minimised(np.array([[1.0], [-1.0]]), np.array([-0.1, -0.1]), np.array([1.0]), 0)
    assert 0.9 < weights[0] / weights[1] < 1.1
    assert max(weights) == 255


def accepted(folder: Path, members: dict[str, bytes], model: Path, path: Path) -> bool:
    try:
        checker.check(write(folder / "a.proof", members), model, path)
    except checker.Rejected:
        return False
    return True


def agree(folder: Path, seed: int) -> tuple[bool, bool, float]:
    """Return whether random proofs and Proofmap's are accepted, and the depth of the deepest point in a case."""
    random = np.random.default_rng([5, seed])
    model = mlp_file(folder / "net.onnx", (int(random.integers(1, 4)), int(random.integers(2, 6)), 3), seed)
    layers = layers_of(model)
    regions = drawn_property(random, layers, -0.3)
    path, text = folder / "p.vnnlib", text_of(regions, 3)
    path.write_text(text)
    by_chance = accepted(folder, property_members(model, text, random, 3, split=seed % 2 == 0), model, path)
    deep = max(depth_of(layers, region, case) for region in regions for case in region.cases)
    try:
        certify_property(graph_of(model, path), path, limits=ProofLimits(parts=400, seconds=5))
    except BoundError:
        return by_chance, False, deep
    return by_chance, True, deep


def test_what_is_certified_of_tiny_networks_is_true(tmp_path: Path) -> None:
    found = [agree(tmp_path, seed) for seed in range(4)]
    assert all(deep < -1e-9 for chance, made, deep in found if chance or made)
    assert all(made for _, made, deep in found if deep < -1e-3)
    assert 0 < sum(made for _, made, _ in found) < 4


@pytest.mark.slow
def test_what_is_certified_of_more_tiny_networks_is_true(tmp_path: Path) -> None:
    found = [agree(tmp_path, seed) for seed in range(100, 112)]
    assert all(deep < -1e-9 for chance, made, deep in found if chance or made)
    assert all(made for _, made, deep in found if deep < -1e-3)


def test_certified_violations_are_true(tmp_path: Path) -> None:
    proven = 0
    for seed in range(12):
        random = np.random.default_rng([6, seed])
        model = mlp_file(tmp_path / "net.onnx", (2, 4, 3), seed)
        layers = layers_of(model)
        regions = drawn_property(random, layers, 0.3)
        path = tmp_path / "p.vnnlib"
        path.write_text(text_of(regions, 3))
        low, high = (np.array([*map(float, end)]) for end in (regions[0].lower, regions[0].upper))
        point = random.uniform(low, high).astype(np.float32)
        exact = [Fraction(v) for v in point.tolist()]
        true = any(meets(layers, region, case, exact) for region in regions for case in region.cases)
        try:
            certify_property(graph_of(model, path), path, point=point)
        except BoundError:
            assert not true
            continue
        proven += 1
        assert true, exactly_at(layers, exact)
    assert proven > 1
