"""EVA (Fel et al., CVPR 2023): the score of a group is the drop of the certified overlap when the group is frozen."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from proofmap.bounds import Method, Sharing
from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Explanation, Guarantee
from proofmap.explainers.statements.explained_inputs import with_inputs
from proofmap.graph import as_graph
from proofmap.graph.classes import require_classes
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.several_inputs import is_several
from proofmap.runtime.memory import budget
from proofmap.runtime.progress import part
from proofmap.settings import choice, flag, setting
from proofmap.verify.objectives import Objective, check_objective
from proofmap.verify.onehot_overlap import boxes_overlap
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap, method_of


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EVA(Explainer):
    """EVA(u) = AO(B) - AO(B_u), both terms certified upper bounds, or lower bounds that a search reached.

    The difference is an importance score and not itself certified. `Explanation.intervals` bounds the true score.

    objective: "margin", "class" or "mean"; `pm.objectives.Output` for the change of one output, as of a regression
    model; `pm.objectives.Label` for one label of several. rigorous: cover all rounding errors, by default if their size
    is known (see `pm.overlap`).

    >>> pm.EVA(model, ball, groups=cells).explain(x)
    Explanation(2 samples of (1, 28, 28), 16 groups, method='EVA', AO <= -13.39 to -10.05, guarantee='certified')
    """

    guarantee: ClassVar[Guarantee] = "certified"

    bounds: Method | None = None
    sharing: Sharing = choice("shared", Sharing)
    objective: Objective = setting("margin", check_objective)
    rigorous: bool | None = flag()

    def _measure(self, task: Task) -> Measured:
        room = budget(self.memory, task.x.device)
        how = OverlapSettings(method_of(self.bounds), room, self.sharing, self.objective, rigorous=task.rigorous)
        return Measured.of(boxes_overlap(task.graph, task.boxes, task.target, how))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TargetedEVA(Explainer):
    """EVA towards one class c': φ = φ(+) - φ(-), with EVA on the two half balls δ >= 0 and δ <= 0.

    Both use the margin f_c' - f_c of the predicted class c. φ > 0: adding in the group moves towards c'; φ < 0:
    removing does.

    >>> pm.TargetedEVA(model, ball, groups=cells).explain(x, target=9).signed
    True
    """

    guarantee: ClassVar[Guarantee] = "certified"
    signed: ClassVar[bool] = True

    bounds: Method | None = None
    sharing: Sharing = choice("shared", Sharing)
    rigorous: bool | None = flag()

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        super().__post_init__()
        ball = self._first_ball
        if ball is not None and ball.half is not None:
            raise InputError(
                f"got a ball with half={ball.half!r}, expected a whole ball: TargetedEVA itself explains both halves"
            )

    def explain(self, x: Inputs, target: Target = None) -> Explanation:
        """Explain the changes that move each sample of x (N, *shape) to `target`: one class, or one per sample."""
        if target is None:
            raise InputError("TargetedEVA needs a target, the class to move to: give one, or call explain_all(x)")
        return super().explain(x, target)

    def explain_all(self, x: Inputs) -> Explanation:
        """Explain every class of every sample: N · classes explanations, ordered by sample; `.atlas()` draws a table.

        Towards its own class, a sample's scores are zero.
        """
        if is_several(x):
            joined = join_inputs(self.model, x)
            stated = self.for_joined(joined)
            assert isinstance(stated, TargetedEVA)
            return with_inputs(stated.explain_all(joined.x), None if joined.is_one else joined.record(self.ball))
        x = as_samples(x, self.model)
        graph = require_classes(as_graph(self.model, x))
        every = torch.arange(graph.classes, device=x.device).repeat(len(x))
        return replace(self, model=graph).explain(x.repeat_interleave(graph.classes, dim=0), every)

    def _measure(self, task: Task) -> Measured:
        with part(0.0, 0.5):
            plus = self._half(task, "+")
        with part(0.5, 1.0):
            minus = self._half(task, "-")
        return Measured.of(plus, minus)

    def _half(self, task: Task, half: Literal["+", "-"]) -> Overlap:
        family = replace(task, ball=replace(task.ball, half=half)).family
        room = budget(self.memory, task.x.device)
        how = OverlapSettings(method_of(self.bounds), room, self.sharing, rigorous=task.rigorous)
        return family_overlap(task.graph, family, task.predicted, how, rival=task.target)
