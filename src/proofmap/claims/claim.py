"""What an explanation claims, as questions that other verifiers answer: ONNX and VNN-LIB.

    AO(B) <= t, every AO(B_u) <= t_u:    no x of the box has  Y_k = f_c'(x) - f_c(x) >= t  for a rival c'

The rows f_c' - f_c are a last layer of the network, so that a property compares each output with a number: all tools
read that, and hardly any reads a sum of outputs in VNN-LIB. Whoever finds none of the counterexamples that a file
describes (unsat) has proven at least the claim: its box holds the ball, its ends rounded outward, its t is exact or
rounded down, and t itself must not be reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite, nextafter
from typing import Literal

import torch
from torch import Tensor

from proofmap.claims.enclosing_boxes import hull
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.recorded_ball import stated_ball
from proofmap.inputs.ball import Ball
from proofmap.text.proven_ranks import MOST
from proofmap.verify.overlap import Overlap

__all__ = ["Claim", "Family", "Form", "Which", "asked_groups", "claims_of", "form_of", "text_of"]

Which = Literal["all", "top", "none"]


@dataclass(frozen=True)
class Form:
    """What is claimed to stay below a number: the largest of some rows of the logits, all of whole numbers."""

    target: int  # the class c
    rivals: tuple[int, ...]  # the classes c', one a row
    objective: str
    classes: int

    @property
    def name(self) -> str:
        """Of the network that ends in it."""
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
        """How many times the claimed number the rows are below: their sum, where the mean is claimed."""
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
class Claim:
    """The form is at most `value` on the box."""

    name: str
    says: str  # in the words of an explanation
    form: Form
    lower: Tensor  # (*shape) float64
    upper: Tensor
    value: float

    @property
    def threshold(self) -> float:
        """What no row may reach: factor · value, exact or rounded down."""
        product = self.form.factor * self.value
        below = Fraction(product) <= self.form.factor * Fraction(self.value)
        return product if below else nextafter(product, -inf)


@dataclass(frozen=True, eq=False)
class Family:
    """What is proven of one sample: AO(B) <= full, every AO(B_u) <= frozen[u]."""

    form: Form
    lower: Tensor  # (*shape) float64, the ends of the box that B is
    upper: Tensor
    x: Tensor  # (*shape)
    mask: Tensor  # (*shape) the group of each variable
    full: float
    frozen: Tensor  # (G,)

    def claims(self, stem: str, groups: Sequence[int]) -> Iterator[Claim]:
        """Of B and of these B_u, named by the stem; a bound that is not finite claims nothing."""
        x, mask = self.x.double().cpu(), self.mask.cpu()
        for group in (None, *groups):
            value = self.full if group is None else float(self.frozen[group])
            if not isfinite(value):
                continue
            frozen = torch.zeros_like(mask, dtype=torch.bool) if group is None else mask == group
            ends = [torch.where(frozen, x, end) for end in (self.lower, self.upper)]
            member = "B" if group is None else f"B_{group}"
            file = stem if group is None else f"{stem}-u{group}"
            yield Claim(file, f"AO({member}) <= {_decimal(value)}", self.form, ends[0], ends[1], value)


def form_of(target: int, objective: str, classes: int, aim: int | None = None) -> Form:
    """What the overlaps of a class are of: against all other classes, or the one that is aimed at."""
    rivals = tuple(c for c in range(classes) if c != target) if aim is None else (aim,)
    return Form(target, rivals, "margin" if objective == "apart" else objective, classes)  # another bound of the same


def claims_of(e: Explanation, name: str, classes: int, which: Which) -> Iterator[tuple[int, Claim]]:
    """Each sample with what is claimed of B, and of B_u for all groups, for the ten that score most, or for none.

    classes: of the network. Of a targeted map both halves are claimed.
    """
    ball = _ball(e, name)
    objective = str(e.settings.get("objective", "margin"))
    halves: list[tuple[str, Overlap, Ball]] = [("", e.overlap, ball)]
    if e.opposite is not None:
        both = (("-adding", e.overlap, "+"), ("-removing", e.opposite, "-"))
        halves = [(said, over, replace(ball, half=half)) for said, over, half in both]  # type: ignore[arg-type]
    for said, over, part in halves:
        lower, upper = hull(part, e.x)
        for k in range(len(e)):
            target = int(over.target[k])
            aim = None if e.opposite is None else int(e.target[k])
            if aim == target:
                continue  # towards its own class nothing is claimed
            form = form_of(target, objective, classes, aim)
            mask = e.mask[k if len(e.mask) > 1 else 0]
            family = Family(form, lower[k], upper[k], e.x[k], mask, float(over.full[k]), over.frozen[k])
            groups = asked_groups(e.scores[k] if over.frozen.shape[1] else over.frozen[k], which)
            stem = f"{name}{f'-{k}' if len(e) > 1 else ''}{said}"
            yield from ((k, claim) for claim in family.claims(stem, groups))


def text_of(claim: Claim, network: str, about: list[str]) -> str:
    """The VNN-LIB file of a claim; network: the name of the ONNX file; about: more lines for its head."""
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


def _ball(e: Explanation, name: str) -> Ball:
    """The ball of an explanation that claims something of it."""
    if e.guarantee != "certified":
        raise InputError(f"{name} is {e.guarantee}, expected a certified explanation: nothing else claims anything")
    ball = stated_ball(e.settings)
    if ball is None:
        raise InputError(f"{name} does not hold its ball, expected one whose radii and domain were written down")
    return ball


def asked_groups(scores: Tensor, which: Which) -> list[int]:
    """Of which groups claims are asked for, of their scores (G,) the largest first."""
    order: list[int] = scores.abs().argsort(descending=True, stable=True).tolist()
    return {"none": [], "top": order[:MOST], "all": order}[which]


def _decimal(value: float) -> str:
    """Every digit of the number, without an exponent: not every tool takes one."""
    return format(Decimal(value + 0.0), "f")
