"""Occlusion (Zeiler and Fergus 2014): the drop of the logit when a patch of the input is covered, by Captum."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.settings import count, number


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Occlusion(Baseline):
    """f_c(x) - f_c(x with a patch set to the baseline), for every variable of the patch (Zeiler and Fergus 2014).

    Patches do not overlap. Their size and stride is 1/`parts` of each side of an image (C, H, W) or (H, W), rounded
    down, across all channels. In a flat sample each variable is a patch.
    """

    needs_gradients: ClassVar[bool] = False

    parts: int = count(7)
    baseline: float = number(0.0)

    def _maps(self, task: BaselineBatch) -> Tensor:
        patch = self._patch(tuple(task.x.shape[1:]))
        cover = {"sliding_window_shapes": patch, "strides": patch, "baselines": self.baseline}
        return task.captum("Occlusion", task.x, task.target, **cover, perturbations_per_eval=task.repeats)

    def _patch(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) == 1:
            return (1,)
        return (*shape[:-2], *(max(1, side // self.parts) for side in shape[-2:]))
