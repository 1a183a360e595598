"""A network on a ball as its unstable units (neurons that are not linear there) and linear functions between them.

An operation is linear at an entry whose interval contains no kink. The other entries are units, each a function of one
number, u_k = σ_k(z_k). Everything between the units is linear:

    z = A δ + b + M u,        row r of the specification = a_r·δ + c_r + m_r·u,        δ in the ball.

Piecewise linear functions are sums of ReLUs: max(x, y) = x + max(y - x, 0), |x| = 2 max(x, 0) - x (`KinkSum`). Other
functions of one number are units themselves. M is strictly lower triangular by levels, one level per operation.
With rounding errors, every row has a radius (`rounding.search_errors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofmap.bounds import node_facts
from proofmap.bounds.backsubstitution import backsubstitute_with_errors
from proofmap.graph.ir import Graph, Node
from proofmap.inputs.family import Family
from proofmap.inputs.window_forms import WindowForms, places_of_entries
from proofmap.rounding.bound_errors import RoundingErrors
from proofmap.rounding.exact_arithmetic import ExactArithmetic
from proofmap.rounding.search_errors import (
    add_evaluation_error,
    elimination_error,
    largest_perturbation,
    largest_preactivation,
)
from proofmap.rules import RULES, Form, Interval, Nonlinear
from proofmap.rules.rule import Pullable
from proofmap.rules.scalar_lines import Scalar
from proofmap.runtime.memory import run_in_chunks

_FORM_ENTRIES = 2**24  # entries of the linear forms that are pulled back at once: limits the memory
_ENLARGEMENT = 1 + 2.0**-50  # enlarges endpoints by more than one rounding error of float64


@dataclass(frozen=True, eq=False)
class UnitLevel:
    """The units of one operation, in columns start to stop; node: the smooth function, or None for ReLUs."""

    start: int
    stop: int
    node: Node | None

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Affine functions of δ and the units: weight·δ + bias + mix·u, (R, d), (R,) and (R, K)."""

    weight: Tensor
    bias: Tensor
    mix: Tensor
    # (R,) bounds the rounding errors of the rows and of bounds made of them; None: not counted
    radius: Tensor | None = None

    def __len__(self) -> int:
        return len(self.bias)

    def pick(self, index: Any) -> UnitRows:
        """Return some of the rows."""
        radius = None if self.radius is None else self.radius[index]
        return UnitRows(self.weight[index], self.bias[index], self.mix[index], radius)

    def to(self, dtype: torch.dtype) -> UnitRows:
        """Return the rows in another precision, without radii."""
        return UnitRows(self.weight.to(dtype), self.bias.to(dtype), self.mix.to(dtype))

    @staticmethod
    def concatenate(parts: Sequence[UnitRows], units: int) -> UnitRows:
        """Concatenate rows and pad them with zeros to `units` columns."""
        mix = torch.cat([pad(part.mix, (0, units - part.mix.shape[1])) for part in parts])
        radii = [part.radius for part in parts if part.radius is not None]
        radius = torch.cat(radii) if len(radii) == len(parts) else None
        return UnitRows(torch.cat([one.weight for one in parts]), torch.cat([one.bias for one in parts]), mix, radius)

    def negative(self) -> UnitRows:
        """Return the negated rows."""
        return UnitRows(-self.weight, -self.bias, -self.mix, self.radius)


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one sample's ball, and the rows of its specification."""

    inputs: UnitRows  # z, (K, ...)
    interval: Interval  # (K,) of z on the ball
    levels: tuple[UnitLevel, ...]
    rows: UnitRows  # rows of the specification, (R, ...)
    swing: Tensor | None = None  # (d,) the largest |δ|, if rounding errors are counted
    # (C, R) the rows of each unsafe case, -1 for none: a search bounds combinations of them; None: single rows
    cases: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def searched(self) -> int:
        """The number of rows, or of cases, that a search bounds."""
        return len(self.rows) if self.cases is None else len(self.cases)

    def combined(self, number: Tensor, shares: Tensor | None) -> UnitRows:
        """Return the rows (B,) of a search: single rows, or Σ λ_r row_r of cases with shares λ (B, R) >= 0.

        The radius of a row counts at least 64 rounding errors of each term. A sum of R rows adds R + 2 more.
        """
        if self.cases is None or shares is None:
            return self.rows.pick(number)
        at, rows = self.cases[number], self.rows
        every = rows.bias.new_zeros(len(number), len(rows))
        every.scatter_add_(1, at.clamp(min=0), torch.where(at >= 0, shares.to(every), 0))
        radius = None if rows.radius is None else (2 + at.shape[1] / 32) * (every @ rows.radius)
        return UnitRows(every @ rows.weight, every @ rows.bias, every @ rows.mix, radius)

    @property
    def deep(self) -> bool:
        """True if units depend on other units."""
        return len(self.levels) > 1

    @property
    def looseness(self) -> float:
        """The total relaxation gap of the units that depend on other units.

        For a ReLU on [l, u] the gap is |u l| / (u - l), the height of the upper line at the kink. For another function
        it is the width of [l, u].
        """
        low, high = self.interval.lower, self.interval.upper
        missed = high.clamp(min=0) * low.clamp(max=0).neg() / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
        for level in self.levels:
            if level.node is not None:
                missed[level.columns] = (high - low)[level.columns]
        return float(missed[self.levels[0].stop :].sum()) if self.levels else 0.0

    def eliminate_stable(self, interval: Interval) -> Units:
        """Return the units with tighter intervals (K,), without the ReLUs that are stable on these.

        An active ReLU is u = z. With D = 1 for active units, else 0: z = (1 - M D)⁻¹ (A δ + b + M u), with u of the
        remaining units. If the rounding errors of this solution are too large, all units remain.
        """
        smooth = torch.zeros_like(interval.lower, dtype=torch.bool)
        for level in self.levels:
            smooth[level.columns] = level.node is not None
        left = smooth | ((interval.lower < 0) & (interval.upper > 0))
        above = ((interval.lower >= 0) & ~left).to(interval.lower)
        z, kept = self.inputs, left.nonzero().flatten()
        known = torch.cat([z.weight, z.bias[:, None], z.mix[:, kept]], 1)
        lower = torch.eye(len(z), dtype=z.bias.dtype, device=z.bias.device) - z.mix * above
        solved = torch.linalg.solve_triangular(lower, known, upper=False, unitriangular=True)
        d = z.weight.shape[1]
        every = UnitRows(solved[:, :d], solved[:, d], solved[:, d + 1 :])
        r, mix = self.rows, self.rows.mix * above
        rows = UnitRows(r.weight + mix @ every.weight, r.bias + mix @ every.bias, r.mix[:, kept] + mix @ every.mix)
        if self.swing is not None:
            size = largest_preactivation(interval)[kept]
            off = elimination_error(self, lower, known, solved, size)
            if off is None:
                return replace(self, interval=interval)
            every = add_evaluation_error(replace(every, radius=off), size, self.swing, len(self))
            assert r.radius is not None
            assert every.radius is not None
            rows = add_evaluation_error(replace(rows, radius=r.radius + mix.abs() @ every.radius), size, self.swing)
        place = [0, *left.cumsum(0).tolist()]
        levels = [UnitLevel(place[level.start], place[level.stop], level.node) for level in self.levels]
        return Units(
            every.pick(kept),
            Interval(interval.lower[kept], interval.upper[kept]),
            tuple(level for level in levels if level.stop > level.start),
            rows,
            self.swing,
            self.cases,
        )

    def units_as_rows(self, level: UnitLevel, k: Tensor) -> Units:
        """Return the units before `level`, whose rows are the inputs z of units k of the level, and then -z."""
        z, stop = self.inputs, level.start
        rows, below = (replace(part, mix=part.mix[:, :stop]) for part in (z.pick(k), z.pick(slice(0, stop))))
        return Units(
            below,
            Interval(self.interval.lower[:stop], self.interval.upper[:stop]),
            tuple(one for one in self.levels if one.start < stop),
            UnitRows.concatenate([rows, rows.negative()], stop),
            self.swing,
        )

    def to_float32(self) -> Units:
        """Return the units in float32, with intervals rounded outward."""
        dtype = torch.float32
        return replace(
            self, inputs=self.inputs.to(dtype), interval=round_outward(self.interval), rows=self.rows.to(dtype)
        )


def has_units(graph: Graph) -> bool:
    """Return whether all nonlinear operations are functions of one number or piecewise linear; products are neither."""
    return all(map(_has_unit_form, filter(node_facts.is_nonlinear, graph.nodes)))


def _has_unit_form(node: Node) -> bool:
    rule = RULES[node.op]
    assert isinstance(rule, Nonlinear)
    scalar = isinstance(rule, Scalar) and node.weight is None and node.bias is None
    return scalar or rule.kink_sum(node) is not None


def build_units(
    graph: Graph,
    intervals: Mapping[str, Interval],
    family: Family,
    specification: Tensor,
    rounding: RoundingErrors | None = None,
) -> Units | None:
    """Build the units of one ball; None if an operation cannot be written with units.

    Args:
        intervals: (1, *shape) of the inputs of every nonlinear operation.
        specification: (R, classes).
        rounding: Rounding errors that the radii of the rows count; then all units must be ReLUs. None: rows have no
            radii.
    """
    decompositions: dict[str, UnitDecomposition] = {}
    levels: list[UnitLevel] = []
    inputs: list[UnitRows] = []
    intervals_of_units: list[Interval] = []
    count = 0
    for node in filter(node_facts.is_nonlinear, graph.nodes):
        piece = _decompose(node, [intervals[name] for name in node.inputs], count)
        if piece is None or (piece.smooth and rounding is not None):
            return None
        if len(piece.entries):
            value = graph[node.inputs[0]]
            inputs += _unit_rows(graph, value, piece, decompositions, family, rounding)
            z = intervals[value.name].like((-1,)).pick(piece.entries)
            z = Interval(z.lower - piece.places, z.upper - piece.places)
            intervals_of_units.append(
                z if rounding is None else Interval(_ENLARGEMENT * z.lower, _ENLARGEMENT * z.upper)
            )  # 0 stays inside
            levels.append(UnitLevel(count, count + len(piece.entries), node if piece.smooth else None))
            count += len(piece.entries)
        decompositions[node.name] = piece
    forms = specification.unflatten(1, graph[graph.output].shape)
    rows = _affine_rows(graph, graph.output, forms, decompositions, family, rounding)
    none = rows.pick(slice(0, 0))
    found = Units(
        UnitRows.concatenate([none, *inputs], count),
        Interval(
            *(torch.cat([none.bias, *(getattr(z, side) for z in intervals_of_units)]) for side in ("lower", "upper"))
        ),
        tuple(levels),
        UnitRows.concatenate([rows], count),
    )
    return found if rounding is None else _with_radii(found, family)


def _unit_rows(
    graph: Graph,
    value: Node,
    piece: UnitDecomposition,
    decompositions: Mapping[str, UnitDecomposition],
    family: Family,
    rounding: RoundingErrors | None,
) -> list[UnitRows]:
    """Return the inputs z of an operation's units, in chunks. `value` is the first input of the operation."""
    found: list[UnitRows] = []

    def chunk(start: int, stop: int) -> None:
        forms = _unit_forms(value, piece.entries[start:stop], family.x)
        rows = _affine_rows(graph, value.name, forms, decompositions, family, rounding)
        found.append(replace(rows, bias=rows.bias - piece.places[start:stop]))

    run_in_chunks(len(piece.entries), _FORM_ENTRIES // max(node.size for node in graph.nodes), chunk)
    return found


def _with_radii(units: Units, family: Family) -> Units | None:
    """Add the rounding errors of later computations to the rows' radii; None if a radius is not finite."""
    size, swing = largest_preactivation(units.interval), largest_perturbation(family)
    inputs, rows = (add_evaluation_error(part, size, swing) for part in (units.inputs, units.rows))
    if not all(part.radius is not None and bool(part.radius.isfinite().all()) for part in (inputs, rows)):
        return None
    return replace(units, inputs=inputs, rows=rows, swing=swing)


def _unit_forms(node: Node, entries: Tensor, like: Tensor) -> Form:
    """Return forms with the coefficient 1 at one entry (n,) each: windows if the node is a map."""
    if len(node.shape) > 1 and prod(node.shape[1:]) > 1:
        places, channel = places_of_entries(torch.zeros_like(entries), entries, node.shape)
        return WindowForms.unit(places, channel, node.shape, like)
    return like.new_zeros(len(entries), node.size).scatter_(1, entries[:, None], 1.0).view(-1, *node.shape)


@dataclass(frozen=True, eq=False)
class UnitDecomposition(Pullable):
    """A nonlinear operation as a linear function plus its units: y = Σ base_i x_i + offset + Σ jump_k u_k, exactly.

    `pull` carries forms through the linear function. `unit_coefficients` are their coefficients of the units.
    """

    base: tuple[Tensor, ...]  # (1, *shape) each
    offset: Tensor
    entries: Tensor  # (n,) flat indices of the units' entries in the first input
    places: Tensor  # (n,) the kinks
    jumps: Tensor  # (n,)
    start: int  # the column of the first unit
    smooth: bool  # True: the units are the operation itself

    def pull(self, form: Any, owner: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        if isinstance(form, WindowForms):
            parts = tuple(form.scaled(base[0]) if bool((base != 0).any()) else None for base in self.base)
            return parts, form.dot(self.offset[0])
        parts = tuple(form * base if bool((base != 0).any()) else None for base in self.base)
        return parts, (form * self.offset).flatten(1).sum(1)

    def unit_coefficients(self, form: Form) -> Tensor:
        """Return the coefficients (rows, n) of the units in forms of the operation's value."""
        at_units = form.at_entries(self.entries) if isinstance(form, WindowForms) else form.flatten(1)[:, self.entries]
        return at_units * self.jumps


def _decompose(node: Node, inputs: Sequence[Interval], start: int) -> UnitDecomposition | None:
    rule, x = RULES[node.op], inputs[0]
    assert isinstance(rule, Nonlinear)
    zero, kinked = torch.zeros_like(x.lower), rule.kink_sum(node)
    if not _has_unit_form(node):
        return None
    if kinked is None:
        value = rule.interval(node, x)
        moves = (x.lower < x.upper) | (value.lower < value.upper)  # at a jump, one number has the values of both sides
        entries = moves.flatten().nonzero().flatten()
        still = torch.where(moves, zero, value.lower)
        ones = zero.new_ones(len(entries))
        return UnitDecomposition((zero,) * len(inputs), still, entries, 0 * ones, ones, start, smooth=True)
    base = [torch.as_tensor(b).to(zero).expand_as(zero) for b in kinked.base]
    offset = torch.full_like(zero, kinked.offset)
    kinks = []
    for place, jump in kinked.kinks:
        height = torch.as_tensor(jump).to(zero).expand_as(zero)
        above, bent = x.lower >= place, (x.lower < place) & (x.upper > place)
        base[0] = base[0] + torch.where(above, height, 0)
        offset = offset - torch.where(above, height * place, 0)
        at = bent.flatten().nonzero().flatten()
        kinks.append((at, zero.new_full((len(at),), place), height.flatten()[at]))
    entries, places, jumps = (torch.cat(parts) for parts in zip(*kinks, strict=True))
    return UnitDecomposition(tuple(base), offset, entries, places, jumps, start, smooth=False)


def _affine_rows(
    graph: Graph,
    name: str,
    form: Form,
    decompositions: Mapping[str, UnitDecomposition],
    family: Family,
    rounding: RoundingErrors | None,
) -> UnitRows:
    """Back-substitute forms of a node's value into rows of δ and of the units before the node."""
    owner = torch.zeros(len(form), dtype=torch.int64, device=family.x.device)
    mix = family.x.new_zeros(len(form), sum(len(piece.entries) for piece in decompositions.values()))

    def collect_mix(node: Node, arriving: Form) -> None:
        if (piece := decompositions.get(node.name)) is not None:
            mix[:, piece.start : piece.start + len(piece.entries)] = piece.unit_coefficients(arriving)

    ends, bias, error = backsubstitute_with_errors(
        graph, name, form, owner, decompositions, collect_mix, ExactArithmetic() if rounding is None else rounding
    )
    end = ends.get(graph.input.name, family.x.new_zeros(len(form), *family.shape))
    weight = (end.dense() if isinstance(end, WindowForms) else end).flatten(1)
    return UnitRows(weight, bias + weight @ family.x.flatten(), mix, None if rounding is None else error)


def repeat_interval(x: Interval, count: int) -> Interval:
    """Return the interval (K,) for `count` parts: (count, K)."""
    return Interval(x.lower.expand(count, -1), x.upper.expand(count, -1))


def to_float64(x: Interval) -> Interval:
    """Return the interval in float64."""
    return Interval(x.lower.double(), x.upper.double())


def round_outward(x: Interval) -> Interval:
    """Return the interval in float32, rounded outward."""
    low, high = x.lower.float(), x.upper.float()
    return Interval(
        torch.where(low.double() > x.lower, torch.nextafter(low, torch.full_like(low, -inf)), low),
        torch.where(high.double() < x.upper, torch.nextafter(high, torch.full_like(high, inf)), high),
    )
