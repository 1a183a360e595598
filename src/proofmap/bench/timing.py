"""How long explanations take, whoever is asked first."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from proofmap.explain.attributor import Attributor

__all__ = ["timed", "warm_up"]


def warm_up(attributor: Attributor, x: Tensor, target: Tensor) -> None:
    """Explain one sample for nothing: imports, traces and the first use of a device are no method's own time."""
    attributor.attribute(x[:1], target=target[:1])


def timed(attributor: Attributor, x: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """The attributions of x, and the seconds they took; on a GPU until they are there."""
    start = perf_counter()
    maps = attributor.attribute(x, target=target)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return maps, perf_counter() - start
