"""Searches with all roundings: what they prove holds over the reals and in float32, in any order of summation."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from itertools import pairwise, product
from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proofmap as pm
from fuzz.hunting.counting import counted
from fuzz.hunting.hostile import Array, Hostile, hostile
from fuzz.hunting.searches import few_steps
from proofmap.attack import lower_bounds, restarts
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.errors import BoundError
from proofmap.rounding.point_bounds import lower_bounds_at_points, rounding_of_bounds, unit_lower_bounds
from proofmap.rounding.search_errors import (
    FLOAT64_UNIT,
    add_evaluation_error,
    enlarge_balls,
    largest_preactivation,
    row_bound_error,
)
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice, bound_rows, unit_lines
from proofmap.search.branch_and_bound import SearchTree
from proofmap.search.exact import units_of_balls
from proofmap.search.frontier import SearchResult
from proofmap.search.input_splitting import BallGeometry
from proofmap.search.unstable_units import UnitRows, Units
from proofmap.verify.objective import Objective, forms_of
from tests.bounds.setting import BUDGET
from tests.search.setting import BALLS, GAP, MASK, STRAIGHT, exact_overlaps, hidden_of, network, setting

SINGLE = 2.0**-24
module = import_module("proofmap.search.exact")


def wild(seed: int) -> Hostile:
    """Two hidden layers that bend near x, and whose large products cancel: float32 loses digits, float64 some."""
    rng = np.random.default_rng(seed)
    sizes, parts = (3, 6, 5, 3), []
    x = rng.uniform(0.3, 0.7, sizes[0]).astype(np.float32)
    value: Any = x
    for n, m in pairwise(sizes):
        weight = rng.normal(size=(m, n))
        if m > sizes[-1]:
            weight[m // 2 :] += 1e3 * rng.normal(size=n)  # rows that nearly agree
        bias = 0.05 * rng.normal(size=m) * np.abs(weight).sum(1) - weight @ value
        parts.append((weight.astype(np.float32), bias.astype(np.float32)))
        value = np.maximum(weight @ value + bias, 0)
    made = Hostile("wild", tuple(parts), x, pm.Ball(0.2, domain=(0.0, 1.0)), 0)
    exact = made._exact(x)
    return replace(made, target=exact.index(max(exact)))


def asked(one: Hostile) -> tuple[pm.Graph, pm.Family, Tensor]:
    """In float64, with balls no smaller than stated; and the margins."""
    graph = one.graph.to(torch.device("cpu"), torch.float64)
    family = enlarge_balls(one.ball.at(torch.tensor(one.x)[None], torch.arange(len(one.x))), SINGLE)
    return graph, family, forms_of(graph(family.x), torch.tensor([one.target]), None, "margin")[0]


def units_of(one: Hostile) -> Units:
    graph, family, forms = asked(one)
    found = units_of_balls(graph, family, forms, hidden_of(graph, family, rigorous=True), BUDGET, rigorous=True)
    assert found is not None
    return found


def known_of(one: Hostile) -> Mapping[str, Interval]:
    """Intervals of all layers, with all roundings."""
    graph, family, _ = asked(one)
    plan = replace(Backward().plans[0], rigorous=True)
    return bound_nodes(graph, Cases(family), plan, BUDGET, LayerProgress.of(graph, 1, back=True))[0].intervals


def open_entries(one: Hostile) -> list[list[int]]:
    """Return the entries of every layer that are units."""
    known = known_of(one)
    ends = [known[f"l{k}"] for k in range(len(one.layers) - 1)]
    return [((end.lower < 0) & (end.upper > 0))[0].nonzero().flatten().tolist() for end in ends]


def runs(one: Hostile, point: Array, orders: int = 6) -> list[list[list[Fraction]]]:
    """Return every layer's value at a point, before its ReLU: over the reals, and in float32 in several orders."""
    rng, every = np.random.default_rng(0), []
    for order in range(-1, orders):
        value: Any = [Fraction(float(v)) for v in point]
        layers = []
        for weight, bias in one.layers:
            if order < 0:
                rows = zip(weight.tolist(), bias.tolist(), strict=True)
                value = [sum((Fraction(w) * v for w, v in zip(r, value, strict=True)), Fraction(b)) for r, b in rows]
            else:
                total = bias.copy() if order % 2 else np.zeros_like(bias)
                for j in rng.permutation(len(value)):
                    total = total + weight[:, j] * np.float32(float(value[j]))
                value = [Fraction(float(v)) for v in (total if order % 2 else total + bias)]
            layers.append(value)
            value = [max(v, Fraction(0)) for v in value]
        every.append(layers)
    return every


def exactly(rows: UnitRows, delta: list[Fraction], u: list[Fraction]) -> list[Fraction]:
    """weight·δ + bias + mix·u, without a rounding."""

    def times(row: list[float], values: list[Fraction]) -> Fraction:
        return sum((Fraction(a) * v for a, v in zip(row, values, strict=True)), Fraction(0))

    numbers = zip(rows.weight.tolist(), rows.bias.tolist(), rows.mix.tolist(), strict=True)
    return [times(w, delta) + Fraction(b) + times(m, u) for w, b, m in numbers]


def moved(one: Hostile, point: Array) -> list[Fraction]:
    return [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(point, one.x, strict=True)]


def margins(one: Hostile, outputs: list[Fraction]) -> list[Fraction]:
    return [v - outputs[one.target] for c, v in enumerate(outputs) if c != one.target]


def off(units: Units, one: Hostile, points: list[Array], kept: Tensor | None = None) -> tuple[float, float]:
    """The largest share of its radius that a row is off by at points, in all runs; and the most that any is.

    kept: those of the network's units that these are.
    """
    entries, share, most = open_entries(one), Fraction(0), Fraction(0)
    assert units.inputs.radius is not None
    assert units.rows.radius is not None
    radii = [Fraction(r) for r in torch.cat([units.inputs.radius, units.rows.radius]).tolist()]
    for point in points:
        delta = moved(one, point)
        for layers in runs(one, point):
            every = [layers[k][e] for k, of in enumerate(entries) for e in of]
            z = every if kept is None else [every[k] for k in kept.tolist()]
            u = [max(v, Fraction(0)) for v in z]
            said = exactly(units.inputs, delta, u) + exactly(units.rows, delta, u)
            for a, b, radius in zip([*z, *margins(one, layers[-1])], said, radii, strict=True):
                share, most = max(share, abs(a - b) / radius), max(most, abs(a - b))
    return float(share), float(most)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_units_are_off_by_no_more_than_their_radii(seed: int) -> None:
    one = wild(seed)
    share, most = off(units_of(one), one, one.points(12, 1))
    assert most > 1e-3  # as float32 runs it
    assert 0.001 < share <= 1


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_radii_hold_where_units_of_one_sign_are_gone(seed: int) -> None:
    """In a smaller ball some are, and its points obey what is left."""
    one = wild(seed)
    small = replace(one, ball=pm.Ball(0.03, domain=(0.0, 1.0)))
    every, sent, left = units_of(one), open_entries(one), open_entries(small)
    at = [(k, e) for k, of in enumerate(sent) for e in of]
    kept = torch.tensor([n for n, (k, e) in enumerate(at) if e in left[k]])
    known = known_of(small)
    ends = [[getattr(known[f"l{k}"], side)[0, e] for k, e in at] for side in ("lower", "upper")]
    settled = every.eliminate_stable(Interval(*map(torch.stack, ends)))
    assert 0 < len(settled) == len(kept) < len(every)
    share, most = off(settled, one, small.points(12, 1), kept)
    assert most > 1e-3
    assert 0.0001 < share <= 1


def without(units: Units) -> Units:
    """Units that are what their equations say, as if nothing were rounded on the way to them."""
    swing, size = units.swing, largest_preactivation(units.interval)
    assert swing is not None
    inputs, rows = (
        add_evaluation_error(replace(part, radius=torch.zeros_like(part.bias)), size, swing)
        for part in (units.inputs, units.rows)
    )
    return replace(units, inputs=inputs, rows=rows)


def radii(units: Units) -> Tensor:
    assert units.inputs.radius is not None
    assert units.rows.radius is not None
    return torch.cat([units.inputs.radius, units.rows.radius])


def some_above(units: Units) -> Interval:
    """Return the intervals of the units, with the first one and the last restricted to values of at least 0."""
    lower = units.interval.lower.clone()
    lower[[0, -1]] = 0
    return Interval(lower, units.interval.upper)


def test_what_a_unit_is_off_by_is_kept_when_it_is_gone() -> None:
    units = without(units_of(wild(0)))
    closer, off = some_above(units), torch.zeros_like(units.inputs.bias)
    off[0] = 0.25
    moved = replace(units, inputs=replace(units.inputs, bias=units.inputs.bias + off))
    here, there = (one.eliminate_stable(closer) for one in (units, moved))
    changed = torch.cat([there.inputs.bias - here.inputs.bias, there.rows.bias - here.rows.bias]).abs()
    assert float(changed[: len(here)].max()) > 0.1
    assert float(changed[len(here) :].max()) > 0.01
    assert units.inputs.radius is not None
    told = replace(units, inputs=replace(units.inputs, radius=units.inputs.radius + off)).eliminate_stable(closer)
    assert bool((radii(here) < 1e-6 + 0.1 * changed).all())
    assert bool((radii(told) >= changed).all())


def test_a_solution_is_not_trusted() -> None:
    """If the linear solver makes errors, the radii cover them."""
    units = without(units_of(wild(0)))
    closer = some_above(units)
    right, solve = units.eliminate_stable(closer), torch.linalg.solve_triangular

    def wrong(a: Tensor, b: Tensor, **how: Any) -> Tensor:
        found: Tensor = solve(a, b, **how) * (1 + 1e-6)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.linalg, "solve_triangular", wrong)
        about = units.eliminate_stable(closer)
    missed = torch.cat([about.inputs.bias - right.inputs.bias, about.rows.bias - right.rows.bias]).abs()
    assert float(missed.max()) > 1e-6
    assert bool((radii(about) >= missed).all())
    assert float(radii(right).max()) < float(missed.max())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.linalg, "solve_triangular", lambda a, b, **how: 3 * solve(a, b, **how))
        assert len(units.eliminate_stable(closer)) == len(units)  # too far: all stay units


@pytest.mark.parametrize("seed", range(3))
def test_bounds_on_parts_hold_for_every_run(seed: int) -> None:
    """With any slopes and multipliers, and on parts without a bend; there, without what is added for roundings, most
    do not.
    """
    one = wild(seed)
    units, entries, generator = units_of(one), open_entries(one), torch.Generator().manual_seed(seed)
    fails = 0
    for point in one.points(6, 2):
        for layers in runs(one, point):
            z = [layers[k][e] for k, of in enumerate(entries) for e in of]
            at = torch.tensor([float(v) for v in z], dtype=torch.float64)
            low, high = (end.expand(8, -1).clone() for end in (units.interval.lower, units.interval.upper))
            cut = torch.rand(low.shape, generator=generator) < 0.7
            cut[4:] = True
            low, high = torch.where(cut & (at >= 0), 0.0, low), torch.where(cut & (at <= 0), 0.0, high)
            part = Interval(low, high)
            slopes = torch.rand(low.shape, generator=generator, dtype=low.dtype)
            choice = ParameterChoice(slopes, torch.randn(low.shape, generator=generator, dtype=low.dtype))
            choice.multipliers[4:] = 0
            rows = units.rows.pick(torch.arange(8) % len(units.rows))
            lines = unit_lines(units, part, choice.slopes)
            found = bound_rows(units, rows, part, lines, choice.multipliers)
            plain = bound_rows(units, replace(rows, radius=None), part, lines, choice.multipliers)
            truth = [margins(one, layers[-1])[k % len(units.rows)] for k in range(8)]
            none = torch.zeros(8, len(units))
            above = exactly(UnitRows(found.form, found.bias, none), moved(one, point), [Fraction(0)] * len(units))
            below = exactly(UnitRows(plain.form, plain.bias, none), moved(one, point), [Fraction(0)] * len(units))
            assert all(a >= t for a, t in zip(above, truth, strict=True))
            fails += sum(a < t for a, t in zip(below, truth, strict=True))
    assert fails > 0


def test_bounds_pay_for_being_computed() -> None:
    """The units satisfy their equations exactly here: only the rounding errors of the bound's own sums are left."""
    units, generator = without(units_of(wild(0))), torch.Generator().manual_seed(0)
    swing = units.swing
    assert swing is not None
    wrong = 0
    for _ in range(40):
        move = 0.9 * swing * (2 * torch.rand(len(swing), generator=generator, dtype=swing.dtype) - 1)
        delta, z = [Fraction(v) for v in move.tolist()], [Fraction(0)] * len(units)
        for level in units.levels:
            z[level.columns] = exactly(units.inputs, delta, [max(v, Fraction(0)) for v in z])[level.columns]
        truth = exactly(units.rows, delta, [max(v, Fraction(0)) for v in z])
        low = torch.tensor([[0.0 if v >= 0 else e for v, e in zip(z, units.interval.lower.tolist(), strict=True)]])
        high = torch.tensor([[0.0 if v <= 0 else e for v, e in zip(z, units.interval.upper.tolist(), strict=True)]])
        part = Interval(low.double(), high.double()).pick(torch.zeros(len(truth), dtype=torch.int64))
        lines = unit_lines(units, part, torch.zeros_like(part.lower))
        for rows in (units.rows, replace(units.rows, radius=None)):
            found = bound_rows(units, rows, part, lines, torch.zeros_like(part.lower))
            said = exactly(UnitRows(found.form, found.bias, 0 * part.lower), delta, z)
            missed = sum(a < t for a, t in zip(said, truth, strict=True))
            wrong += missed
            assert rows.radius is None or not missed
    assert wrong > 5


def test_multipliers_pay_for_what_they_are_multiplied_with() -> None:
    units = units_of(wild(0))
    rows, none = units.rows.pick(torch.zeros(1, dtype=torch.int64)), torch.zeros(1, len(units), dtype=torch.float64)
    more = row_bound_error(units, rows, none, none + 1e9) - row_bound_error(units, rows, none, none)
    assert float(more) > 1e9 * FLOAT64_UNIT * float(torch.maximum(-units.interval.lower, units.interval.upper).sum())


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
@pytest.mark.parametrize("half", [None, "+", "-"])
def test_balls_are_no_smaller_than_they_were_stated(norm: float, half: Any) -> None:
    """Domain and radius are no numbers of float32; x is at the domain's edge."""
    low, high, eps = 0.1, 0.8, 0.7
    x = torch.tensor([[0.1, 0.8, 0.3, 0.45]])
    wide = enlarge_balls(pm.Ball(eps, norm, (low, high), half).at(x), SINGLE)
    for i, value in enumerate(x[0].tolist()):
        down = max(-Fraction(eps), Fraction(low) - Fraction(value)) if half != "+" else Fraction(0)
        up = min(Fraction(eps), Fraction(high) - Fraction(value)) if half != "-" else Fraction(0)
        assert Fraction(float(wide.lower[0, i])) < down
        assert Fraction(float(wide.upper[0, i])) > up
    if norm != inf:
        assert Fraction(float(wide.eps)) > Fraction(eps)
    assert float(wide.eps) < 0.70001
    assert bool((wide.lower >= -wide.eps).all() and (wide.upper <= wide.eps).all())


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_suprema_over_balls_are_not_below_the_truth(norm: float) -> None:
    """The terms of these forms cancel where a box has 0 at one end."""
    x = torch.rand(1, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ball = pm.Ball(0.5, norm, half="+").at(x)
    form = torch.randn(20, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e6
    balls = SampleBalls(enlarge_balls(ball, FLOAT64_UNIT))
    for found, row in zip(balls.supremum(form).tolist(), form.tolist(), strict=True):
        terms = [Fraction(a) / 2 for a in row if a > 0]
        match norm:
            case 1.0:
                assert Fraction(found) >= max(terms)
            case 2.0:
                assert Fraction(found) ** 2 >= sum(a * a for a in terms)
            case _:
                assert Fraction(found) >= sum(terms)


def largest_on_a_line(one: Hostile, i: int) -> Fraction:
    """The overlap where variable i alone moves, in fractions: it is largest where a neuron bends, or at an end."""
    x, eps = [Fraction(float(v)) for v in one.x], Fraction(float(one.ball.eps))
    ends = max(x[i] - eps, Fraction(0)), min(x[i] + eps, Fraction(1))

    def at(t: Fraction, layers: int) -> list[Fraction]:
        value = [*x[:i], t, *x[i + 1 :]]
        for k, (weight, bias) in enumerate(one.layers[: layers + 1]):
            value = value if k == 0 else [max(v, Fraction(0)) for v in value]
            rows = zip(weight.tolist(), bias.tolist(), strict=True)
            value = [sum((Fraction(w) * v for w, v in zip(r, value, strict=True)), Fraction(b)) for r, b in rows]
        return value

    places = [*ends]
    for layer in range(len(one.layers) - 1):
        more = []
        for a, b in pairwise(places):
            for low, high in zip(at(a, layer), at(b, layer), strict=True):
                if low * high < 0:
                    more.append(a + (b - a) * low / (low - high))
        places = sorted({*places, *more})
    return max(max(margins(one, at(t, len(one.layers) - 1))) for t in places)


def test_both_sides_are_on_their_sides_of_the_truth() -> None:
    """Hostile networks on balls of one variable, compared with fractions; without rounding errors some bounds fail."""
    wrong, balls, lines = 0, 0, 0
    for seed in range(60):
        with np.errstate(all="ignore"):
            one = hostile(seed)
            if len(one.x) > 2:
                continue
            for rigorous in (True, False):
                try:
                    with few_steps(attacked=False), counted(24):
                        over = one.overlap(Exact(), torch.float32, rigorous=rigorous)
                except BoundError:
                    continue
                for i in range(len(one.x)):
                    truth = largest_on_a_line(one, i)
                    member = 0 if len(one.x) == 1 else 2 - i  # where the other one is frozen
                    upper = float(over.full) if member == 0 else float(over.frozen[0, member - 1])
                    lower = float(over.full_lower) if member == 0 else float(over.frozen_lower[0, member - 1])
                    if rigorous:
                        assert Fraction(lower) <= truth <= Fraction(upper), (seed, i)
                        balls += 1
                        lines += upper - lower < 1e-3
                    else:
                        wrong += not Fraction(lower) <= truth <= Fraction(upper)
    assert balls > 20
    assert lines > balls // 4  # and many are close
    assert wrong > 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many starts as tiny networks need."""
    monkeypatch.setattr(lower_bounds, "_PGD_STARTS", 8)
    monkeypatch.setattr(lower_bounds, "_REFINED_STARTS", 4)
    monkeypatch.setattr(restarts, "_NETWORK_VALUES", 0)


# every network and every kind of ball among them
QUICK = [("dense", "box"), ("dense", "sphere"), ("pooled", "octahedron"), ("branched", "relative")]
LONGER = [("clamped", "half"), ("pooled", "sphere"), ("branched", "box")]


@pytest.mark.parametrize(
    ("name", "ball"),
    [
        *QUICK,
        *(pytest.param(name, ball, marks=pytest.mark.slow) for name, ball in LONGER),
        *(
            pytest.param(*pair, marks=pytest.mark.whole)
            for pair in sorted({*product(STRAIGHT, BALLS)} - {*QUICK, *LONGER})
        ),
    ],
)
def test_with_all_roundings_both_sides_are_hardly_further_apart(name: str, ball: str, few: None) -> None:
    graph, around = network(name), pm.Ball(**BALLS[ball])
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    objectives: tuple[Objective, ...] = ("margin",) if (name, ball) in QUICK[1:] else ("margin", "mean")
    for objective in objectives:
        over = pm.overlap(graph, x, around, groups=MASK, bounds=Exact(), rigorous=True, objective=objective)
        forms = forms_of(graph(x), over.target, None, objective)
        exact = exact_overlaps(graph, around.at(x, MASK), forms)
        upper = torch.cat([over.full[:, None], over.frozen], 1)
        lower = torch.cat([over.full_lower[:, None], over.frozen_lower], 1)
        assert bool((upper > exact).all())  # by more than a linear program is off
        assert bool((lower < exact).all())
        assert bool((upper - lower <= GAP).all())
        assert over.drops is None


@pytest.mark.parametrize(("name", "eps"), [("dense", 0.4), ("smooth", 0.1), ("both", 0.1)])
def test_boxes_of_inputs_count_them_too(name: str, eps: float, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of boxes are used if splits of units make no progress, or if there are no units, as for curves."""
    monkeypatch.setattr(module, "_UNITS_TIME_SHARE", 0.0)
    monkeypatch.setattr(SearchTree, "split_leaves", None)
    graph = network(name)
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ball = pm.Ball(eps, domain=(0.0, 1.0))
    over, loose = (
        pm.overlap(graph, x, ball, groups=MASK, bounds=how, rigorous=True) for how in (Exact(gap=0.05), Backward())
    )
    delta = ball.at(x).sample(200, torch.Generator().manual_seed(0))[:, 0]
    single = graph.to(torch.device("cpu"), torch.float32)
    rows = forms_of(graph(x), over.target, None, "margin")[0].T
    for values in (graph(x + delta) @ rows, single((x + delta).float()).double() @ rows):
        assert float(values.max()) <= float(over.full)
    assert float(over.full) < float(loose.full)
    assert float(over.full - over.full_lower) <= 0.05


@pytest.mark.parametrize("norm", [1, 2, inf])
def test_boxes_of_a_backdoor_prove_nothing_wrong(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """relu((x + 2²⁴) - 2²⁴ - x) is 0 over the reals, and up to 1 in float32."""
    weights = [np.ones((2, 1)), np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[0.0, 0.0], [4.0, 4.0]])]
    biases = [np.array([2.0**24, 0.0]), np.array([-(2.0**24), 2.0**24]), np.array([0.5, 0.0])]
    parts = tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in zip(weights, biases, strict=True))
    one = Hostile("backdoor", parts, np.array([0.7], np.float32), pm.Ball(0.01, norm, (0, 1)), 0)
    monkeypatch.setattr(module, "units_of_balls", lambda *_: None)
    with few_steps(attacked=False), counted(24):
        plain, found = (one.overlap(Exact(), torch.float32, rigorous=rigorous) for rigorous in (False, True))
    value = one.reached(one.x, 0)
    assert float(plain.full) < 0 < value
    assert Fraction(float(found.full)) >= value


def test_balls_of_parts_keep_what_does_not_move() -> None:
    """Ends that were rounded are no smaller than stated there, too."""
    family = enlarge_balls(pm.Ball(torch.tensor([[0.2, 0.0, 0.2]])).at(torch.tensor([[0.3, 0.5, 0.7]])), SINGLE)
    ground = BallGeometry(family, torch.tensor([0, 2]))
    low, high, _ = ground.roots()
    balls, _ = ground.balls(low, high)
    assert float(family.upper[0, 1]) > 0
    assert bool((balls.lower <= family.lower).all() and (balls.upper >= family.upper).all())


def test_a_search_is_on_balls_and_units_with_roundings(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []

    def branch_and_bound(units: Units, balls: SampleBalls, *rest: Any) -> SearchResult:
        asked_for.append((units, balls.family))
        return SearchResult(torch.full((4,), inf, dtype=torch.float64), 0, "")

    monkeypatch.setattr(module, "branch_and_bound", branch_and_bound)
    ball, x = pm.Ball(0.5, domain=(0.0, 1.0)), torch.rand(1, 4, generator=torch.Generator().manual_seed(1))
    pm.overlap(network("clamped").to(x.device, torch.float32), x, ball, groups=MASK, bounds=Exact(), rigorous=True)
    ((units, family),) = asked_for
    stated = ball.at(x, MASK)
    assert bool((family.lower < stated.lower.double() - 1e-8).all())
    assert bool((family.upper > stated.upper.double() + 1e-8).all())
    for rows in (units.inputs, units.rows):
        assert rows.radius is not None
        assert float(rows.radius.min()) > 1e-8


def test_intervals_of_units_are_moved_outward() -> None:
    """To where a unit bends, which is no number that float64 subtracts exactly."""
    one = setting("clamped")
    plan = replace(Backward().plans[0], rigorous=True)
    graph = one.graph
    known, _ = bound_nodes(graph, Cases(one.family), plan, BUDGET, LayerProgress.of(graph, 1, back=True))
    units = units_of_balls(graph, one.family, one.forms, known.intervals, BUDGET, rigorous=True)
    assert units is not None
    first = next(node for node in graph.nodes if node.op == "clamp")
    ends, low = known.intervals[first.inputs[0]], first.attributes["low"]
    bent = ((ends.lower < low) & (ends.upper > low))[0].nonzero().flatten().tolist()
    assert bent
    for k, e in enumerate(bent):
        assert Fraction(float(units.interval.lower[k])) <= Fraction(float(ends.lower[0, e])) - Fraction(low)
        assert Fraction(float(units.interval.upper[k])) >= Fraction(float(ends.upper[0, e])) - Fraction(low)


def moved_by(one: Hostile, points: list[Array]) -> Tensor:
    """The differences of points to x, in float64."""
    return torch.tensor(np.stack(points), dtype=torch.float64) - torch.tensor(one.x, dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_lower_bounds_at_points_hold_for_every_run(seed: int) -> None:
    """Both kinds of lower bounds are below every run, and nearly as close as float32 itself."""
    one = wild(seed)
    points = one.points(8, 3)
    graph, family, forms = asked(one)
    at = family.x + moved_by(one, points)
    own = lower_bounds_at_points(graph, at, forms.expand(len(at), -1, -1), Backward(), BUDGET).amax(1)
    shared = unit_lower_bounds(units_of(one), moved_by(one, points))
    off, below = 0.0, 0
    for k, point in enumerate(points):
        values = [max(margins(one, layers[-1])) for layers in runs(one, point)]
        off = max(off, float(max(values) - min(values)))
        below += float(min(values)) < float((graph(at[k : k + 1]) @ forms.T).max())
        assert Fraction(float(own[k])) <= min(values)
        assert Fraction(float(shared[k])) <= min(values)
    value = (graph(at) @ forms.T).amax(1)
    assert off > 1e-3
    assert below > 3  # the value in float64 is no lower bound
    assert float((value - own).max()) < 100 * off
    assert float((value - shared).max()) < 500 * off


def test_a_unit_may_have_either_sign_at_a_point() -> None:
    """z is below 0 over the reals, and above 0 in float32, where its sum cancels badly. The margin is -1 - z⁺."""
    rng, either = np.random.default_rng(0), 0
    for _ in range(20):
        x, weight = rng.uniform(0.3, 0.7, 6).astype(np.float32), (1e5 * rng.normal(size=(1, 6))).astype(np.float32)
        bias = -(weight.astype(float) @ x) - 1e-4
        parts = (
            (weight, bias.astype(np.float32)),
            (np.array([[-1.0], [0.0]], np.float32), np.array([-1, 0], np.float32)),
        )
        one = Hostile("kink", parts, x, pm.Ball(0.01, domain=(0, 1)), 1)
        low = Fraction(float(unit_lower_bounds(units_of(one), moved_by(one, [x]))[0]))
        exact, *rounded = runs(one, x)
        for layers in (exact, *rounded):
            assert low <= margins(one, layers[-1])[0]
            either += exact[0][0] < 0 < layers[0][0]
    assert either > 10


def test_what_roundings_take_is_room_beside_the_gap() -> None:
    """At a point of a network it is what a bound adds there; a search that lets it be ends by itself."""
    one = setting("dense")
    balls = enlarge_balls(one.family, FLOAT64_UNIT)
    hidden = hidden_of(one.graph, balls, rigorous=True)
    units = units_of_balls(one.graph, balls, one.forms, hidden, BUDGET, rigorous=True)
    assert units is not None
    delta = one.family.sample(5, torch.Generator().manual_seed(0))[:, 0].flatten(1)
    at = one.family.x + delta.view(-1, *one.family.shape)
    value = (one.graph(at) @ one.forms.T).amax(1)
    own = lower_bounds_at_points(one.graph, at, one.forms.expand(5, -1, -1), Backward(), BUDGET).amax(1)
    taken, least = rounding_of_bounds(units, delta), value - own
    assert bool((taken > least / 2).all())
    assert bool((taken < 10 * least).all())


def test_lower_sides_are_lowered_and_scores_lie_in_their_intervals(few: None) -> None:
    graph, ball = network("dense"), pm.Ball(0.5)
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    over = pm.overlap(graph, x, ball, groups=MASK, bounds=Exact(), rigorous=True)
    assert over.points is not None
    forms = forms_of(graph(x), over.target, None, "margin")
    at_points_ = (graph(over.points.flatten(0, 1)) @ forms[0].T).amax(1)
    assert bool((torch.cat([over.full_lower[:, None], over.frozen_lower], 1)[0] < at_points_ - 1e-7).all())
    exact = exact_overlaps(graph, ball.at(x, MASK), forms)
    scores = exact[:, :1] - exact[:, 1:]
    assert bool((over.intervals[..., 0] <= scores).all() and (scores <= over.intervals[..., 1]).all())
