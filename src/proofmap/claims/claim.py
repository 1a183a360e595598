"""Claims of explanations as VNN-LIB properties: the counterexamples to an upper bound of an overlap.

    AO(B) <= t, every AO(B_u) <= t_u:    no x of the box has  Y_k = f_c'(x) - f_c(x) >= t  for a rival c'

The rows f_c' - f_c are the last layer of the exported network, so that a property compares each output with a number.
All tools read such properties, and few read sums of outputs. The answer "unsat" proves at least the claim: the box of
the property contains the ball (endpoints rounded outward), t is exact or rounded down, and t itself counts as a
counterexample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite, nextafter
from typing import Literal

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.explained_ball import recorded_ball
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST
from proofmap.inputs.ball import Ball
from proofmap.inputs.membership import add_rounded_down
from proofmap.verify.overlap import Overlap

Which = Literal["all", "top", "none"]

_TWO_ROUNDINGS = 1 + 2.0**-50  # enlarges a radius by more than two rounding errors


@dataclass(frozen=True)
class ClaimedForm:
    """The claimed quantity: the largest of some rows, linear forms of the logits with integer coefficients."""

    target: int  # the class c
    rivals: tuple[int, ...]  # the classes c', one per row
    objective: str
    classes: int

    @property
    def name(self) -> str:
        """The name of the network whose last layer computes the rows."""
        aimed = f"-to-{self.rivals[0]}" if len(self.rivals) == 1 < self.classes - 1 else ""
        return f"net-{self.target}{aimed}" + ("" if self.objective == "margin" else f"-{self.objective}")

    @property
    def rows(self) -> Tensor:
        """(R, classes) float64."""
        unit = torch.eye(self.classes, dtype=torch.float64)
        margins = unit[list(self.rivals)] - unit[self.target]
        match self.objective:
            case "class":
                return -unit[self.target][None]
            case "mean":
                return margins.sum(0, keepdim=True)
        return margins

    @property
    def factor(self) -> int:
        """The factor between the row and the claimed quantity: the row is a sum where the mean is claimed, else 1."""
        return len(self.rivals) if self.objective == "mean" else 1

    def __str__(self) -> str:
        match self.objective:
            case "class":
                return f"Y_0 = -f_{self.target}"
            case "mean":
                return f"Y_0 = sum of f_c' - f_{self.target} over c' = {self._rivals}, {self.factor} times their mean"
        return f"Y_k = f_c' - f_{self.target}, for k = 0, 1, ...: c' = {self._rivals}"

    @property
    def _rivals(self) -> str:
        return ", ".join(map(str, self.rivals))


@dataclass(frozen=True, eq=False)
class BoundClaim:
    """The claim that a form is at most `value` on a box."""

    name: str
    says: str  # for instance "AO(B) <= -0.5"
    form: ClaimedForm
    lower: Tensor  # (*shape) float64
    upper: Tensor
    value: float

    @property
    def threshold(self) -> float:
        """The number that no row may reach: factor · value, exact or rounded down."""
        product = self.form.factor * self.value
        below = Fraction(product) <= self.form.factor * Fraction(self.value)
        return product if below else nextafter(product, -inf)


@dataclass(frozen=True, eq=False)
class ProvenBounds:
    """The proven upper bounds of one sample: AO(B) <= full, and AO(B_u) <= frozen[u] for every group u."""

    form: ClaimedForm
    lower: Tensor  # (*shape) float64, the endpoints of the box B
    upper: Tensor
    x: Tensor  # (*shape)
    mask: Tensor  # (*shape) the group of each variable
    full: float
    frozen: Tensor  # (G,)

    def claims(self, stem: str, groups: Sequence[int]) -> Iterator[BoundClaim]:
        """Yield the claims of B and of B_u for these groups, named by the stem; infinite bounds are skipped."""
        x, mask = self.x.double().cpu(), self.mask.cpu()
        for group in (None, *groups):
            value = self.full if group is None else float(self.frozen[group])
            if not isfinite(value):
                continue
            frozen = torch.zeros_like(mask, dtype=torch.bool) if group is None else mask == group
            ends = [torch.where(frozen, x, end) for end in (self.lower, self.upper)]
            member = "B" if group is None else f"B_{group}"
            file = stem if group is None else f"{stem}-u{group}"
            yield BoundClaim(file, f"AO({member}) <= {_decimal(value)}", self.form, ends[0], ends[1], value)


def enclosing_box(ball: Ball, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the endpoints (N, *shape) of {x + δ : δ in the ball} in float64, exact or rounded outward."""
    if ball.norm != inf:
        raise InputError(
            f"got a ball of norm {ball.norm:g}, expected norm inf: VNN-LIB states boxes, and the box around this ball "
            "holds inputs that nothing is claimed of"
        )
    x = x.double().cpu()
    family, (low, high) = ball.at(x), ball.limits(x)
    lower, upper = family.lower, family.upper
    if ball.relative:
        lower = lower if ball.half == "+" else _product_rounded_down(lower, x > low)
        upper = upper if ball.half == "-" else -_product_rounded_down(-upper, x < high)
    return _lower_end(x, lower, low), -_lower_end(-x, -upper, -high)


def _product_rounded_down(delta: Tensor, moves: Tensor) -> Tensor:
    """Return less than eps · (low - x) where x can move. delta is its float64 value, after two roundings."""
    return torch.where(moves, torch.nextafter(delta * _TWO_ROUNDINGS, torch.full_like(delta, -inf)), delta)


def _lower_end(x: Tensor, delta: Tensor, low: Tensor) -> Tensor:
    """Return the lower endpoint of x + δ for δ >= delta, with delta <= 0 and the lower limit `low` of the domain.

    Where the domain cuts the ball, delta is the rounded low - x, and the endpoint is `low` itself.
    """
    end = torch.where(delta == low - x, low, add_rounded_down(x, delta).maximum(low))
    return torch.where(delta == 0, x, end)


def form_of(target: int, objective: object, classes: int, aim: int | None = None) -> ClaimedForm:
    """Return the form of a class's overlap: against all other classes, or against the target class `aim`."""
    if not isinstance(objective, str):
        raise InputError(
            f"got an explanation with objective={objective!r}, expected one of the logits, such as 'margin': VNN-LIB "
            "claims are about classes"
        )
    rivals = tuple(c for c in range(classes) if c != target) if aim is None else (aim,)
    return ClaimedForm(target, rivals, "margin" if objective == "apart" else objective, classes)


def claims_of(e: Explanation, name: str, classes: int, which: Which) -> Iterator[tuple[int, BoundClaim]]:
    """Yield (sample, claim) for B, and for B_u of all groups, of the ten groups with the largest scores, or of none.

    classes: the number of the network's outputs. A targeted map claims the bounds of both halves.
    """
    ball = _certified_ball(e, name)
    objective = e.settings.get("objective", "margin")
    halves: list[tuple[str, Overlap, Ball]] = [("", e.overlap, ball)]
    if e.opposite is not None:
        both = (("-adding", e.overlap, "+"), ("-removing", e.opposite, "-"))
        halves = [(said, over, replace(ball, half=half)) for said, over, half in both]  # type: ignore[arg-type]
    for said, over, part in halves:
        lower, upper = enclosing_box(part, e.x)
        for k in range(len(e)):
            target = int(over.target[k])
            aim = None if e.opposite is None else int(e.target[k])
            if aim == target:
                continue  # a map towards the sample's own class claims nothing
            form = form_of(target, objective, classes, aim)
            mask = e.mask[k if len(e.mask) > 1 else 0]
            proven = ProvenBounds(form, lower[k], upper[k], e.x[k], mask, float(over.full[k]), over.frozen[k])
            groups = selected_groups(e.scores[k] if over.frozen.shape[1] else over.frozen[k], which)
            stem = f"{name}{f'-{k}' if len(e) > 1 else ''}{said}"
            yield from ((k, claim) for claim in proven.claims(stem, groups))


def vnnlib_text(claim: BoundClaim, network: str, about: list[str]) -> str:
    """Return the VNN-LIB file of a claim; network: the name of the ONNX file; about: more comment lines."""
    lower, upper = claim.lower.flatten().tolist(), claim.upper.flatten().tolist()
    threshold, rows = _decimal(claim.threshold), len(claim.form.rows)
    head = [
        f"Claimed: {claim.says}, c = {claim.form.target}. This file, with {network}, describes counterexamples:",
        f"{claim.form}; inputs in the box with some Y_k >= {threshold}.",
        "unsat: the claim holds. The box holds the ball as stated, its ends exact or rounded outward to float64;",
        "the number is exact or rounded down, and must not even be reached.",
        "sat: refutes the claim only if its input is in the ball itself and some Y_k is above the number there.",
        *about,
    ]
    lines = [f"; {line}" for line in head]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{k} Real)" for k in range(rows)]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (<= X_{i} {_decimal(high)}))", f"(assert (>= X_{i} {_decimal(low)}))"]
    cases = [f"(>= Y_{k} {threshold})" for k in range(rows)]
    lines.append(f"(assert (or {' '.join(f'(and {case})' for case in cases)}))" if rows > 1 else f"(assert {cases[0]})")
    return "\n".join([*lines, ""])


def _certified_ball(e: Explanation, name: str) -> Ball:
    """Return the recorded ball of a certified explanation; raise InputError for others."""
    if e.guarantee != "certified":
        raise InputError(f"{name} is {e.guarantee}, expected a certified explanation: nothing else claims anything")
    ball = recorded_ball(e.settings)
    if ball is None:
        raise InputError(
            f"{name} does not contain its ball, expected an explanation whose radii and domain were recorded"
        )
    return ball


def selected_groups(scores: Tensor, which: Which) -> list[int]:
    """Return the groups that are claimed, in descending order of |score| (G,)."""
    order: list[int] = scores.abs().argsort(descending=True, stable=True).tolist()
    return {"none": [], "top": order[:MAX_LARGEST], "all": order}[which]


def _decimal(value: float) -> str:
    """Write all digits of a number without an exponent, which some tools do not read."""
    return format(Decimal(value + 0.0), "f")
