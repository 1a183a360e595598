"""Tightness: the certified upper bound of AO(B), or its gap to the value that an attack reaches in the same ball."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.attack.pgd import attack
from proofmap.errors import InputError
from proofmap.graph import Network
from proofmap.graph.classes import margins
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.metrics.metric import BallMetric, ByPreset, Case, Presets, Subject, table
from proofmap.settings import check_choice, count
from proofmap.verify.overlap import Overlap

Above: TypeAlias = Literal["zero", "attack"]

_EQUALITY_TOLERANCE = 1e-3  # absolute and relative difference of values that count as equal


@dataclass(frozen=True, eq=False)
class Tightness(BallMetric[Overlap]):
    """The certified upper bound of AO(B), or its difference to the value that an attack reaches; lower is better.

        paper  upper(AO(B)); Table 2 of the paper reports its mean over samples
        gap    upper(AO(B)) - (overlap of the best adversary in B) >= upper(AO(B)) - AO(B) >= 0, up to rounding errors.
               A clearly negative value is refused, because the overlap cannot be a bound on this ball.

    For a fixed model, samples and ball, the difference of the two does not depend on the bound, so both rank bound
    methods alike. Only the gap shows how much a tighter bound could gain.

    Called as Tightness(ball)(model, x, target, overlap) with an overlap of `pm.overlap(model, x, ball, ...)`; target
    None: the target of the overlap. attack_steps: gradient steps of the attack, which starts at x.
    batch: balls that are attacked together; by default about 16 MB of points.

    >>> pm.metrics.Tightness(ball)(model, x, None, pm.overlap(model, x, ball))
    tensor([-10.0599, -13.3980])
    """

    name: ClassVar[str] = "tightness"
    label: ClassVar[str] = "Tightness"
    higher_is_better: ClassVar[bool] = False
    subject: ClassVar[Subject] = "overlap"
    presets: ClassVar[Presets] = table("above", paper=("zero",), gap=("attack",))

    ball: Ball
    preset: str = "paper"
    _: KW_ONLY
    above: ByPreset[Above] = ByPreset(partial(check_choice, words=Above))
    attack_steps: int = count(20)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        super().__post_init__()
        if not isinstance(self.ball, Ball):
            raise InputError(f"Tightness got ball={self.ball!r}, expected the pm.Ball of the evaluated overlaps")

    def _values(self, case: Case) -> Tensor:
        """Return the bound, or its gap to the attack: (N,)."""
        _check_same(case)
        upper: Tensor = case.subject.full
        return upper if self.above == "zero" else upper - self._attack(case)

    def both(self, model: Network, x: Samples, target: Target, overlap: Overlap) -> tuple[Tensor, Tensor]:
        """Return (lower, upper), each (N,): the attack's lower bound and the certified upper bound of AO(B)."""
        case = self._case(model, x, target, overlap)
        _check_same(case)
        return self._attack(case), overlap.full

    def _attack(self, case: Case) -> Tensor:
        """Return the largest overlap that an attack finds in each ball (N,). Refuse one above the bound."""
        family, upper = self.ball.at(case.x), case.subject.full
        parts = torch.arange(len(case.x), device=case.x.device).split(case.rows)
        attacks = [attack(case.graph, family.pick(p), case.target[p], steps=self.attack_steps)[0] for p in parts]
        met = torch.cat(attacks)
        above = met - upper
        if bool((above > _EQUALITY_TOLERANCE * (1 + upper.abs())).any()):
            worst = int(above.argmax())
            raise InputError(
                f"Tightness got an overlap of at most {float(upper[worst]):.3g} at sample {worst}, where an "
                f"attack reaches {float(met[worst]):.3g}: expected one over the ball that Tightness was given"
            )
        return met


def _check_same(case: Case) -> None:
    """Refuse the overlap of another class, model or sample."""
    overlap: Overlap = case.subject
    if not torch.equal(case.target, overlap.target):
        raise InputError(
            f"Tightness got target {case.target.tolist()} and an overlap of target {overlap.target.tolist()}, expected "
            "the same"
        )
    if not torch.allclose(
        margins(case.logits, case.target), overlap.nominal, rtol=_EQUALITY_TOLERANCE, atol=_EQUALITY_TOLERANCE
    ):
        raise InputError(
            "Tightness got an overlap that differs at x itself from the model's margin there, expected one of this "
            "model and these samples, with objective='margin' and no rival"
        )
