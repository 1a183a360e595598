"""The question of each sample for `pm.Sufficient` and `pm.Contrastive`, and the checks of their settings."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from proofmap.bounds import Backward, Method
from proofmap.errors import InputError
from proofmap.explainers.batching import Task, ball_of_samples
from proofmap.graph.classes import logits_of
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.reasons.problem import ReasonProblem
from proofmap.verify.objective import decides, forms_of
from proofmap.verify.objectives import Objective, Output
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


def check_question(objective: Objective, within: float | None) -> None:
    """Raise InputError unless the objective decides a class, or has a limit for the change of an output."""
    output = isinstance(objective, Output)
    if output and within is None:
        raise InputError(
            "got an output without a limit, expected the change that is allowed: within=0.5",
            arguments=("within=0.5",),
        )
    if not output and within is not None:
        raise InputError(f"got within={within!r} with classes, expected objective=pm.objectives.Output(0)")
    if not output and not decides(objective):
        raise InputError(f"got objective={objective!r}, expected 'margin', which decides the class")


def check_limit(said: str, got: object) -> None:
    """Raise InputError unless the limit of a change is a finite number above 0."""
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 < got < float("inf"):
        raise InputError(f"{said}={got!r}, expected a number above 0")
