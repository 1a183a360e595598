"""Contrastive: the smallest sets of groups that can change a decision, each with the changed input."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from proofmap.explainers.batching import Measured, Task
from proofmap.explainers.methods.set_explainer import SetExplainer, goal_problem, reason_problem
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.contrasts.contrast_search import contrast_sets
from proofmap.reasons.contrasts.goal_network import GoalNetwork
from proofmap.runtime import progress
from proofmap.runtime.precision import full_precision
from proofmap.settings import count
from proofmap.verify.onehot_overlap import boxes_overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Contrastive(SetExplainer):
    """A smallest set C of groups that can change the decision: an input x + δ with δ in B, δ = 0 outside C, changes it.

    `Explanation.contrast` holds the sets with their changed inputs, and a proven lower bound of their size: no set of
    fewer groups can change the decision. If both numbers meet, the set is smallest. It also tells where no input of the
    ball changes the decision. For p = inf, the bound comes from the rows of a search tree, whose rounding errors are
    covered. It may also come from sufficient sets that every contrastive set has to meet: HiGHS counts how many groups
    that takes.

    The target of a sample asks for a change to this class. A target that is the predicted class stands for any change.
    The lower bound is then about the target ahead of the predicted class, so that a third class may keep both numbers
    apart.

    Scores are 1 for the groups of the smallest set found, 1/2 for those of the second one, and 0 for the others.

    Args:
        bounds: The method of the proofs, by default Exact().
        seconds: The time for each sample.
        sets: The largest number of sets for each sample. Further sets share no group with the ones before. They are
            small, but the lower bound is not about them.
        objective: "margin"; `pm.objectives.Label` for one label; `pm.objectives.Output` for one output, with `within`.
        within: For an output: the change, in the direction of the objective, that the groups have to exceed.
        rigorous: Cover all rounding errors in the lower bound, by default if their size is known (see `pm.overlap`).

    >>> e = pm.Contrastive(model, pm.Ball(0.3, domain=(0.0, 1.0)), groups=cells).explain(x)
    >>> e.contrast.found
    tensor([True, True])
    """

    sets: int = count(1)

    def _measure(self, task: Task) -> Measured:
        how = self._overlap_settings(task, search=True)
        overlap = boxes_overlap(task.graph, task.boxes, task.predicted, self._overlap_settings(task, search=False))
        parts = []
        with full_precision(task.x.device), torch.no_grad():
            for n in range(len(task.x)):
                with progress.part(n / len(task.x), (n + 1) / len(task.x)):
                    aim = task.target[n : n + 1]
                    chosen = bool(aim != task.predicted[n])
                    problem = reason_problem(task, n, how, overlap, self.within, aim if chosen else None)
                    goal = GoalNetwork(goal_problem(problem, aim)) if chosen else None
                    parts.append(contrast_sets(problem, goal, self.sets, self.seconds))
        contrast = Contrast.join(parts, overlap.frozen.shape[1])
        return Measured(_scores(contrast).to(task.x), overlap, contrast=contrast)


def _scores(contrast: Contrast) -> torch.Tensor:
    """Return 1 for the groups of a sample's first set, 1/2 for those of its second set, and so on."""
    scores = torch.zeros(len(contrast.least), contrast.groups, dtype=torch.float64, device=contrast.sets.device)
    for n in range(len(scores)):
        for place, one in enumerate(contrast.sets[contrast.owner == n]):
            scores[n, one] = 1 / (1 + place)
    return scores
