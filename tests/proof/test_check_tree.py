"""Leaves, slopes and multipliers: any of them is sound, and together they cover the ball."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, known, mlp_file, onnx_file, proof_of, question_of, unit_forms
from tests.proof.test_check import WIDTHS, bent, drawn, exact, layers_of, overlap

Proof = dict[str, Array]
WIDE = {**BALL, "eps": "0.5"}


def prepared(folder: Path, seed: int) -> tuple[checker.Network, checker.Question, Proof]:
    network = checker.read_network(mlp_file(folder / "m.onnx", WIDTHS, seed), (4,))
    question = question_of(np.random.default_rng(seed).random(4).astype(np.float32), 0, 3, WIDE)
    return network, question, proof_of(network, question)


def opens(proof: Proof) -> int:
    """Return the number of open units."""
    low, high = proof["intervals"]
    return int(((low < 0) & (high > 0)).sum())


def grown(proof: Proof, units: list[int], random: np.random.Generator, rows: Sequence[int] = (1, 2)) -> Proof:
    """A tree for each of the rows that splits these open units, with slopes and multipliers at random."""
    tree: list[int] = []

    def grow(depth: int) -> None:
        tree.append(units[depth] if depth < len(units) else -1)
        if depth < len(units):
            grow(depth + 1)
            grow(depth + 1)

    for _ in rows:
        grow(0)
    shape = (tree.count(-1), opens(proof))
    slopes = random.integers(0, 256, shape).astype(np.uint8)
    multipliers = (random.normal(size=shape) * random.choice([0, 0.1, 1], shape)).astype(np.float16)
    return {
        **proof, "roots": np.array(rows), "tree": np.array(tree), "slopes": slopes, "multipliers": multipliers
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_splits_slopes_and_multipliers_at_random_are_sound(seed: int, tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, seed)
    random, units = np.random.default_rng(seed), opens(proof)
    assert units > 2
    points = drawn(question, random, 60)
    values = [overlap(exact(layers_of(tmp_path / "m.onnx"), [Fraction(float(v)) for v in p]), 0) for p in points]
    for depth in (0, 1, 3):
        chosen = random.choice(units, min(depth, units), replace=False).tolist()
        for _ in range(4):
            derived = checker.Prover(network, question).derive(grown(proof, chosen, random))
            assert max(values) <= Fraction(float(derived[1, 0])) <= Fraction(float(derived[0, 0]))


def test_multipliers_take_the_bound_down(tmp_path: Path) -> None:
    """A split without them is a leaf that does not know of its side."""
    gains = []
    for seed in range(4):
        network, question, proof = prepared(tmp_path, seed)
        for unit in range(opens(proof)):
            split = grown(proof, [unit], np.random.default_rng(0))
            low, high = proof["intervals"][:, (proof["intervals"][0] < 0) & (proof["intervals"][1] > 0)]
            split["slopes"][:] = np.where(high > -low, 255, 0)
            values = []
            for g in (0.0, -0.5, -0.1, 0.1, 0.5, 100.0):
                split["multipliers"][:] = 0
                split["multipliers"][:, unit] = [g, -g, g, -g]
                values.append(checker.Prover(network, question).derive(split)[0, 0])
            gains.append(values[0] - min(values))
    assert max(gains) > 0.01


def test_both_sides_count(tmp_path: Path) -> None:
    """The bound of a tree is the largest of its leaves, so no side may be left out; one on the whole ball stands beside
    it.
    """
    network, question, proof = prepared(tmp_path, 2)
    low, high = proof["intervals"][:, (proof["intervals"][0] < 0) & (proof["intervals"][1] > 0)]
    slopes = np.where(high > -low, np.full((4, 1), 255), 0).astype(np.uint8)
    grown_ = {"roots": np.array([1, 2]), "tree": np.array([0, -1, -1] * 2), "slopes": slopes, "multipliers": 0 * slopes}
    prover, bounds = known(network, question, proof), []
    units = np.flatnonzero((proof["intervals"][0] < 0) & (proof["intervals"][1] > 0))
    for side in (1, -1):
        sides = np.zeros((2, len(units)), np.int8)
        sides[:, 0] = side
        forms = unit_forms(np.array([(1, 0), (2, 0)]), np.array([(1, -1)] * 2))
        own = checker.Leaf(units, slopes[:2], 0 * slopes[:2], sides)
        bounds.append(prover.largest(len(network.nodes) - 1, forms, own)[:, 0])
    derived = checker.Prover(network, question).derive({**proof, **grown_})[:, 0]
    split, whole = np.max(bounds, axis=0), prover.largest(len(network.nodes) - 1, forms)[:, 0]
    assert derived == pytest.approx(np.minimum(split, whole).max(1), abs=1e-12)
    assert (split < whole).any()
    assert not np.array_equal(bounds[0], bounds[1])


@pytest.mark.parametrize(
    "tree",
    [
        [0],  # no side
        [0, -1],  # one side alone
        [99, -1, -1, -1],  # a unit that is not there
        [-2, -1],
        [-1],  # one tree for two rivals
        [-1, -1, -1],  # a tree for none
        [0, -1, -1, -1],  # a leaf without slopes
        [-1, 0, -1],  # a side less
        [],
    ],
    ids=str,
)
def test_what_is_no_tree_is_rejected(tree: list[int], tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, 0)
    slopes = np.zeros((2, opens(proof)), np.uint8)
    more = {"roots": np.array([1, 2]), "slopes": slopes, "multipliers": 0 * slopes}
    assert checker.Prover(network, question).derive({**proof, **more, "tree": np.array([-1, -1])}).shape == (2, 1)
    with pytest.raises((checker.Rejected, LookupError)):
        checker.Prover(network, question).derive({**proof, **more, "tree": np.array(tree, int)})


@pytest.mark.parametrize("roots", [[1, 0], [1, 2, 0], [1, 7]], ids=str)
def test_a_class_that_is_no_rival_has_no_tree(roots: list[int], tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, 0)
    slopes = np.zeros((len(roots), opens(proof)), np.uint8)
    more = {"roots": np.array(roots), "slopes": slopes, "multipliers": slopes, "tree": np.full(len(roots), -1)}
    with pytest.raises(checker.Rejected, match="a tree is of no rival"):
        checker.Prover(network, question).derive({**proof, **more})


@pytest.mark.parametrize("roots", [[1], [2], [1, 1], [2, 2]], ids=str)
def test_a_rival_without_a_tree_is_bounded_on_the_whole_ball(roots: list[int], tmp_path: Path) -> None:
    """Trees of one rival say nothing about the other: what counts is the largest of both."""
    network, question, proof = prepared(tmp_path, 0)
    slopes = np.zeros((len(roots), opens(proof)), np.uint8)
    more = {"roots": np.array(roots), "slopes": slopes, "multipliers": slopes, "tree": np.full(len(roots), -1)}
    found = checker.Prover(network, question).derive({**proof, **more})
    assert (found == checker.Prover(network, question).derive(proof)).all()
    other = next(c for c in question.statement.rows if c not in roots)
    alone = question_of(question.x.reshape(question.shape).astype(np.float32), 0, 3)
    alone.statement = checker.Decision(0, [other])
    assert (found >= checker.Prover(network, alone).derive(proof)).all()


def test_slopes_beyond_one_are_one(tmp_path: Path) -> None:
    """Any number may stand in the file: a line of another slope would cut through the relu."""
    network, question, proof = prepared(tmp_path, 1)
    points = drawn(question, np.random.default_rng(0), 60)
    values = [overlap(exact(layers_of(tmp_path / "m.onnx"), [Fraction(float(v)) for v in p]), 0) for p in points]
    given = grown(proof, [], np.random.default_rng(0))
    found = []
    for slope in (255, 300, 1000, 5000, -300):
        slopes = np.full(given["slopes"].shape, slope, np.int64)
        more = {**given, "slopes": slopes, "multipliers": 0 * slopes}
        found.append(checker.Prover(network, question).derive(more)[1, 0])
        assert max(values) <= Fraction(float(found[-1]))
    assert found[1:4] == [found[0]] * 3


def test_slopes_beyond_one_do_not_lower_a_bound(tmp_path: Path) -> None:
    """3 x - relu(x) is 2 at x = 1, the end of the ball; a line 1.2 x below relu would make it 1.8."""
    nodes = [
        helper.make_node("Gemm", ["x", "i"], ["z"]),
        helper.make_node("Relu", ["z"], ["a"]),
        helper.make_node("Gemm", ["x", "v"], ["b"]),
        helper.make_node("Gemm", ["a", "w"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    rows = {"i": [[1.0]], "v": [[0.0, 3.0]], "w": [[1.0, 0.0]]}
    tensors = {name: np.array(row, np.float32) for name, row in rows.items()}
    network = checker.read_network(onnx_file(tmp_path / "one.onnx", [1, 1], nodes, tensors), (1,))
    question = question_of(np.zeros(1, np.float32), 0, 2, {**BALL, "eps": "1", "domain": None})
    proof = proof_of(network, question)
    assert checker.Prover(network, question).derive(proof)[1, 0] >= 2.9  # relu(x) >= 0 alone
    for slope in (255, 300, 1000):
        leaf = {"slopes": np.array([[slope]]), "multipliers": np.zeros((1, 1))}
        derived = checker.Prover(network, question).derive(
            {**proof, "roots": np.array([1]), "tree": np.array([-1]), **leaf}
        )
        assert 2 <= derived[1, 0] <= 2.1


def test_two_relus_of_one_value_with_other_intervals_are_rejected(tmp_path: Path) -> None:
    """A side of one unit would be taken for that of another: z_1 > 0 would count as not above 0."""
    nodes = [
        helper.make_node("Gemm", ["x", "i"], ["z"]),
        helper.make_node("Relu", ["z"], ["a"]),
        helper.make_node("Relu", ["z"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Gemm", ["c", "w"], ["y"]),
    ]
    tensors = {"i": np.eye(2, dtype=np.float32), "w": np.array([[0, 1], [0, 1]], np.float32)}
    network = checker.read_network(onnx_file(tmp_path / "two.onnx", [1, 2], nodes, tensors), (2,))
    question = question_of(np.array([0, 1], np.float32), 0, 2, {**BALL, "eps": np.array([1, 0.5]), "domain": None})
    ends = np.array([[-1.1, 0.4, -1.1, -0.1], [1.1, 1.6, 1.1, 1.6]], np.float32)
    assert checker.Prover(network, question).derive({"intervals": ends})[1, 0] >= 5
    slopes = np.full((2, 3), 255, np.uint8)
    split = {"roots": np.array([1]), "tree": np.array([1, -1, -1]), "slopes": slopes, "multipliers": 0 * slopes}
    with pytest.raises(checker.Rejected, match="two relus"):
        checker.Prover(network, question).derive({"intervals": ends, **split})


def test_of_two_trees_of_a_rival_the_smaller_bound_counts(tmp_path: Path) -> None:
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 1), (4,))
    question = question_of(np.full(4, 0.5, np.float32), 0, 3, WIDE, np.array([0, 0, 1, 1]))
    proof = proof_of(network, question)
    slopes = np.zeros((4, opens(proof)), np.uint8)
    slopes[2:] = np.random.default_rng(0).integers(0, 256, slopes.shape[1])

    def of(roots: list[int], some: slice) -> Array:
        more = {"roots": np.array(roots), "slopes": slopes[some], "multipliers": 0 * slopes[some]}
        return checker.Prover(network, question).derive({**proof, **more, "tree": np.full(len(roots), -1)})

    first, second, both = of([1, 2], slice(0, 2)), of([1, 2], slice(2, 4)), of([1, 2, 1, 2], slice(0, 4))
    assert not np.array_equal(first, second)
    assert (both <= np.minimum(first, second)).all()


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_forms_through_relu_are_nowhere_smaller_on_their_leaf(slope: float) -> None:
    """One unit, forms of both signs, slopes, multipliers and sides at random, at the ends of the leaf and between."""
    random = np.random.default_rng(7)
    for _ in range(200):
        low, high = -float(np.float32(random.random())), float(np.float32(random.random()))
        a = np.rint(random.normal(size=(1, 1)) * 2.0**20)
        side = int(random.integers(-1, 2))
        g = np.float16(random.normal() * random.choice([0, 0.1, 1, 100]))
        own = np.zeros(1, int), random.integers(0, 256, (1, 1)).astype(np.uint8), np.array([[g]]), np.array([[side]])
        form, added = bent(slope, checker.Forms(np.zeros(1, int), a / 2**20), np.array([low]), np.array([high]), *own)
        start, end = (0.0 if side > 0 else low), (0.0 if side < 0 else high)
        for z in (Fraction(start), Fraction(end), Fraction(start) / 2 + Fraction(end) / 2, Fraction(0)):
            value = Fraction(float(a[0, 0])) / 2**20 * max(z, Fraction(slope) * z)
            assert value <= Fraction(form[0, 0]) * z + Fraction(float(added[0]))
