"""The linear forms of an objective: the largest value of a form over a ball is the overlap.

Forms of the logits for the objectives of classes; forms of (v, 1) for an output v (`objectives.objective_graph`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from proofmap.verify.objectives import Label, Logits, Objective, Output

__all__ = ["Objective", "decides", "forms_of", "join", "nominal"]


def decides(objective: object) -> bool:
    """Return whether an overlap below 0 with this objective, or its record, proves a decision."""
    if isinstance(objective, Label) or (isinstance(objective, Mapping) and "label" in objective):
        return True
    return objective in ("margin", "apart")


def forms_of(
    logits: Tensor, target: Tensor, rival: Tensor | None, objective: Objective, start: Tensor | None = None
) -> Tensor:
    """Return the forms (N, R, classes) of the objective, in the logits' dtype. `join` combines their values.

    start: (N,) the value that an output's change is measured from; by default that of `logits`.
    """
    if isinstance(objective, Output):
        return _changes(logits, logits[:, 0] if start is None else start.to(logits), objective)
    classes = logits.shape[1]
    unit = torch.eye(classes, dtype=logits.dtype, device=logits.device)
    decided = unit[target].unsqueeze(1)  # (N, 1, C)
    every = torch.arange(classes - 1, device=target.device).expand(len(target), -1)
    others = unit[every + (every >= target[:, None])] if rival is None else unit[rival].unsqueeze(1)
    match _of_logits(objective):
        case "margin":
            return others - decided
        case "class":
            return -decided
        case "mean":
            return (others - decided).mean(1, keepdim=True)
        case "apart":
            return torch.cat([others, -decided], dim=1)


def _of_logits(objective: Objective) -> Logits:
    assert not isinstance(objective, Output)
    return "margin" if isinstance(objective, Label) else objective


def _changes(outputs: Tensor, start: Tensor, objective: Output) -> Tensor:
    """Return the forms (N, R, 2) of the outputs (v, 1): v - start for the rise, start - v for the fall."""
    rise = torch.stack([torch.ones_like(start), -start], dim=1)[:, None].to(outputs)
    return {"up": rise, "down": -rise, "both": torch.cat([rise, -rise], dim=1)}[objective.direction]


def join(value: Tensor, objective: Objective) -> Tensor:
    """Return the overlap (N, members) from the values of the forms (N, members, R)."""
    return value[:, :, :-1].amax(2) + value[:, :, -1] if objective == "apart" else value.amax(2)


def nominal(forms: Tensor, logits: Tensor, objective: Objective) -> Tensor:
    """Return the overlap (N,) at x itself."""
    return join((forms @ logits.unsqueeze(2)).mT, objective).squeeze(1)
