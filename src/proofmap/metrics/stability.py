"""Stability: how far an explanation moves when its sample moves a little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.metrics.draws import seeded
from proofmap.metrics.metric import (
    Metric,
    check_attributions,
    check_call,
    check_choice,
    check_count,
    check_flag,
    check_run,
    classes_of,
    logits_at,
    pieces,
    preset_of,
    recorded,
    rows_of,
    running,
)
from proofmap.records import JSON
from proofmap.settings import is_number

__all__ = ["Explain", "Stability", "StabilitySettings"]

Explain: TypeAlias = Callable[[Tensor, Tensor], Samples]


@dataclass(frozen=True)
class StabilitySettings:
    """What stability is measured with; see `Stability`."""

    norm: float
    half: Literal["+", "-"] | None
    relative: bool
    over: Literal["max", "mean"]


class Stability(Metric[Explain]):
    """max over z with ||z - x||_p <= radius of ||φ(x) - φ(z)||_2, φ the explanation of the class c that x is given.

    Less is better. The maximum is over `samples` points z drawn uniformly: a lower bound of that over all. It grows
    with the scale of the attributions, which the paper does not take out: to compare methods, take it out (relative).
    over: "mean" takes the mean over those points instead.

    Called as Stability(radius)(model, x, target, explainer) with explainer(x, target) -> attributions like x, target
    (n,) int64: `eva.attribute`, for one.

    norm: p, 1, 2 or inf. half, domain: where z stays, as in `pm.Ball`. relative: divide by ||φ(x)||_2.

        paper    norm 2, max (its theorem: at most 4L(ε + radius) for EVA and an L-Lipschitz model)
        quantus  MaxSensitivity: norm inf, relative, max; there the radius is 0.2, with 200 samples
        xplique  AverageStability: norm inf, half "+", mean; there the radius is 0.1, and all samples get the same noise

    A sample's points depend on it, its place in x and the seed; not on other samples, the explainer or the device.
    batch: points that the explainer gets together; by default some 16 MB of them.
    """

    name: ClassVar[str] = "stability"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, StabilitySettings]] = {
        "paper": StabilitySettings(2.0, None, False, "max"),
        "quantus": StabilitySettings(inf, None, True, "max"),
        "xplique": StabilitySettings(inf, "+", False, "mean"),
    }

    def __init__(
        self,
        radius: float,
        samples: int = 20,
        preset: str = "paper",
        *,
        norm: float | None = None,
        half: Literal["+", "-"] | None = None,
        relative: bool | None = None,
        over: Literal["max", "mean"] | None = None,
        domain: tuple[float | Tensor, float | Tensor] | None = None,
        seed: int = 0,
        batch: int | None = None,
    ) -> None:
        given = {"norm": norm, "half": half, "relative": relative, "over": over}
        self.chosen = preset_of(type(self), self.presets, preset, given)
        if not is_number(radius) or not radius > 0:
            raise InputError(f"Stability got radius={radius!r:.60}, expected a number above 0")
        check_flag("Stability", "relative", self.chosen.relative)
        check_choice("Stability", "over", self.chosen.over, ("max", "mean"))
        check_count("Stability", "samples", samples)
        check_run("Stability", seed, batch)
        self.ball = Ball(radius, self.chosen.norm, domain, self.chosen.half)
        self.preset = preset
        self.samples = samples
        self.seed = seed
        self.batch = batch

    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, explainer: Explain) -> Tensor:
        """The largest or the mean distance met at each sample: (N,)."""
        found = self.distances(model, x, target, explainer)
        return found.amax(1) if self.chosen.over == "max" else found.mean(1)

    def distances(
        self,
        model: nn.Module | Graph,
        x: Samples,
        target: Target,
        explainer: Explain,
        moved: Tensor | None = None,
    ) -> Tensor:
        """Each of the distances: (N, samples). moved (N, samples, *shape): points in place of random ones."""
        x = check_call(model, x)
        self.ball.at(x)  # checks the ball
        if not callable(explainer):
            raise InputError(
                f"Stability got an explainer of type {type(explainer).__name__}, expected a function of (x, target) "
                "that returns attributions, such as eva.attribute"
            )
        if moved is not None and (moved.ndim != x.ndim + 1 or moved[:, 0].shape != x.shape):
            raise InputError(
                f"the points have shape {tuple(moved.shape)} at x of shape {tuple(x.shape)}, expected (N, samples, "
                "*sample)"
            )
        rows, x = rows_of(self.batch, x), x.detach()
        with running(model, x) as function:
            classes = classes_of(target, logits_at(function, x, rows))
        if moved is None:
            moved = x[:, None] + self._draw(x).to(x)
        points = torch.cat([x[:, None], moved.to(x)], dim=1)  # (N, 1 + S, *shape)
        each, found = points.shape[1], []
        for piece in pieces(len(x), each, rows):
            flat, aims = points[piece].flatten(0, 1), classes[piece].repeat_interleave(each)
            parts = [
                check_attributions(explainer(p, c), p) for p, c in zip(flat.split(rows), aims.split(rows), strict=True)
            ]
            maps = torch.cat(parts).view(-1, each, x[0].numel())
            far = torch.linalg.vector_norm(maps[:, 1:] - maps[:, :1], dim=2)
            found.append(far / torch.linalg.vector_norm(maps[:, :1], dim=2) if self.chosen.relative else far)
        return torch.cat(found).nan_to_num(nan=0.0, posinf=torch.inf).to(x.dtype)  # 0 / 0: nothing, and it stays

    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""
        more: dict[str, Any] = {"radius": self.ball.eps, "samples": self.samples, "domain": self.ball.domain}
        return recorded(self.preset, self.chosen, **more, seed=self.seed)

    def _draw(self, x: Tensor) -> Tensor:
        """Points of each sample's ball, less the sample: (N, samples, *shape), on the CPU."""
        family = self.ball.at(x.cpu())
        own = [family.pick(torch.tensor([k])) for k in range(len(x))]
        return torch.stack(
            [one.sample(self.samples, seeded(self.seed, "points", k))[:, 0] for k, one in enumerate(own)]
        )
