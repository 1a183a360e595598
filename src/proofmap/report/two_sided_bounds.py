"""Upper and lower bounds of the adversarial overlap for the report, with PGD lower bounds from the given model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from proofmap.attack.pgd import attack
from proofmap.errors import InputError, ProofmapError
from proofmap.explainers import Explanation
from proofmap.explainers.explained_ball import recorded_ball
from proofmap.graph import Graph, as_graph
from proofmap.graph.opaque import opaque_node
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.storage.hashing import hash_graph
from proofmap.text.verdict import Kind, Outcome, kind_of, outcome_of
from proofmap.text.wording import confidence
from proofmap.verify.overlap import Overlap

STEPS, RESTARTS = 20, 4  # of the PGD attack
_ATTACK_BATCH = 16  # samples that are attacked together


@dataclass(frozen=True)
class Range:
    """The known bounds of AO(B) for one sample, on the whole ball or one half of it. None: no such bound."""

    nominal: float  # at the input itself, a point of the ball
    upper: float | None = None  # certified
    sampled: float | None = None  # the largest that samples of the ball reached
    attacked: float | None = None  # the largest that an attack reached
    searched: float | None = None  # the largest that the search for the bound reached
    estimate: float | None = None  # neither a lower nor an upper bound
    half: Literal["+", "-"] | None = None
    level: str | None = None  # the probability of both bounds, if they are not proven

    @property
    def lower(self) -> float:
        """The largest overlap at an evaluated input of the ball; -inf if none was evaluated."""
        met = (self.nominal, self.sampled, self.attacked, self.searched)
        return max((value for value in met if value is not None and not math.isnan(value)), default=-math.inf)

    @property
    def gap(self) -> float | None:
        """The difference of both bounds, at least 0."""
        return None if self.upper is None else max(self.upper - self.lower, 0.0)


def ranges(e: Explanation, k: int, reached: Tensor | None = None) -> tuple[Range, ...]:
    """Return the bounds for sample k: one range, or two if the halves of the ball were bounded separately.

    reached (N,): the lower bounds from `attacked`.
    """
    extra = None if reached is None else float(reached[k])
    if e.opposite is None:
        return (_range(e, e.overlap, k, extra, None),)
    return _range(e, e.overlap, k, extra, "+"), _range(e, e.opposite, k, extra, "-")


def _range(e: Explanation, over: Overlap, k: int, reached: float | None, half: Literal["+", "-"] | None) -> Range:
    value = float(over.full[k])
    side = {"certified": "upper", "probable": "upper", "sampled": "sampled", "none": "estimate"}[e.guarantee]
    known: dict[str, Any] = {} if math.isnan(value) else {side: value}
    lower, nominal = float(over.full_lower[k]), float(over.nominal[k])
    if e.guarantee == "certified" and lower > nominal:
        known["searched"] = lower
    level = confidence(e.settings) if e.guarantee == "probable" else None
    return Range(nominal, attacked=reached, half=half, level=level, **known)


def verdict(kind: Kind, sides: tuple[Range, ...]) -> Outcome:
    """Return the outcome from the bounds, including the lower bounds of an attack."""
    return outcome_of(kind, [(side.lower, side.upper) for side in sides])


def checked(model: nn.Module | Graph, x: Tensor, name: str, expected: str) -> Graph:
    """Return the graph of the model for inputs like x. Refuse a model other than the one that `name` explains."""
    try:
        graph = as_graph(model, x)
    except ProofmapError as error:
        raise InputError(
            f"the model does not take samples of shape {tuple(x.shape[1:])}, which {name} explains: give the model "
            "that was explained"
        ) from error
    actual = hash_graph(graph)
    if actual != expected:
        raise InputError(
            f"the model has the hash {actual[:12]}…, and {name} explains one with {expected[:12]}…: give the model "
            "that was explained, with the same weights and preparation"
        )
    return graph


def attacked(model: nn.Module | Graph, name: str, e: Explanation) -> Tensor | None:
    """Return lower bounds of AO(B) for each sample (N,), found by a PGD attack.

    The model must be the explained one. None if the overlap is not about the decision, if the file does not contain
    the ball, or if the model has no gradients.
    """
    graph = checked(model, e.x, name, e.model_hash)
    ball = recorded_ball(e.settings)
    part = opaque_node(graph)
    if kind_of(e) != "decision" or ball is None or (part is not None and not part[1].gradients):
        return None
    graph, boxes = graph.to(e.x.device, e.x.dtype), OneHotBoxes.of(ball, e.x)
    draws, target = torch.Generator(e.x.device).manual_seed(0), e.target[boxes.owner]
    parts = torch.arange(len(boxes.owner), device=e.x.device).split(_ATTACK_BATCH)
    reached = [
        attack(graph, boxes.family.pick(part), target[part], steps=STEPS, restarts=RESTARTS, generator=draws)[0]
        for part in parts
    ]
    return boxes.largest(torch.cat(reached)[:, None])[0][:, 0]
