"""Relaxation of the change f(x + d) - f(x) for a twin network (ReluDiff, Paulsen et al. 2020).

The difference of two copies of a network is bounded as a value of its own, so that their common part cancels before it
is relaxed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, Interval, Kind, Nonlinear, Relaxation, Rule
from proofmap.rules.scalar_lines import Lines, Scalar, at_rows
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class ChangeLines(Relaxation):
    """Lines of the change alone: the arguments receive nothing."""

    lines: Lines

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        (part,), bias = self.lines.pull(form, owner)
        return (None, None, part), bias

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        return self.lines.push(inputs[2])


@dataclass(frozen=True, eq=False)
class ConstantBounds(Relaxation):
    """Constant bounds lower <= y <= upper, independent of the inputs: (cases, *shape)."""

    range: Interval

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        values = form.values if isinstance(form, WindowForms) else form
        above, below = (at_rows(end, form, owner) for end in (self.range.upper, self.range.lower))
        return (None, None, None), dot(values.clamp(min=0), above) + dot(values.clamp(max=0), below)

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        shape, like = self.range.lower.shape, inputs[2].lower_weight
        flat = like.new_zeros(shape[0], like.shape[1], *shape[1:])
        return AffineBounds(flat, self.range.lower, flat, self.range.upper)


class Change(Nonlinear):
    """y = f(z) - f(x) with z = x + d, of the inputs (x, z, d); f is the attribute "of".

    A scalar f has secant slopes between m and M on the union of both intervals, so y lies between m d and M d. A
    maximum changes by at most the largest, and at least the smallest, change of its inputs. In both cases |y| is at
    most the range of f.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        d = inputs[2]
        of = node.attributes["of"]
        rule, whole = self._rules[of.op], _whole(*inputs)
        most = self._most(of, whole)
        if isinstance(rule, Scalar):
            lines = self._lines(rule, of, whole, d)
            assert lines.lower_bias is not None
            lower = [lines.lower_slope * end + lines.lower_bias for end in (d.lower, d.upper)]
            upper = [lines.upper_slope * end + lines.upper_bias for end in (d.lower, d.upper)]
            change = Interval(torch.minimum(*lower), torch.maximum(*upper))
        else:
            change = Interval(-compute(of, -d.lower), compute(of, d.upper))
        return (change & Interval(-most, most)).uncrossed()

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        """Lines of d for a scalar f, else constant bounds. There are no free parameters."""
        of = node.attributes["of"]
        rule = self._rules[of.op]
        if isinstance(rule, Scalar):
            return ChangeLines(self._lines(rule, of, _whole(*inputs), inputs[2]))
        return ConstantBounds(self.interval(node, *inputs))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """The change, where it may have either sign and more than one slope."""
        d = inputs[2]
        of = node.attributes["of"]
        rule, never = self._rules[of.op], torch.zeros_like(d.lower, dtype=torch.bool)
        if not isinstance(rule, Scalar):
            return never, never, never
        slopes = rule.secant_slopes(of, _whole(*inputs))
        return never, never, (d.lower < 0) & (d.upper > 0) & (slopes.lower < slopes.upper)

    def _most(self, of: Node, whole: Interval) -> Tensor:
        """Return the width of f's range, which bounds its change."""
        y = self._rules[of.op].interval(of, whole)
        return y.upper - y.lower

    def _lines(self, rule: Scalar, of: Node, whole: Interval, d: Interval) -> Lines:
        slopes, most = rule.secant_slopes(of, whole), self._most(of, whole)
        below, lift = _above(Interval(-slopes.upper, -slopes.lower), d, most)
        return Lines(-below, -lift, *_above(slopes, d, most))


def _whole(x: Interval, z: Interval, d: Interval) -> Interval:
    """Return the union of the intervals of x and of z = x + d."""
    after = (Interval(x.lower + d.lower, x.upper + d.upper) & z).uncrossed()
    return Interval(torch.minimum(x.lower, after.lower), torch.maximum(x.upper, after.upper))


def _above(slopes: Interval, d: Interval, most: Tensor) -> tuple[Tensor, Tensor]:
    """Return the line (slope, bias) above max(m d, M d) for slopes from m to M.

    It is M d where d >= 0, m d where d <= 0, else the chord of this convex function. It is level at `most` where that
    is tighter in the middle, or where the slope is unbounded.
    """
    known = slopes.lower.isfinite() & slopes.upper.isfinite()
    least, steepest = torch.where(known, slopes.lower, 0), torch.where(known, slopes.upper, 0)
    either = (d.lower < 0) & (d.upper > 0)
    rise = (steepest - least) * torch.where(either, d.upper / torch.where(either, d.upper - d.lower, 1), d.lower >= 0)
    slope, bias = least + rise, torch.where(either, -rise * d.lower, 0)
    moves = (d.lower != 0) | (d.upper != 0)
    level = moves & (~known | (slope * (d.lower + d.upper) / 2 + bias > most))
    return torch.where(level, 0, slope), torch.where(level, most, bias)
