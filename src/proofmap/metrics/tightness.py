"""Tightness: how much a certified overlap says, beside what an attack reaches in the same ball."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.errors import InputError
from proofmap.explain.attack import attack
from proofmap.explain.empirical import margins
from proofmap.graph import Graph, as_graph
from proofmap.metrics.metric import (
    Metric,
    check_call,
    check_choice,
    check_count,
    check_run,
    classes_of,
    logits_at,
    preset_of,
    recorded,
    rows_of,
    running,
)
from proofmap.overlaps import Overlap
from proofmap.records import JSON

__all__ = ["Tightness", "TightnessSettings"]

Above: TypeAlias = Literal["zero", "attack"]

_ROUNDING = 1e-3  # by which what is equal may differ, absolutely and relatively


@dataclass(frozen=True)
class TightnessSettings:
    """What tightness is measured from; see `Tightness`."""

    above: Above


class Tightness(Metric[Overlap]):
    """The certified upper bound of AO(B), as it is or above what an attack reaches; less is better.

        paper  upper(AO(B)): its Table 2 reports the mean of it over samples
        gap    upper(AO(B)) - AO of the best adversary met in B, which is at least upper(AO(B)) - AO(B) >= 0, up to
               rounding; what is clearly below 0 is no bound on this ball, and refused

    For one model, samples and ball the two differ by what does not depend on how the bound was made: they rank bound
    methods alike. Only the gap says how much is left to gain.

    Called as Tightness(ball)(model, x, target, overlap) with the `pm.overlap(model, x, ball, ...)` that is judged;
    target None: the overlap's own. attack_steps: gradient steps of the attack, which starts at x (`explain.attack`).
    batch: balls that are attacked together; by default some 16 MB of points.
    """

    name: ClassVar[str] = "tightness"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, TightnessSettings]] = {
        "paper": TightnessSettings("zero"),
        "gap": TightnessSettings("attack"),
    }

    def __init__(
        self,
        ball: Ball,
        preset: str = "paper",
        *,
        above: Above | None = None,
        attack_steps: int = 20,
        batch: int | None = None,
    ) -> None:
        self.chosen = preset_of(type(self), self.presets, preset, {"above": above})
        if not isinstance(ball, Ball):
            raise InputError(f"Tightness got ball={ball!r}, expected the pm.Ball of the overlaps that are judged")
        check_choice("Tightness", "above", self.chosen.above, get_args(Above))
        check_count("Tightness", "attack_steps", attack_steps)
        check_run("Tightness", 0, batch)
        self.ball = ball
        self.preset = preset
        self.attack_steps = attack_steps
        self.batch = batch

    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, overlap: Overlap) -> Tensor:
        """How far the bound is above zero, or above the attack: (N,)."""
        x = check_call(model, x)
        classes = self._check(model, x, target, overlap)
        if self.chosen.above == "zero":
            return overlap.full
        return overlap.full - self._attack(model, x, classes, overlap)

    def both(self, model: nn.Module | Graph, x: Samples, target: Target, overlap: Overlap) -> tuple[Tensor, Tensor]:
        """(lower, upper), each (N,): AO(B) is between what an attack reached and what is proven."""
        x = check_call(model, x)
        return self._attack(model, x, self._check(model, x, target, overlap), overlap), overlap.full

    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""
        ball = {name: getattr(self.ball, name) for name in ("eps", "norm", "domain", "half", "relative")}
        return recorded(self.preset, self.chosen, **ball, attack_steps=self.attack_steps)

    def _attack(self, model: nn.Module | Graph, x: Tensor, target: Tensor, overlap: Overlap) -> Tensor:
        """The largest overlap met in each ball, (N,), where it is within the bound."""
        graph = as_graph(model, x).to(x.device, x.dtype)
        family, every = self.ball.at(x), torch.arange(len(x), device=x.device)
        parts = every.split(rows_of(self.batch, x))
        met = torch.cat([attack(graph, family.pick(p), target[p], steps=self.attack_steps)[0] for p in parts])
        above = met - overlap.full
        if bool((above > _ROUNDING * (1 + overlap.full.abs())).any()):
            worst = int(above.argmax())
            raise InputError(
                f"Tightness got an overlap of at most {float(overlap.full[worst]):.3g} at sample {worst}, where an "
                f"attack reaches {float(met[worst]):.3g}: expected one over the ball that Tightness was given"
            )
        return met

    def _check(self, model: nn.Module | Graph, x: Tensor, target: Target, overlap: Overlap) -> Tensor:
        """The classes of the overlap, (N,), where it can be what it is said to be."""
        self.ball.at(x)
        if not isinstance(overlap, Overlap) or not overlap.certified:
            got = (
                "a sampled overlap" if isinstance(overlap, Overlap) else f"an overlap of type {type(overlap).__name__}"
            )
            raise InputError(f"Tightness got {got}, expected a certified one, such as pm.overlap(model, x, ball)")
        with running(model, x) as function:
            logits = logits_at(function, x.detach(), rows_of(self.batch, x))
        if len(overlap.full) != len(x):
            raise InputError(
                f"Tightness got an overlap of {len(overlap.full)} samples, expected one of the {len(x)} in x"
            )
        classes = overlap.target if target is None else classes_of(target, logits)
        if not torch.equal(classes, overlap.target):
            raise InputError(
                f"Tightness got target {classes.tolist()} and an overlap of target {overlap.target.tolist()}, expected "
                "the same"
            )
        if not torch.allclose(margins(logits, classes), overlap.nominal, rtol=_ROUNDING, atol=_ROUNDING):
            raise InputError(
                "Tightness got an overlap that differs at x itself from the model's margin there, expected one of this "
                "model and these samples, with objective='margin' and no rival"
            )
        return classes
