"""Objectives: linear forms of the logits whose largest value over a ball is the overlap."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Objective = Literal["margin", "class", "mean", "apart"]


def decides(objective: object) -> bool:
    """Return whether an overlap below 0 with this objective proves the decision."""
    return objective in ("margin", "apart")


def forms_of(logits: Tensor, target: Tensor, rival: Tensor | None, objective: Objective) -> Tensor:
    """Return the forms (N, R, classes) of the objective, in the logits' dtype. `join` combines their values."""
    classes = logits.shape[1]
    unit = torch.eye(classes, dtype=logits.dtype, device=logits.device)
    decided = unit[target].unsqueeze(1)  # (N, 1, C)
    every = torch.arange(classes - 1, device=target.device).expand(len(target), -1)
    others = unit[every + (every >= target[:, None])] if rival is None else unit[rival].unsqueeze(1)
    match objective:
        case "margin":
            return others - decided
        case "class":
            return -decided
        case "mean":
            return (others - decided).mean(1, keepdim=True)
        case "apart":
            return torch.cat([others, -decided], dim=1)


def join(value: Tensor, objective: Objective) -> Tensor:
    """Return the overlap (N, members) from the values of the forms (N, members, R)."""
    return value[:, :, :-1].amax(2) + value[:, :, -1] if objective == "apart" else value.amax(2)


def nominal(forms: Tensor, logits: Tensor, objective: Objective) -> Tensor:
    """Return the overlap (N,) at x itself."""
    return join((forms @ logits.unsqueeze(2)).mT, objective).squeeze(1)
