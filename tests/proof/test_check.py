"""Derived bounds: never below a value of the network over the reals or in float32, and close to the library's own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, mlp_file, outward, proof_of, question_of

WIDTHS = (4, 5, 4, 3)


def layers_of(network: checker.Network) -> list[tuple[Array, Array]]:
    return [(n.map.weight, n.bias) for n in network.nodes if n.op == "linear"]


def exact(layers: list[tuple[Array, Array]], x: list[Fraction]) -> list[Fraction]:
    """The logits over the reals."""
    for i, (weight, bias) in enumerate(layers):
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        z = [sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(b)) for row, b in rows]
        x = z if i == len(layers) - 1 else [max(v, Fraction(0)) for v in z]
    return x


def in_float32(layers: list[tuple[Array, Array]], x: Array, random: np.random.Generator) -> Array:
    """The logits in float32, terms added one by one in some order."""
    for i, (weight, bias) in enumerate(layers):
        z = []
        for row, b in zip(weight, bias, strict=True):
            terms = [*(np.float32(w) * v for w, v in zip(row, x, strict=True)), np.float32(b)]
            value = np.float32(0)
            for k in random.permutation(len(terms)):
                value = value + terms[k]
            z.append(value)
        x = np.array(z) if i == len(layers) - 1 else np.maximum(np.array(z), np.float32(0))
    return x


def overlap(logits: Any, target: int) -> Any:
    return max(v for c, v in enumerate(logits) if c != target) - logits[target]


def balls() -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = [{}, {"norm": "2", "eps": "0.1"}, {"norm": "1", "eps": "0.2"}, {"half": "+"}]
    changes += [{"half": "-"}, {"relative": True, "eps": "0.1"}, {"domain": None}, {"eps": "0"}, {"eps": "0.3"}]
    return [{**BALL, **change} for change in changes]


def drawn(question: checker.Question, random: np.random.Generator, count: int) -> Array:
    """Float32 points of B, many at its corners: (count, n)."""
    low, high = question.lower, question.upper
    steps = np.where(random.random((count, len(low))) < 0.5, low, high) * random.choice([1, 1, 0.5], (count, 1))
    if question.norm != "inf":
        steps *= (random.random(steps.shape) < 0.5) | (question.norm == "2")
        norm = np.linalg.norm(steps, int(question.norm), axis=1, keepdims=True)
        steps *= np.minimum(1, question.inner / np.maximum(norm, 1e-30))
    near = (question.x + steps * (1 - 2**-20)).astype(np.float32)
    inside: Array = near[[_holds(question, point) for point in near]]
    return inside


def _holds(question: checker.Question, point: Array) -> bool:
    try:
        question.hold(point[None])
    except checker.Rejected:
        return False
    return True


@pytest.mark.parametrize("ball", balls(), ids=str)
def test_no_point_of_the_ball_is_above_what_is_derived(ball: dict[str, Any], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for seed in range(4):
        network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, seed), (4,))
        x = random.random(4).astype(np.float32)
        question = question_of(x, seed % 3, 3, ball)
        derived = checker.derive(network, question, proof_of(network, question))
        points = drawn(question, random, 40)
        assert len(points)
        layers = layers_of(network)
        reals = [overlap(exact(layers, [Fraction(float(v)) for v in point]), seed % 3) for point in points[:20]]
        assert max(reals) <= Fraction(derived.full)
        floats = [float(overlap(in_float32(layers, p, random).astype(np.float64), seed % 3)) for p in points]
        assert max(floats) <= derived.full
        if ball["eps"] == "0":
            assert derived.full - float(max(reals)) < 1e-5


def test_members_are_bounded_with_their_group_frozen(tmp_path: Path) -> None:
    random, mask = np.random.default_rng(1), np.array([0, 0, 1, 1])
    for seed in range(4):
        network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, seed), (4,))
        x = random.random(4).astype(np.float32)
        question = question_of(x, 0, 3, mask=mask)
        derived = checker.derive(network, question, proof_of(network, question))
        assert (derived.frozen <= derived.full).all()
        for u in range(2):
            points = np.where(mask == u, x, drawn(question_of(x, 0, 3), random, 30))
            values = [overlap(exact(layers_of(network), [Fraction(float(v)) for v in p]), 0) for p in points]
            assert max(values) <= Fraction(float(derived.frozen[u]))


def test_intervals_of_hidden_entries_hold_what_float32_computes(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 3), (4,))
    question = question_of(random.random(4).astype(np.float32), 0, 3)
    proof = proof_of(network, question)
    for point in drawn(question, random, 50):
        z = in_float32(layers_of(network)[:2], point, random)
        assert (proof.lower[1] <= z).all()
        assert (z <= proof.upper[1]).all()


def test_an_interval_that_is_too_tight_is_rejected(tmp_path: Path) -> None:
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 0), (4,))
    question = question_of(np.full(4, 0.5, np.float32), 0, 3)
    for k in range(2):
        for side, way in (("lower", np.inf), ("upper", -np.inf)):
            proof = proof_of(network, question)
            ends = getattr(proof, side)[k]
            ends[:] = np.nextafter(np.nextafter(ends, np.float32(way)), np.float32(way))
            with pytest.raises(checker.Rejected, match=f"interval of relu {k} is not proven"):
                checker.derive(network, question, proof)


def test_sums_of_both_signs_are_exact() -> None:
    """Slices and forms against Fractions, where float64 alone would lose all."""
    random = np.random.default_rng(3)
    value = np.ldexp(random.normal(size=300), random.integers(-60, 60, 300)).astype(np.float32)
    rows = checker.Rows(np.rint(random.normal(size=(5, 300)) * 2.0**25).clip(-(2**27), 2**27), np.arange(-2, 3))
    found = checker.form_at(rows, value.astype(np.float64))
    for i in range(5):
        terms = zip(rows.coefficients[i].tolist(), value.tolist(), strict=True)
        true = sum(Fraction(a) * Fraction(v) for a, v in terms) * Fraction(2) ** (i - 2)
        assert true <= Fraction(float(found[i]))
        most = np.abs(rows.coefficients[i]).sum() * np.abs(value).max() * 2.0 ** (i - 2 - 30)
        assert Fraction(float(found[i])) - true <= Fraction(float(most))


def test_what_the_grid_takes_is_given_back() -> None:
    random = np.random.default_rng(4)
    parts = [(np.rint(random.normal(size=(3, 40)) * 2.0**50), np.array([3, -8, 0])) for _ in range(2)]
    reach = random.random(40)
    rows, lost = checker.on_grid(parts, reach)
    assert np.abs(rows.coefficients).max() <= 2**26
    for i in range(3):
        for sign in (-1, 1):
            for_all = sum(
                abs(sum(Fraction(p[i, j]) * Fraction(2) ** int(e[i]) for p, e in parts)
                    - Fraction(rows.coefficients[i, j]) * Fraction(2) ** int(rows.places[i])) * Fraction(reach[j])
                for j in range(40)
            )  # fmt: skip
            assert sign * for_all <= Fraction(float(lost[i]))


def test_a_line_above_relu_is_above_it_at_both_ends() -> None:
    low, high = outward(-np.geomspace(1e-6, 1e3, 50), np.geomspace(1e3, 1e-6, 50))
    rows = checker.Rows(np.eye(50) * 2.0**20, np.full(50, -20))
    wide = low.astype(np.float64), high.astype(np.float64)
    for slope in (0.0, float(np.float32(0.1))):
        forms, added = checker.through_relu(slope, rows, *wide, checker.Choices())
        for i in range(50):
            for z in (wide[0][i], wide[1][i], 0.0):
                line = Fraction(forms.coefficients[i, i]) * Fraction(2) ** int(forms.places[i]) * Fraction(z)
                assert max(Fraction(z), Fraction(slope) * Fraction(z)) <= line + Fraction(float(added[i]))


def test_float64_sums_are_rounded_up() -> None:
    random = np.random.default_rng(5)
    terms = list(np.ldexp(random.normal(size=(6, 200)), random.integers(-40, 40, (6, 200))))
    for i, found in enumerate(checker.total(*terms)):
        assert sum(Fraction(float(term[i])) for term in terms) <= Fraction(float(found))
    assert checker.total(np.ones(1), np.full(1, 2.0**-60))[0] > 1
    a, b = random.random((2, 400))
    assert sum(Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)) <= Fraction(float(checker.above(a @ b)))
    assert Fraction(1) + 2 ** Fraction(-60) < Fraction(float(checker.above(np.array([1.0]))[0]))


def test_sums_that_cancel_cancel_exactly() -> None:
    """Terms of 2^57 units whose sum is 0: one that rounds on the way would not find it."""
    random = np.random.default_rng(6)
    value, coefficient = np.rint(random.random(300) * 2.0**30) / 2.0**30, np.rint(random.random(300) * 2.0**27)
    order = random.permutation(600)
    rows = checker.Rows(np.concatenate([coefficient, -coefficient])[None, order], np.zeros(1, int))
    assert 0 <= checker.form_at(rows, np.concatenate([value, value])[order])[0] < 1e-200
