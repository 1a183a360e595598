"""Sufficient: small sets of groups that fix a decision, proven, with an adversarial example for each kept group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.bounds import Backward, Exact, Method
from proofmap.errors import InputError
from proofmap.explainers.batching import Measured, Task, ball_of_samples
from proofmap.explainers.explainer import Explainer
from proofmap.explainers.explanation import Guarantee
from proofmap.graph.classes import logits_of
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.reason import Reason
from proofmap.reasons.sufficient_set import sufficient_set
from proofmap.runtime import progress
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.settings import flag, number, setting
from proofmap.verify.objective import decides, forms_of
from proofmap.verify.objectives import Objective, Output, check_objective
from proofmap.verify.onehot_overlap import boxes_overlap
from proofmap.verify.overlap import Overlap, OverlapSettings, probability_margin

_NECESSARY_SCORE, _UNDECIDED_SCORE = 1.0, 0.5


def _check_within(said: str, got: object) -> None:
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 < got < float("inf"):
        raise InputError(f"{said}={got!r}, expected a number above 0")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sufficient(Explainer):
    """A sufficient set S of kept groups: the class holds for every δ in B with δ = 0 on S. This is proven.

    The other groups are free: all of them together may move. A kept group is necessary if freeing it as well admits an
    adversarial example, which is stored. If no kept group is undecided, S is subset-minimal: none of its groups can be
    freed as well. Another set may still be smaller.

    `Explanation.kept`, `necessary` and `undecided` mark the groups, and `Explanation.reason` holds the bounds and the
    points. Scores are 1 for necessary, 0.5 for undecided and 0 for free groups.

    Args:
        bounds: The method of the proofs, by default Exact(), which keeps one search tree for all questions of a sample.
        seconds: The time for each sample. Groups that are left then are undecided.
        order: Scores (N, G) or (G,): groups with small scores are freed first. By default the prices of a linear
            program over the rows of all rivals, and once more with the rows of the final tree.
        objective: "margin"; `pm.objectives.Label` for one label; `pm.objectives.Output` for one output, with `within`.
        within: For an output: the change that is allowed in the direction of the objective.
        rigorous: Cover all rounding errors, by default if their size is known (see `pm.overlap`).

    >>> e = pm.Sufficient(model, pm.Ball(0.3, domain=(0.0, 1.0)), groups=cells).explain(x)
    >>> e.kept.sum(1), e.undecided.any(1)
    (tensor([3, 4]), tensor([False, False]))
    """

    guarantee: ClassVar[Guarantee] = "certified"

    bounds: Method | None = None
    seconds: float = number(10.0, "a number above 0", lambda seconds: seconds > 0)
    order: Tensor | None = None
    objective: Objective = setting("margin", check_objective)
    within: float | None = setting(None, _check_within)
    rigorous: bool | None = flag()

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
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
        if self.order is not None and not (isinstance(self.order, Tensor) and self.order.ndim in (1, 2)):
            raise InputError(
                f"got order={self.order!r:.100}, expected scores (N, G) or (G,), such as explanation.scores"
            )

    def _measure(self, task: Task) -> Measured:
        room = budget(self.memory, task.x.device)
        assert self.bounds is not None
        how = OverlapSettings(self.bounds, room, "one-pass", self.objective, rigorous=task.rigorous)
        first = OverlapSettings(_quick(self.bounds), room, "one-pass", self.objective, rigorous=task.rigorous)
        overlap = boxes_overlap(task.graph, task.boxes, task.target, first)
        groups = overlap.frozen.shape[1]
        order = self._order(task, groups)
        parts = []
        with full_precision(task.x.device), torch.no_grad():
            for n in range(len(task.x)):
                with progress.part(n / len(task.x), (n + 1) / len(task.x)):
                    problem = self._problem(task, n, how, overlap)
                    known, one = float(overlap.full[n]), None if order is None else order[n]
                    parts.append(sufficient_set(problem, known, one, self.seconds))
        reason = Reason.join(parts, groups)
        scores = _NECESSARY_SCORE * reason.necessary + _UNDECIDED_SCORE * reason.undecided
        return Measured(scores.to(task.x), overlap, reason=reason)

    def _problem(self, task: Task, n: int, how: OverlapSettings, overlap: Overlap) -> ReasonProblem:
        """Return the question of sample n."""
        number = torch.tensor([n], device=task.x.device)
        x, target = task.x[number], task.target[number]
        logits = logits_of(task.graph, x)
        start = overlap.value[number] if overlap.value is not None else None
        forms = forms_of(logits, target, None, self.objective, start)[0]
        limit = -probability_margin(task.graph, how) if self.within is None else self.within
        boxes = OneHotBoxes.of(
            ball_of_samples(task.ball, number, task.x), x, task.mask[n : n + 1] if len(task.mask) > 1 else task.mask
        )
        return ReasonProblem(task.graph, boxes, target, forms, start, limit, how)

    def _order(self, task: Task, groups: int) -> Tensor | None:
        """Return the groups (n, G) from the first to be freed, if the user gave scores."""
        if self.order is None:
            return None
        scores = self.order.to(task.x).expand(task.count, -1) if self.order.ndim == 1 else self.order.to(task.x)
        if scores.shape != (task.count, groups):
            raise InputError(
                f"got order of shape {tuple(self.order.shape)}, expected scores of {groups} groups, for all samples or "
                "for each"
            )
        scores = scores[task.first : task.first + len(task.x)]
        return scores.argsort(dim=1, stable=True)


def _quick(method: Method) -> Method:
    """Return the method without a search."""
    return Backward() if method.search is not None else method
