"""The base class of `pm.Sufficient` and `pm.Contrastive`: their common settings, and the question of each sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.bounds import Backward, Exact, Method
from proofmap.errors import InputError
from proofmap.explainers.batching import Task, ball_of_samples
from proofmap.explainers.explainer import Explainer
from proofmap.explainers.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.graph.classes import logits_of
from proofmap.graph.rewrite.fold import has_extreme_weights
from proofmap.inputs.ball import Ball
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.reasons.problem import ReasonProblem
from proofmap.runtime.memory import budget
from proofmap.settings import flag, number, setting
from proofmap.verify.objective import decides, forms_of
from proofmap.verify.objectives import Objective, Output, check_objective
from proofmap.verify.overlap import Overlap, OverlapSettings, probability_margin


def reason_problem(
    task: Task, n: int, how: OverlapSettings, overlap: Overlap, within: float | None, rival: Tensor | None = None
) -> ReasonProblem:
    """Return the question of sample n about the class that the overlap explains.

    rival: (1,) one other class; None: all others.
    """
    number = torch.tensor([n], device=task.x.device)
    x, target = task.x[number], overlap.target[number]
    start = overlap.value[number] if overlap.value is not None else None
    forms = forms_of(logits_of(task.graph, x), target, rival, how.objective, start)[0]
    limit = 0.0 - probability_margin(task.graph, how) if within is None else within
    mask = task.mask[n : n + 1] if len(task.mask) > 1 else task.mask
    boxes = OneHotBoxes.of(ball_of_samples(task.ball, number, task.x), x, mask)
    return ReasonProblem(task.graph, boxes, target, forms, start, limit, how)


def goal_problem(problem: ReasonProblem, goal: Tensor) -> ReasonProblem:
    """Return the problem whose forms are the leads of the class `goal` (1,) over all other classes."""
    logits = logits_of(problem.graph, problem.family.x)
    return replace(problem, target=goal, forms=-forms_of(logits, goal, None, problem.how.objective)[0])


def without_search(method: Method) -> Method:
    """Return the method without a search."""
    return Backward() if method.search is not None else method


def check_limit(said: str, got: object) -> None:
    """Raise InputError unless the limit of a change is a finite number above 0."""
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 < got < float("inf"):
        raise InputError(f"{said}={got!r}, expected a number above 0")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SetExplainer(Explainer):
    """Explains by sets of groups that decide, or change, the decision of each sample.

    bounds: Exact() by default. seconds: the time for each sample. objective: "margin", a `Label`, or an `Output` with
    the change `within` that is allowed.
    """

    guarantee: ClassVar[Guarantee] = "certified"

    bounds: Method | None = None
    seconds: float = number(10.0, "a number above 0", lambda seconds: seconds > 0)
    objective: Objective = setting("margin", check_objective)
    within: float | None = setting(None, check_limit)
    rigorous: bool | None = flag()

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings, or an objective without a decision."""
        if self.bounds is None:
            object.__setattr__(self, "bounds", Exact())
        super().__post_init__()
        output = isinstance(self.objective, Output)
        if output and self.within is None:
            raise InputError(
                "got an output without a limit, expected the change that is allowed: within=0.5",
                arguments=("within=0.5",),
            )
        if not output and self.within is not None:
            raise InputError(f"got within={self.within!r} with classes, expected objective=pm.objectives.Output(0)")
        if not output and not decides(self.objective):
            raise InputError(f"got objective={self.objective!r}, expected 'margin', which decides the class")

    def _overlap_settings(self, task: Task, *, search: bool) -> OverlapSettings:
        """Return the settings of the bounds, with or without the search of the method."""
        assert self.bounds is not None
        method = self.bounds if search else without_search(self.bounds)
        room = budget(self.memory, task.x.device)
        rigorous = task.rigorous or has_extreme_weights(task.graph)  # only rigorous bounds know the range of float32
        return OverlapSettings(method, room, "one-pass", self.objective, rigorous=rigorous)

    def _with_radius(self, ball: Ball, graph: Graph, x: Tensor, target: Tensor, rigorous: bool, show: bool) -> Ball:
        """Replace the radius "auto" without a search: within a proven radius, nothing changes the decision."""
        assert self.bounds is not None
        quick = replace(self, bounds=without_search(self.bounds))
        return super(SetExplainer, quick)._with_radius(ball, graph, x, target, rigorous, show)
