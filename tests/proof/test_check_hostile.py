"""Networks that fool float32: what is derived holds for every order of summation, and for the reals."""

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, onnx_file, proof_of, question_of
from tests.proof.test_check import drawn

POINT = {**BALL, "eps": "0", "domain": None}


def derived(path: Path, weights: list[Array], x: Array) -> float:
    nodes, at = [], "x"
    for i, _ in enumerate(weights):
        z = "y" if i == len(weights) - 1 else f"z{i}"
        nodes.append(helper.make_node("Gemm", [at, f"w{i}"], [z], transB=1))
        nodes += [] if z == "y" else [helper.make_node("Relu", [z], [at := f"h{i}"])]
    model = onnx_file(path / "m.onnx", [1, len(x)], nodes, {f"w{i}": w for i, w in enumerate(weights)})
    network = checker.read_network(model, x.shape)
    question = question_of(x, 0, 2, POINT)
    return float(checker.Prover(network, question).derive(proof_of(network, question))[0, 0])


@pytest.mark.parametrize("hidden", [False, True])
def test_cancelling_weights_in_every_order(hidden: bool, tmp_path: Path) -> None:
    """2^24 + 1 - 2^24 is 1, or 0 in float32; a backdoor fires on that."""
    row = np.array([2.0**24, 1, 1, -(2.0**24)], np.float32)
    seen = {float(np.float32(0) + sum(order, start=np.float32(0))) for order in itertools.permutations(row)}
    assert len(seen) > 1
    for sign in (1, -1):
        last = np.stack([0 * row, sign * row])
        weights = [last[1:], np.array([[0], [1]], np.float32)] if hidden else [last]
        bound = derived(tmp_path, weights, np.ones(4, np.float32))
        assert max([max(sign * value, 0) if hidden else sign * value for value in {*seen, 2.0}]) <= bound


def test_the_last_bit_of_a_product_counts(tmp_path: Path) -> None:
    """One weight, one input: float32 rounds their product up by nearly half a unit."""
    values = np.float32(1) + np.arange(1, 200, dtype=np.float32) * np.float32(2**-23)
    for weight in values[::7]:
        x = values[values * np.float64(weight) < (values * weight)][:1]
        if len(x):
            bound = derived(tmp_path, [np.array([[0], [weight]], np.float32)], x)
            assert float(x[0] * weight) <= bound


def test_denormals_that_are_flushed(tmp_path: Path) -> None:
    """-2^-140 computed as 0."""
    bound = derived(tmp_path, [np.array([[0], [-(2.0**-70)]], np.float32)], np.array([2.0**-70], np.float32))
    assert bound >= 0
    bound = derived(tmp_path, [np.array([[0], [2.0**-140]], np.float32)], np.array([-(2.0**10)], np.float32))
    assert bound >= 0


def test_denormals_that_are_flushed_on_the_way(tmp_path: Path) -> None:
    """A thousand products of 2^-127, each computed as 0, would add up to 2^-117, and are made large: -2^-57 is 0."""
    small, large = np.full((1, 1000), 2.0**-67, np.float32), np.array([[0], [-(2.0**60)]], np.float32)
    assert derived(tmp_path, [small, large], np.full(1000, 2.0**-60, np.float32)) >= 0


def test_what_overflows_is_undecided(tmp_path: Path) -> None:
    weight = np.array([[0], [-3e38]], np.float32)
    with pytest.raises(checker.Rejected, match="undecided"):
        derived(tmp_path, [weight], np.array([2.0], np.float32))


def test_small_weights_beside_large_ones_are_not_lost(tmp_path: Path) -> None:
    """The part of the weights that the slices omit is counted in the radius."""
    weight = np.array([[0, 0], [2.0**90, 2.0**-20]], np.float32)
    assert derived(tmp_path, [weight], np.array([0, 1], np.float32)) >= 2.0**-20
    assert checker.Forms(np.arange(2), np.array([[1.0], [0.0]])).of(np.array([2.0**-20, 2.0**100]))[0] >= 2.0**-20
    weight = np.array([[0, 0, 0], [2.0**80, 2.0**30, 2.0**-20]], np.float32)
    assert derived(tmp_path, [weight], np.array([0, 0, 1], np.float32)) >= 2.0**-20
    spread = np.ldexp(1.0, np.array([200, 150, 100, 50, 0]))
    assert checker.Forms(np.arange(5), np.eye(5)[:, 4:]).of(spread)[0] >= 1


def test_a_ball_that_ends_at_the_domain() -> None:
    """Sides are never inside the ball, and points on its edge lie in it."""
    question = question_of(np.array([0.0, 1.0, 0.09], np.float32), 0, 2, {**BALL, "eps": "0.1"})
    assert (question.lower[0], question.upper[1]) == (pytest.approx(0, abs=1e-200), pytest.approx(0, abs=1e-200))
    question.hold(np.array([[0.1, 0.9, 0.0]], np.float32) * np.float32(1 - 2**-20) + np.array([0, 1e-5, 0], np.float32))
    quarter = question_of(np.array([0.5], np.float32), 0, 2, {**BALL, "eps": "0.25"})
    quarter.hold(np.array([[0.75]], np.float32))
    with pytest.raises(checker.Rejected):
        quarter.hold(np.nextafter(np.array([[0.75]], np.float32), np.float32(1)))
    tenth = question_of(np.zeros(1, np.float32), 0, 2, {**BALL, "eps": "0.1"})
    with pytest.raises(checker.Rejected):
        tenth.hold(np.array([[0.1]], np.float32))  # float32's 0.1 is above 1/10
    assert Fraction(float(tenth.upper[0])) >= Fraction(1, 10) == tenth.eps
    assert len(drawn(question, np.random.default_rng(0), 5)) == 5


def test_half_and_relative_balls_have_the_sides_they_say() -> None:
    x = np.array([0.5, 0.25], np.float32)
    for half, sides in (("+", (0, 0.125)), ("-", (-0.125, 0))):
        question = question_of(x, 0, 2, {**BALL, "eps": "0.125", "half": half})
        assert (question.lower == pytest.approx(sides[0])) & (question.upper == pytest.approx(sides[1]))
    question = question_of(x, 0, 2, {**BALL, "eps": "0.5", "domain": ["-1", "1"], "relative": True})
    assert question.lower == pytest.approx([-0.75, -0.625])
    assert question.upper == pytest.approx([0.25, 0.375])


@pytest.mark.parametrize("eps", ["0.1", "0.3", "0.7", "1e-05", (1 / 3).hex()])
def test_a_radius_is_what_is_written(eps: str) -> None:
    exactly = Fraction(float.fromhex(eps)) if "x" in eps else Fraction(eps)
    question = question_of(np.zeros(1, np.float32), 0, 2, {**BALL, "eps": eps})
    assert question.eps == exactly <= Fraction(float(question.upper[0]))
    assert Fraction(float(question.upper[0])) - exactly < Fraction(2e-16)


@pytest.mark.parametrize(("norm", "dual"), [("inf", 1), ("2", 2), ("1", np.inf)])
def test_suprema_are_the_dual_norms(norm: str, dual: float) -> None:
    random, mask = np.random.default_rng(0), np.array([0, 1, 1, 2])
    question = question_of(np.full(4, 0.5, np.float32), 0, 2, {**BALL, "norm": norm, "eps": "0.125"}, mask)
    scale = np.ldexp(1.0, np.arange(-24, -15))
    a = np.rint(random.normal(size=(4, 9)) * 2.0**20) * (random.random((4, 9)) < 0.6) * scale
    found = question.suprema(checker.Forms(np.arange(4), a))
    for member in range(4):
        value = np.linalg.norm(a * (mask != member - 1)[:, None], dual, axis=0) * 0.125
        assert (value * (1 - 1e-15) <= found[member]).all()
        assert (found[member] <= value * (1 + 1e-6) + 1e-200).all()


def largest_in_both(a: Array, room: Array, eps: float, p: int) -> float:
    """The largest Σ a_i t_i where 0 <= t_i <= room_i and Σ t_i^p <= eps^p, over every set of variables at their ends.

    The rest of the radius goes to one of the others for p = 1. For p = 2 the others are multiples of a.
    """
    best = 0.0
    for bits in itertools.product([False, True], repeat=len(a)):
        full = np.array(bits) & (room > 0)
        rest, others = eps**p - (room[full] ** p).sum(), ~full & (room > 0)
        if rest < 0:
            continue
        tried = np.eye(len(a))[others] if p == 1 else (a * others)[None]
        for way in tried:
            ends = np.where(way > 0, room / np.maximum(way, 1e-300), np.inf).min()  # where the first reaches its end
            t = np.where(full, room, way * min(rest ** (1 / p) / max(np.linalg.norm(way, p), 1e-300), ends))
            best = max(best, float(a @ t))
    return best


@pytest.mark.parametrize("eps", ["0.2", "0.9"])
@pytest.mark.parametrize("norm", ["1", "2"])
def test_suprema_over_a_ball_inside_a_domain_are_exact(norm: str, eps: str) -> None:
    """The supremum over the common part of box and ball is below both of theirs."""
    random, mask = np.random.default_rng(1), np.array([0, 1, 1, 2, 2])
    x = np.array([0.5, 0.125, 0.9375, 0.0, 1.0], np.float32)
    question = question_of(x, 0, 2, {**BALL, "norm": norm, "eps": eps}, mask)
    a = np.rint(random.normal(size=(5, 12)) * 2.0**20) * np.ldexp(1.0, np.arange(-26, -14))
    found, below = question.suprema(checker.Forms(np.arange(5), a)), 0
    up, down = (np.minimum(side, float(eps))[:, None] for side in (1 - x.astype(float), x.astype(float)))
    room = np.where(a > 0, up, down)
    for row, (size, ends) in enumerate(zip(np.abs(a).T, room.T, strict=True)):
        for member in range(4):
            moves = ends * (mask != member - 1)
            value = largest_in_both(size, moves, float(eps), int(norm))
            assert value * (1 - 1e-12) <= found[member, row]
            if member == 0:
                dual = np.linalg.norm(size * (moves > 0), np.inf if norm == "1" else 2) * float(eps)
                assert found[0, row] <= value * (1 + 1e-6)
                below += value < 0.99 * min(dual, float(size @ moves))
    assert below >= 3


@pytest.mark.parametrize("size", [1e-170, 1e200])
@pytest.mark.parametrize("norm", ["1", "2"])
def test_suprema_of_extreme_radii_neither_overflow_nor_vanish(norm: str, size: float) -> None:
    """The squares of these radii are 0 or infinite in float64."""
    ends = size * np.array([1.0, 1.0, 1.0, 0.25, 0.0])
    ball = {**BALL, "norm": norm, "eps": size.hex(), "domain": [-ends, ends]}
    question = question_of(np.zeros(5, np.float32), 0, 2, ball)
    a = 2.0**-100 * np.array([[1.0], [-1.0], [1.0], [-0.5], [4.0]])
    found = question.suprema(checker.Forms(np.arange(5), a))[0, 0] * 2.0**100 / size
    value = 1.0 if norm == "1" else 0.125 + (3 * 15 / 16) ** 0.5  # the fourth variable reaches its end
    assert value * (1 - 1e-12) <= found < 3.2


def orders(terms: Array, random: np.random.Generator) -> list[Array]:
    """Orders that let a running sum be as large as it can be, and some others."""
    signs, sizes = np.sign(terms), np.abs(terms)
    found = [np.lexsort((sizes, -signs)), np.lexsort((-sizes, -signs)), np.lexsort((-sizes, signs))]
    return [*found, np.argsort(-sizes), np.argsort(sizes), *(random.permutation(len(terms)) for _ in range(4))]


@pytest.mark.parametrize("kind", ["mixed", "of one sign", "alike", "mostly zero", "single"])
@pytest.mark.parametrize("fused", [False, True])
def test_no_order_of_a_sum_adds_more_than_its_radius(kind: str, fused: bool, tmp_path: Path) -> None:
    """And the radius is not far above what orders add: it counts the terms that are there, and one side of the sum."""
    random, nearest = np.random.default_rng(11), 0.0
    for size in (1, 2, 3, 40, 400):
        weight = random.normal(size=size) if kind != "alike" else np.full(size, 1 / 3)
        weight = (np.abs(weight) if kind in ("of one sign", "single") else weight).astype(np.float32)
        x = (random.random(size) if kind != "alike" else np.full(size, 0.7)).astype(np.float32)
        x[1:] *= kind != "single"
        x[random.random(size) < 0.9] *= kind != "mostly zero"
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
        held = {"w": np.stack([weight, -weight]), "b": np.array([0.1, -0.1], np.float32)}
        network = checker.read_network(onnx_file(tmp_path / "m.onnx", [1, size], [node], held), (size,))
        (radius, _), _ = checker.Prover(network, question_of(x, 0, 2, POINT), x[None]).radius[-1][:, :, 0]
        true = sum((Fraction(float(w)) * Fraction(float(v)) for w, v in zip(weight, x, strict=True)), Fraction(0))
        true += Fraction(float(held["b"][0]))
        terms = np.append(weight.astype(np.float64) * x, held["b"][0])
        for order in orders(terms, random):
            value = np.float32(0)
            for k in order:
                value = np.float32(np.float64(value) + (terms[k] if fused else np.float64(np.float32(terms[k]))))
            off = abs(Fraction(float(value)) - true)
            assert off <= Fraction(float(radius))
            nearest = max(nearest, float(off / Fraction(float(radius))))
    assert nearest > 0.05


def test_constants_that_float64_rounds_are_covered_over_the_reals(tmp_path: Path) -> None:
    """1 / 3 is no float64: over the reals the bound has to be that of a third."""
    below = 0
    for number in range(3, 60, 2):
        held = {"c": np.array([1, -number], np.float32)}
        nodes = [helper.make_node("Div", ["x", "c"], ["y"])]
        network = checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 2], nodes, held), (2,))
        for value in np.array([1.0, 0.7, -0.9], np.float32):
            x = np.array([0, value], np.float32)
            question = question_of(x, 0, 2, POINT)
            most = checker.Prover(network, question).derive(proof_of(network, question))[1, 0]
            least = checker.Prover(network, question, x[None], True).overlaps()[0]
            true = Fraction(float(value)) / -number
            assert Fraction(float(least)) <= true <= Fraction(float(most))
            below += Fraction(float(value) * (-1 / number)) != true
    assert below
