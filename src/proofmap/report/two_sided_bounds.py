"""The adversarial overlap from both sides: what is proven not to be exceeded, and what an input of the ball reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from proofmap.attack.pgd import attack
from proofmap.errors import InputError, ProofmapError
from proofmap.explainers import Explanation
from proofmap.explainers.recorded_ball import stated_ball
from proofmap.graph import Graph, as_graph
from proofmap.graph.opaque import opaque_node
from proofmap.inputs.onehot_boxes import Boxes
from proofmap.storage.hashing import hash_graph
from proofmap.text.wording import confidence
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

__all__ = ["RESTARTS", "STEPS", "Kind", "Range", "Verdict", "attacked", "checked", "kind_of", "ranges", "verdict"]

# What an overlap of an explanation is about: whether the class holds, whether one other class is reached by raising
# values alone or by lowering them alone, the same of the class that it is already, which asks nothing, a form of the
# logits that decides nothing, or whether the class holds for most noisy copies, with some probability.
Kind: TypeAlias = Literal["decision", "targeted", "own", "other", "smoothed"]
Verdict: TypeAlias = Literal["proven", "probable", "undecided", "refuted", "unproven", "aside"]

STEPS, RESTARTS = 20, 4
_TOGETHER = 16  # samples attacked at a time


@dataclass(frozen=True)
class Range:
    """What is known of AO(B) at one sample, on the whole ball or one half of it; None: nothing from there."""

    nominal: float  # at the input itself, a point of the ball
    upper: float | None = None  # certified
    sampled: float | None = None  # the largest that samples of the ball reached
    attacked: float | None = None  # the largest that an attack reached
    searched: float | None = None  # the largest that the search for the bound reached
    estimate: float | None = None  # neither a lower nor an upper bound
    half: Literal["+", "-"] | None = None
    level: str | None = None  # the probability with which both ends hold, where they are not proven

    @property
    def lower(self) -> float:
        """The largest overlap that was evaluated at an input of the ball; -inf where there is none."""
        met = (self.nominal, self.sampled, self.attacked, self.searched)
        return max((value for value in met if value is not None and not math.isnan(value)), default=-math.inf)

    @property
    def gap(self) -> float | None:
        """How much is left open between the two sides; never negative."""
        return None if self.upper is None else max(self.upper - self.lower, 0.0)


def kind_of(e: Explanation, k: int = 0) -> Kind:
    """What sample k asks. Only margins, bounded together or apart, decide."""
    if e.opposite is not None:
        return "targeted" if int(e.target[k]) != int(e.overlap.target[k]) else "own"
    if e.guarantee == "probable":
        return "smoothed"
    return "decision" if decides(e.settings.get("objective", "margin")) else "other"


def ranges(e: Explanation, k: int, reached: Tensor | None = None) -> tuple[Range, ...]:
    """Both sides for sample k: one range, or two where the halves of the ball were bounded.

    reached (N,): what `attacked` found.
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


def verdict(kind: Kind, sides: tuple[Range, ...]) -> Verdict:
    """proven: no input of the ball changes the decision; refuted: one that was met does; undecided: neither."""
    if kind in ("other", "own"):
        return "aside"
    if kind == "smoothed":
        return "probable" if all(side.upper is not None and side.upper < 0 for side in sides) else "undecided"
    if all(side.upper is not None and side.upper < 0 for side in sides):
        return "proven"
    if any(side.lower > 0 for side in sides):
        return "refuted"
    return "undecided" if all(side.upper is not None for side in sides) else "unproven"


def checked(model: nn.Module | Graph, x: Tensor, name: str, expected: str) -> Graph:
    """The model as a graph for inputs like x, if it is the one that was explained in the file or run of this name."""
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
    """The largest overlap that an attack reaches in each sample's ball (N,): AO(B) is at least that.

    The model has to be the one that was explained. None where the margin over all classes is not what was bounded, or
    where the file does not hold the ball, or where the model has no gradients to attack by.
    """
    graph = checked(model, e.x, name, e.model_hash)
    ball = stated_ball(e.settings)
    part = opaque_node(graph)
    if kind_of(e) != "decision" or ball is None or (part is not None and not part[1].gradients):
        return None
    graph, boxes = graph.to(e.x.device, e.x.dtype), Boxes.of(ball, e.x)
    draws, target = torch.Generator(e.x.device).manual_seed(0), e.target[boxes.owner]
    parts = torch.arange(len(boxes.owner), device=e.x.device).split(_TOGETHER)
    reached = [
        attack(graph, boxes.family.pick(part), target[part], steps=STEPS, restarts=RESTARTS, generator=draws)[0]
        for part in parts
    ]
    return boxes.largest(torch.cat(reached)[:, None])[0][:, 0]
