"""β-CROWN bounds of rows hold at every point of a part for any parameters; Adam follows the exact gradient."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from proofmap.graph.ops import compute
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import (
    ParameterChoice,
    UnitLines,
    bound_rows,
    branching_losses,
    optimise,
    split_points,
    unit_lines,
)
from proofmap.search.unstable_units import UnitRows, Units
from tests.search.setting import BALLS, NETWORKS, Setting, cut, points, run, setting, within


def parts_with_points(one: Setting, generator: torch.Generator, count: int = 6) -> tuple[Interval, Tensor, Tensor]:
    """Return (nonempty parts (B, K), δ (P, d), membership (B, P))."""
    units = one.units
    centres = points(one.family, generator)[:count]
    delta = torch.cat([points(one.family, generator, centre) for centre in centres] + [centres])
    z, _ = run(units, delta)
    parts = cut(units, run(units, centres)[0], generator)
    inside = torch.stack([within(z, parts.pick(k)) for k in range(count)])
    assert bool(inside.any(1).all())
    return parts, delta, inside


def drawn(parts: Interval, generator: torch.Generator) -> ParameterChoice:
    """Return random slopes in [0, 1], and multipliers of either sign, some of them 0."""
    slopes, sizes, zero = (torch.rand(parts.lower.shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return ParameterChoice(slopes, torch.where(zero < 0.3, 0.0, 4 * sizes - 2))


@pytest.mark.parametrize("name", NETWORKS)
def test_no_point_of_a_part_is_above(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for ball in ("box", "sphere"):
        one = setting(name, ball)
        units = one.units
        parts, delta, inside = parts_with_points(one, generator)
        _, values = run(units, delta)
        for row in range(len(units.rows)):
            rows = units.rows.pick(torch.full((len(parts.lower),), row))
            choice = drawn(parts, generator)
            found = bound_rows(units, rows, parts, unit_lines(units, parts, choice.slopes), choice.multipliers)
            above = found.form @ delta.T + found.bias[:, None]  # (B, P)
            assert bool((above - values[:, row] >= -1e-9)[inside].all()), (name, ball)


def test_it_meets_the_network_where_nothing_is_open() -> None:
    """If every ReLU is stable, the rows are linear and the bounds exact without multipliers."""
    one = setting("dense")
    units, generator = one.units, torch.Generator().manual_seed(0)
    centre = points(one.family, generator)[:1]
    z, values = run(units, centre)
    lower, upper = torch.where(z > 0, 0, units.interval.lower), torch.where(z > 0, units.interval.upper, 0)
    part = Interval(lower, upper)
    lines = unit_lines(units, part, ParameterChoice.start(part).slopes)
    assert not bool(lines.open.any())
    found = bound_rows(units, units.rows.pick([0]), part, lines, torch.zeros_like(lower))
    torch.testing.assert_close(found.form @ centre[0] + found.bias, values[:, 0])


def test_units_from_a_column_on_are_left_out() -> None:
    units = setting("dense").units
    level = units.levels[1]
    x = Interval(units.interval.lower[None], units.interval.upper[None])
    lines, none = unit_lines(units, x, ParameterChoice.start(x).slopes), torch.zeros_like(x.lower)
    row = units.inputs.pick([level.start])
    short, long = (bound_rows(units, row, x, lines, none, stop) for stop in (level.start, None))
    torch.testing.assert_close(short.form, long.form)
    torch.testing.assert_close(short.bias, long.bias)


@pytest.mark.parametrize("name", ["dense", "smooth", "both"])
def test_losses_are_what_lines_are_off_where_units_are_split(name: str) -> None:
    """ReLUs are split at the kink, other functions in the middle of their intervals."""
    one = setting(name)
    units, generator = one.units, torch.Generator().manual_seed(0)
    parts, _, _ = parts_with_points(one, generator)
    choice = drawn(parts, generator)
    lines = unit_lines(units, parts, choice.slopes)
    rows = units.rows.pick(torch.zeros(len(parts.lower), dtype=torch.int64))
    c = bound_rows(units, rows, parts, lines, choice.multipliers).of_units
    at, value = torch.zeros_like(c), torch.zeros_like(c)
    for level in units.levels:
        if level.node is not None:
            k = level.columns
            at[:, k] = (parts.lower + parts.upper)[:, k] / 2
            value[:, k] = compute(replace(level.node, shape=(level.stop - level.start,)), at[:, k])
    assert torch.equal(split_points(units, parts), at)
    below = lines.below * at + (0 if lines.drop is None else lines.drop)
    off = torch.where(c > 0, lines.above * at + lines.lift, below) - value
    torch.testing.assert_close(branching_losses(units, parts, lines, c), c * off)
    assert bool((c * off >= -1e-9).all())


RATES = (0.3, 0.1)


def slow(
    units: Units,
    balls: SampleBalls,
    rows: UnitRows,
    x: Interval,
    start: ParameterChoice,
    member: Tensor | None,
    steps: int,
) -> list[Tensor]:
    """The bounds (B,) that Adam meets step by step, with gradients by torch: those of the bound as a function of
    slopes and of the two signs of the multipliers, γ = p + n with p >= 0 >= n. Steps fall to two fifths of the first;
    those of multipliers are shares of the mean coefficient that the row has of a unit.
    """
    slopes, g = start.slopes, start.multipliers
    fixed = unit_lines(units, x, slopes)
    free = fixed.open.clone()
    for level in units.levels:
        if level.node is not None:
            free[:, level.columns] = False
    mean, square = ([torch.zeros_like(g), torch.zeros_like(g)] for _ in range(2))
    met: list[Tensor] = []
    for step in range(steps + 1):
        with torch.enable_grad():
            s, p, n = (part.clone().requires_grad_() for part in (slopes, g.clamp(min=0), g.clamp(max=0)))
            lines = replace(fixed, below=torch.where(free, s, fixed.below))
            value = _textbook(units, balls, rows, x, lines, p, n, member)
            if not met:
                scale = bound_rows(units, rows, x, lines, g).of_units.abs().mean(1, keepdim=True).detach()
            by_slope, by_p, by_n = torch.autograd.grad(value.sum(), (s, p, n))
        met.append(value.detach())
        if step == steps:
            break
        falls = by_p.clamp(max=0) + by_n.clamp(min=0)  # from 0 it goes to the side where the bound falls, if to any
        for k, gradient in enumerate((by_slope, torch.where(g > 0, by_p, torch.where(g < 0, by_n, falls)))):
            mean[k] = 0.9 * mean[k] + 0.1 * gradient
            square[k] = 0.999 * square[k] + 0.001 * gradient**2
        moves = [
            rate
            * (2 / 5) ** (step / steps)
            * (mean[k] / (1 - 0.9 ** (step + 1)))
            / ((square[k] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-12)
            for k, rate in enumerate((RATES[0], RATES[1] * scale))
        ]
        slopes = (slopes - moves[0]).clamp(0, 1)
        g = torch.where(g * (g - moves[1]) < 0, 0, g - moves[1])
    return met


def _textbook(
    units: Units,
    balls: SampleBalls,
    rows: UnitRows,
    x: Interval,
    lines: UnitLines,
    p: Tensor,
    n: Tensor,
    member: Tensor | None,
) -> Tensor:
    """Compute the bound (B,) slowly, unit by unit from the last to the first."""
    weight, bias, c = rows.weight, rows.bias, list(rows.mix.unbind(1))
    for k in reversed(range(len(units))):
        up, down = c[k].clamp(min=0), c[k].clamp(max=0)
        bias = bias + up * lines.lift[:, k] + (0 if lines.drop is None else down * lines.drop[:, k])
        bias = bias - p[:, k] * x.lower[:, k] - n[:, k] * x.upper[:, k]
        total = up * lines.above[:, k] + down * lines.below[:, k] + p[:, k] + n[:, k]
        weight, bias = weight + total[:, None] * units.inputs.weight[k], bias + total * units.inputs.bias[k]
        for j in range(k):
            c[j] = c[j] + total * units.inputs.mix[k, j]
    family = balls.family.split(torch.zeros(len(bias), dtype=torch.int64) if member is None else member)
    return bias + family.concretise(weight.unflatten(1, family.shape), torch.arange(len(bias)), full_only=True)[:, 0]


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("name", ["dense", "both"])
def test_steps_follow_the_gradient(name: str, ball: str) -> None:
    one = setting(name, ball)
    units, balls, generator = one.units, one.balls, torch.Generator().manual_seed(0)
    parts, _, _ = parts_with_points(one, generator)
    count = len(parts.lower)
    rows = units.rows.pick(torch.arange(count) % len(units.rows))
    for member in (None, torch.arange(count) % balls.members):
        for start in (ParameterChoice.start(parts), drawn(parts, generator)):
            for steps in range(4):
                met = slow(units, balls, rows, parts, start, member, steps)
                best = optimise(units, balls, rows, parts, start, steps=steps, member=member, rates=RATES)
                torch.testing.assert_close(best.value, torch.stack(met).amin(0), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_best_is_no_worse_than_the_start_and_is_what_it_says(name: str) -> None:
    one = setting(name)
    units, balls, generator = one.units, one.balls, torch.Generator().manual_seed(0)
    parts, delta, inside = parts_with_points(one, generator)
    rows = units.rows.pick(torch.zeros(len(parts.lower), dtype=torch.int64))
    start = drawn(parts, generator)
    first = optimise(units, balls, rows, parts, start, steps=0, rates=RATES)
    best = optimise(units, balls, rows, parts, start, steps=12, rates=(5.0, 5.0))  # steps that are much too long
    assert bool((best.value <= first.value).all())
    assert bool(((best.choice.slopes >= 0) & (best.choice.slopes <= 1)).all())
    lines = unit_lines(units, parts, best.choice.slopes)
    again = bound_rows(units, rows, parts, lines, best.choice.multipliers)
    swing, at = balls.maximise(again.form, None)
    torch.testing.assert_close(again.bias + swing, best.value)
    torch.testing.assert_close(at, best.delta)
    torch.testing.assert_close(branching_losses(units, parts, lines, again.of_units), best.losses)
    _, values = run(units, delta)
    assert bool((best.value[:, None] - values[:, 0] >= -1e-9)[inside].all())
