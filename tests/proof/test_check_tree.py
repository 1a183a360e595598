"""Leaves, slopes and multipliers: any of them is sound, and together they cover the ball."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, mlp_file, proof_of, question_of
from tests.proof.test_check import WIDTHS, drawn, exact, layers_of, overlap

WIDE = {**BALL, "eps": "0.5"}


def prepared(folder: Path, seed: int) -> tuple[checker.Network, checker.Question, checker.Proof]:
    network = checker.read_network(mlp_file(folder / "m.onnx", WIDTHS, seed), (4,))
    question = question_of(np.random.default_rng(seed).random(4).astype(np.float32), 0, 3, WIDE)
    return network, question, proof_of(network, question)


def opens(proof: checker.Proof) -> Array:
    """The numbers of the open units among all units."""
    pairs = zip(proof.lower, proof.upper, strict=True)
    return np.flatnonzero(np.concatenate([(low < 0) & (high > 0) for low, high in pairs]))


def grown(proof: checker.Proof, units: list[int], random: np.random.Generator) -> checker.Proof:
    """A tree for each of the rivals 1 and 2 that splits these units, with slopes and multipliers at random."""
    rows: list[list[int]] = []
    leaves = 0

    def grow(depth: int) -> int:
        nonlocal leaves
        at = len(rows)
        rows.append([-1, -1, -1, leaves])
        if depth == len(units):
            leaves += 1
            return at
        rows[at] = [units[depth], grow(depth + 1), grow(depth + 1), -1]
        return at

    roots = [(c, grow(0), -1) for c in (1, 2)]
    shape = (leaves, len(opens(proof)))
    slopes = random.integers(0, 256, shape).astype(np.uint8)
    multipliers = (random.normal(size=shape) * random.choice([0, 0.1, 1], shape)).astype(np.float16)
    return replace(proof, roots=np.array(roots), tree=np.array(rows), slopes=slopes, multipliers=multipliers)


@pytest.mark.parametrize("seed", range(6))
def test_splits_slopes_and_multipliers_at_random_are_sound(seed: int, tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, seed)
    random, units = np.random.default_rng(seed), opens(proof)
    assert len(units) > 2
    points = drawn(question, random, 60)
    values = [overlap(exact(layers_of(network), [Fraction(float(v)) for v in point]), 0) for point in points]
    for depth in (0, 1, 3):
        chosen = random.choice(units, min(depth, len(units)), replace=False).tolist()
        for _ in range(4):
            derived = checker.derive(network, question, grown(proof, chosen, random))
            assert max(values) <= Fraction(derived.full)


def test_multipliers_take_the_bound_down(tmp_path: Path) -> None:
    """A split without them is a leaf that does not know of its side."""
    gains = []
    for seed in range(4):
        network, question, proof = prepared(tmp_path, seed)
        for unit in opens(proof).tolist():
            split = grown(proof, [unit], np.random.default_rng(0))
            assert split.multipliers is not None
            values = []
            for g in (0.0, -0.5, -0.1, 0.1, 0.5, 100.0):
                split.multipliers[:] = 0
                split.multipliers[:, opens(proof).tolist().index(unit)] = [g, -g, g, -g]
                values.append(checker.derive(network, question, replace(split, slopes=None)).full)
            gains.append(values[0] - min(values))
    assert max(gains) > 0.01


def test_both_sides_count(tmp_path: Path) -> None:
    """The bound of a tree is the largest of its leaves, so no side may be left out."""
    network, question, proof = prepared(tmp_path, 2)
    unit = int(opens(proof)[0])
    tree = np.array(
        [[unit, 1, 2, -1], [-1, -1, -1, 0], [-1, -1, -1, 1], [unit, 4, 5, -1], [-1, -1, -1, 2], [-1, -1, -1, 3]]
    )
    slopes = np.full((4, len(opens(proof))), 255, np.uint8)
    given = replace(proof, roots=np.array([(1, 0, -1), (2, 3, -1)]), tree=tree, slopes=slopes)
    bounds = []
    for side in (1, -1):
        known = checker.known_until(network, question, proof, len(network.nodes))
        sides = np.zeros((2, known.units[-1]), np.int8)
        sides[:, unit] = side
        rows = checker.unit_rows([(1, 0), (2, 0)], [(1, -1)] * 2, 3)
        own = checker.Choices(slopes[:2], None, sides)
        bounds.append(checker.largest(network, question, known, len(network.nodes) - 1, rows, own)[:, 0])
    assert checker.derive(network, question, given).full == np.max(bounds)
    assert not np.array_equal(bounds[0], bounds[1])


@pytest.mark.parametrize(
    "tree",
    [
        [[0, 0, 0, -1]],  # its own child
        [[0, 1, 1, -1], [-1, -1, -1, 0]],  # one child twice
        [[0, 1, 5, -1], [-1, -1, -1, 0]],  # a child that is not there
        [[0, 1, -1, -1], [-1, -1, -1, 0]],  # one side alone
        [[99, 1, 2, -1], [-1, -1, -1, 0], [-1, -1, -1, 0]],  # a unit that is not there
        [[-1, -1, -1, 1]],  # a leaf without slopes
    ],
)
def test_what_is_no_tree_is_rejected(tree: list[list[int]], tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, 0)
    slopes = np.zeros((1, len(opens(proof))), np.uint8)
    roots = np.array([(1, 0, -1), (2, 0, -1)])
    with pytest.raises(checker.Rejected):
        checker.derive(network, question, replace(proof, roots=roots, tree=np.array(tree), slopes=slopes))


def test_every_rival_needs_a_tree_for_all_members(tmp_path: Path) -> None:
    network, question, proof = prepared(tmp_path, 0)
    for roots in ([(1, 0, -1)], [(1, 0, -1), (0, 1, -1)], [(1, 0, -1), (2, 1, 0)]):
        given = replace(proof, roots=np.array(roots), tree=np.array([[-1, -1, -1, 0]] * 2))
        with pytest.raises(checker.Rejected):
            checker.derive(network, question, given)


def test_a_root_for_one_member_bounds_that_member_alone(tmp_path: Path) -> None:
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 1), (4,))
    question = question_of(np.full(4, 0.5, np.float32), 0, 3, WIDE, np.array([0, 0, 1, 1]))
    proof = proof_of(network, question)
    roots = np.array([(1, 0, -1), (2, 1, -1), (1, 2, 1), (2, 3, 1)])
    leaves = np.array([[-1, -1, -1, 0], [-1, -1, -1, 0], [-1, -1, -1, 1], [-1, -1, -1, 1]])
    slopes = np.zeros((2, len(opens(proof))), np.uint8)
    slopes[1] = np.random.default_rng(0).integers(0, 256, slopes.shape[1])
    for given in (slopes, slopes[::-1]):
        alone = [
            checker.derive(network, question, replace(proof, roots=roots[:2], tree=leaves[at : at + 2], slopes=given))
            for at in (0, 2)
        ]
        both = checker.derive(network, question, replace(proof, roots=roots, tree=leaves, slopes=given))
        assert both.full == alone[0].full
        assert both.frozen[0] == alone[0].frozen[0]
        assert both.frozen[1] <= min(alone[0].frozen[1], alone[1].frozen[1])
        assert alone[0].full != alone[1].full


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_forms_through_relu_are_nowhere_smaller_on_their_leaf(slope: float) -> None:
    """One unit, forms of both signs, slopes, multipliers and sides at random, at the ends of the leaf and between."""
    random = np.random.default_rng(7)
    for _ in range(200):
        low, high = -float(np.float32(random.random())), float(np.float32(random.random()))
        a = np.rint(random.normal(size=(1, 1)) * 2.0**20)
        side = int(random.integers(-1, 2))
        g = np.float16(random.normal() * random.choice([0, 0.1, 1, 100]))
        own = checker.Choices(random.integers(0, 256, (1, 1)).astype(np.uint8), np.array([[g]]), np.array([[side]]))
        rows = checker.Rows(a, np.array([-20]))
        form, added = checker.through_relu(slope, rows, np.array([low]), np.array([high]), own)
        start, end = (0.0 if side > 0 else low), (0.0 if side < 0 else high)
        factor = Fraction(float(form.coefficients[0, 0])) * Fraction(2) ** int(form.places[0])
        for z in (Fraction(start), Fraction(end), Fraction(start) / 2 + Fraction(end) / 2, Fraction(0)):
            value = Fraction(float(a[0, 0])) / 2**20 * max(z, Fraction(slope) * z)
            assert value <= factor * z + Fraction(float(added[0]))
