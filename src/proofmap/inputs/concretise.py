"""Concretisation: the exact maximum of a linear form over a ball, and over every member of its family.

Every member of a family is a box that contains 0, cut by an ℓp ball: {δ : l <= δ <= u, ||δ||_p <= ε}. A member that
freezes a group has δ_i = 0 there. With a_i = |A_i|, t_i = |δ_i| and c_i the endpoint of the box that A_i points to,

    sup <A, δ> = max { Σ a_i t_i : 0 <= t_i <= c_i, ||t||_p <= ε },

and freezing a group removes its terms. One row of A serves all members. Sums over all variables are computed once. Each
variable belongs to exactly one group, so that all groups together cost one sum by group.

For p = 1 and 2 the sums are in float64 and rounded upwards, so the result is never below the supremum. For p = inf they
are in the dtype of A, with at most 3 d rounding errors.

Masks are applied as products with 0 and 1 instead of torch.where, because they are four times as fast on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofmap.inputs.window_forms import WindowForms

_CHUNK_COEFFICIENTS = {1.0: 2**22, 2.0: 2**22, inf: 2**25}  # coefficients per chunk; p = 1 and 2 sort them in float64

_FLOAT64_ERROR = 2.0**-52  # at least the relative error of two operations in float64
_WEIGHT, _EARNED, _REST = range(3)  # indices of the three sums of the dual


@dataclass(frozen=True, eq=False)
class CutBoxes:
    """The sets {δ : lower <= δ <= upper, ||δ||_p <= radius} of some rows, with lower <= 0 <= upper.

    capped: whether some endpoint of a box lies strictly between 0 and the radius. If not, p = 1 and 2 have closed
        forms.
    """

    lower: Tensor  # (K or 1, d)
    upper: Tensor  # (K or 1, d)
    radius: Tensor  # (K or 1,)
    norm: float
    capped: bool

    def of(self, piece: slice) -> CutBoxes:
        """Return the sets of some rows."""
        lower, upper, radius = (e if len(e) == 1 else e[piece] for e in (self.lower, self.upper, self.radius))
        return CutBoxes(lower, upper, radius, self.norm, self.capped)


def suprema(coefficients: Tensor, sets: CutBoxes, group: Tensor | None = None, groups: int = 0) -> Tensor:
    """Return sup <A_k, δ> for each row k and each member: (K, 1 + G), the full ball first.

    coefficients (K, d); group (K, d) int64 or None. 0 <= out[:, 1 + u] <= out[:, 0] exactly. Differentiable in the
    coefficients: the gradient is a maximiser δ.
    """
    partition = _Partition(group, groups)
    lower, upper, norm = sets.lower, sets.upper, sets.norm
    if norm == inf:
        lower, upper = lower.to(coefficients), upper.to(coefficients)
        return partition.sum_outside(torch.maximum(coefficients * lower, coefficients * upper))  # Σ a c
    wide = coefficients.double()
    sign = wide.detach().sign()
    cap = torch.maximum(sign * lower.double(), sign * upper.double())
    rows = _KnapsackRows(wide.abs(), cap, sets.radius.double()[:, None], partition)
    values = _solve_dual(rows, norm) if sets.capped else _euclidean(rows) if norm == 2 else _largest(rows)
    return _round_up(values, coefficients.shape[1], coefficients.dtype)


def rows_at_once(norm: float, variables: int) -> int:
    """Return how many rows of `variables` coefficients are concretised together."""
    return max(1, _CHUNK_COEFFICIENTS[norm] // variables)


def window_suprema(form: WindowForms, sets: CutBoxes, cells: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute `suprema` of forms that see a window of x.

    Returns (K, 1 + T), and the groups (K, T) that each window sees, -1 for none.

    sets: those of the variables of each window.
    cells: (1 or N, 1 or C, *map), every variable's group plus 1, with one channel if all channels agree; None: the full
        ball alone.
    """
    flat = form.values.flatten(1)
    local, seen = None, torch.empty(len(form), 0, dtype=torch.int64, device=flat.device)
    if cells is not None:
        places, at = form.places.fewest(len(cells))
        local, named = _renumbered(replace(form, places=places).read(cells).flatten(1).sub_(1))
        local, seen = local[at], named[at]
        local = local.unsqueeze(1).expand(-1, flat.shape[1] // local.shape[1], -1).flatten(1)
    rows = rows_at_once(sets.norm, flat.shape[1])
    pieces = [
        suprema(flat[piece], sets.of(piece), None if local is None else local[piece], seen.shape[1])
        for piece in (slice(start, start + rows) for start in range(0, len(flat), rows))
    ]
    return torch.cat(pieces), seen


def _renumbered(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Replace each row's ids (U, d) by their rank within the row; also return the ids (U, T) of the ranks, -1
    for none.
    """
    rising, order = ids.sort(dim=1)
    rank = pad(rising[:, 1:] != rising[:, :-1], (1, 0)).cumsum(1)
    names = ids.new_full((len(ids), int(rank.max()) + 1), -1).scatter_(1, rank, rising)
    return torch.empty_like(ids).scatter_(1, order, rank), names


@dataclass(frozen=True)
class _Partition:
    """The group of each variable; None: no groups."""

    group: Tensor | None  # (K, d)
    groups: int

    def sum_inside(self, values: Tensor) -> Tensor:
        """Sum the values of each group: (K, d) -> (K, G)."""
        assert self.group is not None
        sums = torch.zeros(len(values), self.groups, dtype=values.dtype, device=values.device)
        return sums.scatter_add(1, self.group, values)

    def sum_outside(self, values: Tensor) -> Tensor:
        """Sum nonnegative values over all variables, and over those outside each group: (K, d) -> (K, 1 + G).

        total - inside_u loses no accuracy as long as inside_u is at most half of the total. The one group that may hold
        more gets the sum of the other groups instead.
        """
        total = values.sum(dim=1, keepdim=True)
        if self.group is None:
            return total
        inside = self.sum_inside(values)
        largest, holder = inside.max(dim=1, keepdim=True)  # (K, 1)
        others = inside.scatter(1, holder, 0).sum(dim=1, keepdim=True)
        outside = (total - inside).scatter(1, holder, torch.where(2 * largest > total, others, total - largest))
        return torch.cat([total, outside], dim=1)


@dataclass(frozen=True)
class _KnapsackRows:
    """For each row, the problem max Σ a_i t_i over 0 <= t_i <= c_i, ||t||_p <= ε, with all variables and without each
    group.
    """

    gain: Tensor  # (K, d) a
    cap: Tensor  # (K, d) c; 0 where a = 0
    radius: Tensor  # (K or 1, 1) ε
    partition: _Partition


def _euclidean(rows: _KnapsackRows) -> Tensor:
    """p = 2 if every variable is either free up to ε or fixed: ε sqrt(Σ a_i²) over the free variables."""
    sums = rows.partition.sum_outside((rows.gain * (rows.cap > 0)).square())
    positive = sums > 0  # the root of 0 has no gradient
    return rows.radius * (torch.where(positive, sums, 1).sqrt() * positive)


def _largest(rows: _KnapsackRows) -> Tensor:
    """p = 1 if every variable is either free up to ε or fixed: ε max a_i over the free variables.

    The value differs only without the group that holds the maximum: it is then the largest a_i outside that group.
    """
    gain, group = rows.gain * (rows.cap > 0), rows.partition.group
    first, where = gain.max(dim=1, keepdim=True)  # (K, 1)
    if group is None:
        return rows.radius * first
    holder = group.gather(1, where)  # (K, 1)
    second = (gain * (group != holder)).max(dim=1, keepdim=True).values
    without = first.expand(-1, rows.partition.groups).scatter(1, holder, second)  # (K, G)
    return rows.radius * torch.cat([first, without], dim=1)


def _solve_dual(rows: _KnapsackRows, norm: float) -> Tensor:
    """p = 1 and 2 with caps: the Lagrangian dual at the optimal price λ of the budget.

    Let w_i = c_i²/2, β = ε²/2, r_i = a_i / c_i for p = 2 (continuous quadratic knapsack), and w_i = c_i, β = ε, r_i =
    a_i for p = 1 (fractional knapsack). Variable i reaches its cap when λ <= r_i, and for every λ >= 0

        sup <= λβ + Σ_{r_i >= λ} (a_i c_i - λ w_i) + [p = 2] Σ_{r_i < λ} a_i² / (2λ),

    with equality at the optimal λ. A member without group u subtracts the group's own terms.
    """
    dual = _sort_dual(rows, norm)
    together = replace(dual, partition=_Partition(None, 0))
    start = torch.full_like(rows.gain[:, :1], inf)
    price, count = _best_price(together, start, dual.count(start))
    full = _dual_value(together, price, count)
    groups = rows.partition.groups
    if groups == 0:
        return full
    # A frozen group leaves more of the budget to the others, so the price falls: λ_u <= λ.
    prices, counts = _best_price(dual, *(start.expand(-1, groups).contiguous() for start in (price, count)))
    return torch.cat([full, torch.minimum(_dual_value(dual, prices, counts), full)], dim=1)


@dataclass(frozen=True)
class _Dual:
    """The dual's three sums, as functions of the number of variables at their caps, in order of falling r."""

    norm: float
    partition: _Partition
    budget: Tensor  # (K or 1, 1) β
    terms: tuple[Tensor, Tensor, Tensor]  # (K, d) w, a c, a²/2 (0 for p = 1)
    sums: tuple[Tensor, Tensor, Tensor]  # (K, d + 1) w and a c of the first k variables, a²/2 of the others
    threshold: Tensor  # (K, d) r
    falling: Tensor  # (K, d + 1) r sorted, then 0
    ladder: Tensor  # (K, d) -r sorted, to search in

    def count(self, price: Tensor) -> Tensor:
        """Count the variables with r_i >= λ: (K, M)."""
        return torch.searchsorted(self.ladder, -price, right=True)

    def parts(self, price: Tensor, count: Tensor, *which: int) -> list[tuple[Tensor, Tensor]]:
        """Evaluate sums at λ, over all variables and over the member's frozen group: pairs of (K, M)."""
        totals = [self.sums[i].gather(1, count) for i in which]
        if self.partition.group is None:
            return [(total, torch.zeros_like(total)) for total in totals]
        capped = self.threshold >= price.gather(1, self.partition.group)  # (K, d)
        frozen = [self.partition.sum_inside(self.terms[i] * (~capped if i == _REST else capped)) for i in which]
        return list(zip(totals, frozen, strict=True))


def _sort_dual(rows: _KnapsackRows, norm: float) -> _Dual:
    """Sort each row once, and compute prefix sums of the terms at their caps and suffix sums of the others."""
    fixed = rows.cap == 0
    gain, cap = rows.gain * ~fixed, rows.cap
    if norm == 2:
        terms = (cap.square() / 2, gain * cap, gain.square() / 2)
        threshold, budget = gain / (cap + fixed), rows.radius.square() / 2
    else:
        terms = (cap, gain * cap, torch.zeros_like(gain))
        threshold, budget = gain, rows.radius
    falling, order = threshold.sort(dim=1, descending=True)
    weight, earned, rest = (term.gather(1, order) for term in terms)
    sums = (pad(weight.cumsum(1), (1, 0)), pad(earned.cumsum(1), (1, 0)), pad(rest.flip(1).cumsum(1).flip(1), (0, 1)))
    ladder = -falling.detach()
    return _Dual(norm, rows.partition, budget, terms, sums, threshold.detach(), pad(falling, (0, 1)), ladder)


@torch.no_grad()
def _best_price(dual: _Dual, price: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Lower λ from a start at or above the optimum until no further variable reaches its cap: λ and count, (K, M).

    A step never passes the optimal price. Every step but the last puts more variables at their caps.
    """
    step = _newton_step if dual.norm == 2 else _fill_budget
    while True:
        price = torch.minimum(step(dual, price, count), price)
        before, count = count, dual.count(price)
        if torch.equal(before, count):
            return price, count


def _newton_step(dual: _Dual, price: Tensor, count: Tensor) -> Tensor:
    """p = 2: solve Σ_{capped} w + Σ_{others} a²/(2λ²) = β for λ, with the variables now at their caps kept there.

    Newton's step for the concave, piecewise linear function 1/λ² -> Σ min(a²/λ², c²), from the left.
    """
    (weight, frozen_weight), (rest, frozen_rest) = dual.parts(price, count, _WEIGHT, _REST)
    spare = dual.budget - (weight - frozen_weight)
    rest = (rest - frozen_rest).clamp(min=0)
    solved = (rest / torch.where(spare > 0, spare, 1)).sqrt()
    return torch.where((spare > 0) | (rest == 0), solved, price)


def _fill_budget(dual: _Dual, price: Tensor, count: Tensor) -> Tensor:
    """p = 1: the highest r at which the caps sum to β plus the caps of the frozen group so far; 0 if they never do."""
    ((_, frozen),) = dual.parts(price, count, _WEIGHT)
    filled = torch.searchsorted(dual.sums[_WEIGHT].detach(), dual.budget + frozen).clamp(min=1)  # d + 1: never
    return dual.falling.gather(1, filled - 1)


def _dual_value(dual: _Dual, price: Tensor, count: Tensor) -> Tensor:
    """Evaluate the dual bound at λ, plus the rounding errors of its sums: (K, M)."""
    (weight, frozen_weight), (earned, frozen_earned), (rest, frozen_rest) = dual.parts(
        price, count, _WEIGHT, _EARNED, _REST
    )
    if dual.norm == 1:  # λ is some a_i, whose gradient is a part of the maximiser
        price = dual.falling.gather(1, torch.where(price > 0, count - 1, dual.ladder.shape[1]))
    inverse = torch.where(price > 0, 1 / torch.where(price > 0, price, 1), 0)
    bound = price * (dual.budget - (weight - frozen_weight)) + (earned - frozen_earned) + (rest - frozen_rest) * inverse
    magnitude = price * (dual.budget + weight) + earned + rest * inverse
    return bound + (dual.ladder.shape[1] + 8) * _FLOAT64_ERROR * magnitude.detach()


def _round_up(values: Tensor, terms: int, dtype: torch.dtype) -> Tensor:
    """Cast float64 sums of `terms` nonnegative terms to values of `dtype` that are not below the exact ones."""
    values = values * (1 + (terms + 8) * _FLOAT64_ERROR)
    cast = values.to(dtype)
    with torch.no_grad():
        ulp = torch.nextafter(cast, torch.full_like(cast, inf)) - cast
        missing = torch.where(cast.double() < values, ulp, 0)
    return cast + missing
