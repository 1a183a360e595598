"""Derived bounds: never below a value of the network over the reals or in float32, and close to the library's own."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, mlp_file, outward, proof_of, question_of

WIDTHS = (4, 5, 4, 3)


def layers_of(model: Path) -> list[tuple[Array, Array]]:
    """The weights and biases of a file by mlp_file."""
    held = {one.name: numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer}
    return [(held[f"w{i}"], held[f"b{i}"]) for i in range(len(held) // 2)]


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
    low, high = (side.astype(np.float64) for side in question.sides)  # exact: the rounded ends are what is tested
    steps = np.where(random.random((count, len(low))) < 0.5, -low, high) * random.choice([1, 1, 0.5], (count, 1))
    if question.norm != "inf":
        steps *= (random.random(steps.shape) < 0.5) | (question.norm == "2")
        norm = np.linalg.norm(steps, int(question.norm), axis=1, keepdims=True)
        steps *= np.minimum(1, float(question.eps) / np.maximum(norm, 1e-30))
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
        question = question_of(random.random(4).astype(np.float32), seed % 3, 3, ball)
        both, alone = checker.Prover(network, question).derive(proof_of(network, question))
        points = drawn(question, random, 40)
        assert len(points)
        layers = layers_of(tmp_path / "m.onnx")
        reals = [overlap(exact(layers, [Fraction(float(v)) for v in point]), seed % 3) for point in points[:20]]
        assert max(reals) <= Fraction(float(alone[0])) < Fraction(float(both[0]))
        floats = [float(overlap(in_float32(layers, p, random).astype(np.float64), seed % 3)) for p in points]
        assert max(floats) <= both[0]
        if ball["eps"] == "0":
            assert both[0] - float(max(reals)) < 1e-5
            assert alone[0] - float(max(reals)) < 1e-7


def test_lower_ends_at_points_are_reached_in_every_order_and_over_the_reals(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    for seed in range(6):
        network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, seed), (4,))
        question = question_of(random.random(4).astype(np.float32), seed % 3, 3, {**BALL, "eps": "0.5"})
        points, layers = drawn(question, random, 12), layers_of(tmp_path / "m.onnx")
        both, alone = (checker.Prover(network, question, points, reals).overlaps() for reals in (False, True))
        for point, least, real in zip(points, both.tolist(), alone.tolist(), strict=True):
            true = overlap(exact(layers, [Fraction(float(v)) for v in point]), seed % 3)
            assert Fraction(least) < Fraction(real) <= true
            assert true - Fraction(real) < Fraction(1, 10**6)
            assert true - Fraction(least) < Fraction(1, 2 * 10**5)
            runs = [in_float32(layers, point, random).astype(np.float64) for _ in range(20)]
            assert least <= min(float(overlap(run, seed % 3)) for run in runs)


def test_members_are_bounded_with_their_group_frozen(tmp_path: Path) -> None:
    random, mask = np.random.default_rng(1), np.array([0, 0, 1, 1])
    for seed in range(4):
        network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, seed), (4,))
        x = random.random(4).astype(np.float32)
        question = question_of(x, 0, 3, mask=mask)
        both, derived = checker.Prover(network, question).derive(proof_of(network, question))
        assert (derived[1:] <= derived[0]).all()
        assert (derived < both).all()
        for u in range(2):
            points = np.where(mask == u, x, drawn(question_of(x, 0, 3), random, 30))
            values = [overlap(exact(layers_of(tmp_path / "m.onnx"), [*map(Fraction, p.tolist())]), 0) for p in points]
            assert max(values) <= Fraction(float(derived[1 + u]))


def test_intervals_of_hidden_entries_hold_what_float32_computes(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 3), (4,))
    question = question_of(random.random(4).astype(np.float32), 0, 3)
    proof = proof_of(network, question)
    for point in drawn(question, random, 50):
        z = in_float32(layers_of(tmp_path / "m.onnx")[:2], point, random)
        assert (proof["intervals"][0, 5:] <= z).all()
        assert (z <= proof["intervals"][1, 5:]).all()


def test_an_interval_that_is_too_tight_is_rejected(tmp_path: Path) -> None:
    network = checker.read_network(mlp_file(tmp_path / "m.onnx", WIDTHS, 0), (4,))
    question = question_of(np.full(4, 0.5, np.float32), 0, 3)
    for node in (node for node in network.nodes if node.op == "relu"):
        for side, way in enumerate((np.inf, -np.inf)):
            proof = proof_of(network, question)
            ends = proof["intervals"][side, node.first : node.first + node.count]
            ends[:] = np.nextafter(np.nextafter(ends, np.float32(way)), np.float32(way))
            with pytest.raises(checker.Rejected, match=f"interval of node {node.inputs[0]} is not proven"):
                checker.Prover(network, question).derive(proof)


def test_sums_of_both_signs_are_exact() -> None:
    """Slices and forms against Fractions, where float64 alone would lose all."""
    random = np.random.default_rng(3)
    value = np.ldexp(random.normal(size=300), random.integers(-60, 60, 300)).astype(np.float32)
    scale = np.ldexp(1.0, np.arange(-2, 3))
    forms = checker.Forms(np.arange(300), np.rint(random.normal(size=(300, 5)) * 2.0**20).clip(-(2**22), 2**22) * scale)
    found = forms.of(value.astype(np.float64)[:, None])
    for i in range(5):
        terms = zip(forms.a[:, i].tolist(), value.tolist(), strict=True)
        true = sum(Fraction(a) * Fraction(v) for a, v in terms)
        assert true <= Fraction(float(found[i]))
        most = np.abs(forms.a[:, i]).sum() * np.abs(value).max() * 2.0**-30
        assert Fraction(float(found[i])) - true <= Fraction(float(most))


def test_what_rounding_takes_is_given_back() -> None:
    random = np.random.default_rng(4)
    scale = np.ldexp(1.0, np.array([3, -8, 0]))
    parts = [
        checker.Forms(np.arange(at, at + 30), np.rint(random.normal(size=(30, 3)) * 2.0**50) * scale) for at in (0, 7)
    ]
    reach = random.random((40, 1))
    forms, lost = checker.Forms.rounded(parts, -reach, reach / 2)
    assert forms.at.tolist() == list(range(37))
    for i in range(3):
        assert (forms.a[:, i] / 2.0 ** (np.frexp(np.abs(forms.a[:, i]).max())[1] - checker.BITS) % 1 == 0).all()
        off = [
            abs(sum(Fraction(p.a[j - p.at[0], i]) for p in parts if j in p.at) - Fraction(forms.a[j, i]))
            * Fraction(reach[j, 0])
            for j in range(37)
        ]
        assert sum(off) <= Fraction(float(lost[i]))


def bent(slope: float, forms: checker.Forms, low: Array, high: Array, *own: Array) -> tuple[Array, Array]:
    """Coefficients (s, R) of relu's inputs in [low, high] (s,), multipliers included, and what is added."""
    network = checker.Network(nodes=[], units=0)
    node = network.relu(network.add("input", [], low.shape), slope)
    prover = checker.Prover(network, question_of(np.zeros(len(low), np.float32), 0, 2))
    prover.lower[0], prover.upper[0] = low[:, None], high[:, None]
    parts, added = prover.bend(node, forms, checker.Leaf(*own) if own else None)
    return sum(part.over(forms.at) for part in parts), added  # type: ignore[return-value]


def test_a_line_above_relu_is_above_it_at_both_ends() -> None:
    low, high = outward(-np.geomspace(1e-6, 1e3, 50), np.geomspace(1e3, 1e-6, 50))
    wide = low.astype(np.float64), high.astype(np.float64)
    for slope in (0.0, float(np.float32(0.1))):
        forms, added = bent(slope, checker.Forms(np.arange(50), np.eye(50)), *wide)
        for i in range(50):
            for z in (wide[0][i], wide[1][i], 0.0):
                line = Fraction(forms[i, i]) * Fraction(z)
                assert max(Fraction(z), Fraction(slope) * Fraction(z)) <= line + Fraction(float(added[i]))


def test_float64_sums_are_rounded_up() -> None:
    random = np.random.default_rng(5)
    terms = list(np.ldexp(random.normal(size=(6, 200)), random.integers(-40, 40, (6, 200))))
    for i, found in enumerate(checker.total(*terms)):
        assert sum(Fraction(float(term[i])) for term in terms) <= Fraction(float(found))
    assert checker.total(np.ones(1), np.full(1, 2.0**-60))[0] > 1
    a, b = random.random((2, 400))
    assert sum(Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)) <= Fraction(
        float(checker.sum_rounded_up(a @ b))
    )
    assert Fraction(1) + 2 ** Fraction(-60) < Fraction(float(checker.sum_rounded_up(np.array([1.0]))[0]))


def test_sums_that_cancel_cancel_exactly() -> None:
    """Terms of 2^52 units whose sum is 0: one that rounds on the way would not find it."""
    random = np.random.default_rng(6)
    value, coefficient = np.rint(random.random(300) * 2.0**30) / 2.0**30, np.rint(random.random(300) * 2.0**22)
    order = random.permutation(600)
    forms = checker.Forms(np.arange(600), np.concatenate([coefficient, -coefficient])[order, None])
    assert 0 <= forms.of(np.concatenate([value, value])[order, None])[0] < 1e-200


def test_what_slices_leave_of_a_number_is_added() -> None:
    """Numbers 2^0, 2^-30, ... that cancel in pairs, but for one beyond what is sliced."""
    value = np.append(np.repeat(np.ldexp(1.0, np.arange(0, -180, -30)), 2), 2.0**-180)
    signs = np.append(np.tile([1.0, -1.0], 6), 1.0)
    assert checker.Forms(np.arange(13), signs[:, None]).of(value[:, None])[0] >= 2.0**-180
