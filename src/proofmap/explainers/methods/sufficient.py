"""Sufficient: small sets of groups that fix a decision, proven, with a stored input for each necessary group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.batching import Measured, Task
from proofmap.explainers.methods.set_explainer import SetExplainer, reason_problem
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.reason import Reason
from proofmap.reasons.sufficient_set import sufficient_set
from proofmap.runtime import progress
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_number, setting
from proofmap.verify.onehot_overlap import boxes_overlap

_NECESSARY_SCORE, _UNDECIDED_SCORE = 1.0, 0.5


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sufficient(SetExplainer):
    """A sufficient set S of kept groups: the class holds for every δ in B with δ = 0 on S. This is proven.

    The other groups are free: all of them together may move. A kept group is necessary if freeing it as well admits an
    adversarial example, which is stored. If proofs cover rounding errors, an input counts too whose overlap is below
    the limit by less than these errors: no such proof can free the group. `Explanation.reason` tells both apart: its
    field adversarial marks the first kind.

    If no kept group is undecided, S is subset-minimal: none of its groups can be freed as well by such a proof. Another
    set may still be smaller.

    `Explanation.kept`, `necessary` and `undecided` mark the groups, and `Explanation.reason` holds the bounds and the
    points. `Explanation.certificate` writes a file of all that, which others can check. Scores are 1 for necessary, 0.5
    for undecided and 0 for free groups.

    Args:
        bounds: The method of the proofs, by default Exact(), which keeps one search tree for all questions of a sample.
        seconds: The time for each sample. Groups that are left then are undecided.
        smallest: Further time for each sample, to look for smaller sets and to bound the size of all sufficient sets
            from below. It may show that the set is smallest. With None there is no bound. The bound relies on HiGHS, a
            solver in float64: it stays far away from the solver's tolerances, but no certificate repeats it.
        order: Scores (N, G) or (G,): groups with small scores are freed first. By default the prices of a linear
            program over the rows of all rivals; then twice more with the rows of the last tree.
        objective: "margin"; `pm.objectives.Label` for one label; `pm.objectives.Output` for one output, with `within`.
        within: For an output: the change that is allowed in the direction of the objective.
        rigorous: Cover all rounding errors, by default if their size is known (see `pm.overlap`).

    >>> small = pm.Ball(0.05, domain=(0.0, 1.0))
    >>> e = pm.Sufficient(model, small, groups=cells, bounds=pm.bounds.Backward()).explain(x)
    >>> e.kept.sum(1)        # the number of kept groups, among 16
    tensor([8, 6])
    """

    smallest: float | None = setting(None, partial(check_number, expected="a number above 0", fits=lambda s: s > 0))
    order: Tensor | None = None

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        super().__post_init__()
        if self.order is not None and not (isinstance(self.order, Tensor) and self.order.ndim in (1, 2)):
            raise InputError(
                f"got order={self.order!r:.100}, expected scores (N, G) or (G,), such as explanation.scores"
            )

    def _measure(self, task: Task) -> Measured:
        how = self._overlap_settings(task, search=True)
        overlap = boxes_overlap(task.graph, task.boxes, task.target, self._overlap_settings(task, search=False))
        groups = overlap.frozen.shape[1]
        order = self._order(task, groups)
        parts = []
        with full_precision(task.x.device), torch.no_grad():
            for n in range(len(task.x)):
                with progress.part(n / len(task.x), (n + 1) / len(task.x)):
                    problem = reason_problem(task, n, how, overlap, self.within)
                    _check_moves(problem, task.first + n)
                    known, one = float(overlap.full[n]), None if order is None else order[n]
                    parts.append(sufficient_set(problem, known, one, self.seconds, self.smallest))
        reason = Reason.join(parts, groups)
        scores = _NECESSARY_SCORE * reason.necessary + _UNDECIDED_SCORE * reason.undecided
        return Measured(scores.to(task.x), overlap, reason=reason)

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


def _check_moves(problem: ReasonProblem, sample: int) -> None:
    """Raise InputError if no group can move."""
    if not bool(problem.movable.any()):
        raise InputError(
            f"nothing is left to free: no value of sample {sample} can move in the ball, expected a radius above 0 and "
            "values that the domain and the fixed inputs let move",
            arguments=("eps=0.02",),
        )
