"""Halving trees of property certificates: boxes are halved until a weighted sum of rows excludes every unsafe case.

A case (all rows a_r·y + b_r <= 0) is excluded on a part if Σ weight_r (a_r·y + b_r) > 0 there for some weights >= 0.
The checker's own rules bound all parts, so that a part that is proven here is proven there too. The weights minimise
the largest value of the rows' linear bounds on the part, by exponentiated gradient descent on the simplex.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from proofmap.errors import BoundError
from proofmap.proof import check
from proofmap.proof.statement import Array
from proofmap.runtime.progress import report

_WEIGHT_STEPS = 48  # steps of gradient descent on the weights of a case
_LARGEST_WEIGHT = 255  # weights are stored as bytes
_SAFETY = 2.0**-30  # share of the terms of a bound that other orders of summation may change, with room to spare
_PARTS_AT_ONCE = 256  # boxes that are bounded together, at most
_SMALL_INFLUENCE = 0.01  # share of the largest coefficient; an input with a smaller one is halved as if it had this one


@dataclass(frozen=True)
class ProofLimits:
    """Limits of a proof: the number of its parts, and the time to find them."""

    parts: int = 20_000
    seconds: float = 60.0

    def check(self, parts: int, start: float) -> None:
        """Raise BoundError if a limit is exceeded."""
        if parts > self.parts:
            raise BoundError(f"the proof needs more than {self.parts} parts, so there is no certificate of it")
        if time.monotonic() - start > self.seconds:
            raise BoundError(
                f"the proof was not found within {self.seconds:g} s ({parts} parts so far), so there is no certificate "
                "of it: allow more time"
            )


@dataclass(eq=False)
class BoxPart:
    """A part of a box: its corners, and after bounding either the weights of each case or its two halves."""

    box: int
    lower: Array  # (n,)
    upper: Array
    weights: list[list[int]] = field(default_factory=list)
    axis: int = -1
    halves: list[BoxPart] = field(default_factory=list)
    members: dict[str, Array] = field(default_factory=dict)  # the proof of a part that is divided by signs of units

    def halve(self) -> list[BoxPart]:
        """Return both halves, at the middle that the checker computes."""
        below, above = self.upper.copy(), self.lower.copy()
        below[self.axis] = above[self.axis] = (self.lower[self.axis] + self.upper[self.axis]) / 2
        self.halves = [BoxPart(self.box, self.lower, below), BoxPart(self.box, above, self.upper)]
        return self.halves

    def walk(self) -> Iterator[BoxPart]:
        """Return this part, its lower half with all parts of it, and its upper half."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            yield part
            waiting += part.halves[::-1]


class FormBoxes(check.Boxes):
    """The checker's bounds of boxes. They keep the linear form of the input that the last bound ended in."""

    def suprema(self, forms: check.Forms) -> Array:
        """Return what the checker returns, and keep the form."""
        self.kept[:] = [forms.over(np.arange(len(self.at)))]
        return super().suprema(forms)


@dataclass(frozen=True, eq=False)
class BoundedCases:
    """Upper bounds of weighted rows on parts: those of float32 with the safety, and linear bounds of them.

    On part p: bound <= constant + form·δ, where δ is the distance from the middle.
    """

    most: Array  # (R,)
    both: Array  # (2, R)
    form: Array  # (n, R)
    constant: Array  # (R,)


class PartProver:
    """Bounds parts of a property's boxes."""

    def __init__(self, network: check.Network, statement: check.PropertyFile) -> None:
        self.network, self.statement = network, statement
        self._known: dict[tuple[int, ...], check.CombinedRows] = {}

    def prove(self, parts: Sequence[BoxPart]) -> list[BoxPart]:
        """Set the weights of all parts with excluded cases. Return the others; `axis` is the input to halve."""
        lower, upper = (np.stack([getattr(part, side) for part in parts], 1) for side in ("lower", "upper"))
        prover = self.boxes(lower, upper)
        cases = [self.statement.boxes[part.box].cases for part in parts]
        pairs = [(k, case) for k, some in enumerate(cases) for case in some]
        weights = self.weights(prover, pairs, (upper - lower) / 2)
        columns = np.array([k for k, _ in pairs])
        found = self.bounds(prover, columns, [(case, w) for (_, case), w in zip(pairs, weights, strict=True)])
        influence = np.abs(found.form)
        influence = np.maximum(influence, _SMALL_INFLUENCE * influence.max(0, keepdims=True))
        spread, open_ = influence * (upper - lower)[:, columns] / 2, ~(found.most < 0)
        left = []
        for k, part in enumerate(parts):
            mine = np.flatnonzero(columns == k)
            part.weights = [weights[i] for i in mine]
            if open_[mine].any():
                some = spread[:, mine[open_[mine]]]
                some = some / np.maximum(some.sum(0), 2.0**-100)
                part.axis = int(some.max(1).argmax()) if some.any() else int((part.upper - part.lower).argmax())
                left.append(part)
        return left

    def boxes(self, lower: Array, upper: Array) -> FormBoxes:
        """Return bounds of all nodes on boxes (n, P)."""
        prover = FormBoxes(self.network, lower, upper)
        prover.kept = []
        return prover.bound()  # type: ignore[return-value]

    def weights(
        self, prover: FormBoxes, pairs: Sequence[tuple[int, list[check.UnsafeRow]]], radius: Array
    ) -> list[list[int]]:
        """Return weights of the rows of each case: one row alone, or several where no row excludes the case."""
        each = [(k, case, row) for k, case in pairs for row in range(len(case))]
        columns = np.array([k for k, _, _ in each])
        single = self.bounds(prover, columns, [(case, _alone(row, len(case))) for _, case, row in each])
        found, start = list[list[int]](), 0
        for k, case in pairs:
            mine = slice(start, start := start + len(case))
            best = int(single.most[mine].argmin())
            if len(case) == 1 or single.most[mine][best] < 0:
                found.append(_alone(best, len(case)))
                continue
            found.append(_minimised(single.form[:, mine].T, single.constant[mine], radius[:, k], best))
        return found

    def bounds(
        self, prover: check.Boxes, columns: Array, some: Sequence[tuple[list[check.UnsafeRow], list[int]]]
    ) -> BoundedCases:
        """Bound minus the weighted rows on the parts of these columns."""
        rows = [self.combined(case, weights) for case, weights in some]
        size = max(1, check.Boxes.forms_at_once(self.network))
        both, forms, safety = list[Array](), list[Array](), list[Array]()
        for start in range(0, len(rows), size):
            few = slice(start, start + size)
            both.append(prover.upper_ends(columns[few], rows[few]))
            forms.append(np.broadcast_to(prover.kept[0], (len(prover.at), len(rows[few]))))
            wide = prover.columns(columns[few])
            reach = np.maximum(-wide.lower[-1], wide.upper[-1])
            a = np.abs(np.stack([row.a for row in rows[few]], 1))
            safety.append((a * reach).sum(0) + np.array([abs(row.constant) for row in rows[few]]))
        ends, form = np.concatenate(both, 1), np.concatenate(forms, 1)
        half = ((prover.upper[0] - prover.lower[0]) / 2)[
            :, columns if len(prover.at[0]) > 1 else np.zeros_like(columns)
        ]
        most = ends[0] + _SAFETY * np.concatenate(safety)
        return BoundedCases(most, ends, form, most - (np.abs(form) * half).sum(0))

    def combined(self, case: list[check.UnsafeRow], weights: list[int]) -> check.CombinedRows:
        """Return minus the weighted rows, once for each case and weights."""
        key = (id(case), *weights)
        if key not in self._known:
            factors = [-weight for weight in weights]
            self._known[key] = check.CombinedRows.of(case, factors, self.statement.outputs)
        return self._known[key]


def grow_halves(prover: PartProver, parts: Sequence[BoxPart], limits: ProofLimits, start: float, count: int) -> int:
    """Halve parts until all cases are excluded on each; return the number of parts, beginning with `count`."""
    waiting = list(parts)
    size = max(1, min(_PARTS_AT_ONCE, check.Boxes.forms_at_once(prover.network)))
    while waiting:
        limits.check(count, start)
        some, waiting = waiting[-size:], waiting[:-size]
        for part in prover.prove(some):
            if not part.lower[part.axis] < (part.lower[part.axis] + part.upper[part.axis]) / 2 < part.upper[part.axis]:
                raise BoundError(
                    "a part of the property is too small to be halved, so there is no certificate of it: its margin is "
                    "within rounding errors"
                )
            waiting += part.halve()
            count += 1
        report(0.0, f"{count} parts, {len(waiting)} of them open")
    return count


def _alone(row: int, count: int) -> list[int]:
    """Return weights of one row alone."""
    return [int(k == row) for k in range(count)]


def _minimised(forms: Array, constants: Array, radius: Array, first: int) -> list[int]:
    """Return weights λ that make max over |δ| <= radius of Σ λ_r (constants_r + forms_r·δ) small.

    forms (rows, n). Exponentiated gradient descent starts near the row `first`, which is the best one alone.
    """
    scaled = forms * radius
    scale = max(float((np.abs(scaled).sum(1) + np.abs(constants)).max()), 2.0**-100)
    logits = np.zeros(len(constants))
    logits[first] = 1.0
    best, found = np.inf, logits
    for step in range(_WEIGHT_STEPS):
        share = np.exp(logits - logits.max())
        share = share / share.sum()
        joined = share @ scaled
        value = float(share @ constants + np.abs(joined).sum())
        if value < best:
            best, found = value, share
        gradient = constants + scaled @ np.sign(joined)
        logits = logits - 4.0 / (1 + step) ** 0.5 * gradient / scale
    whole = np.rint(found / found.max() * _LARGEST_WEIGHT).astype(int)
    return [int(weight) for weight in whole]
