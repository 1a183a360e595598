"""Nested balls: only the k most important variables of a sample may change, for growing k."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from proofmap.metrics.batched_logits import pieces
from proofmap.metrics.metric import Case
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.variables import Variables


class Balls(NamedTuple):
    """A batch of balls. Balls of one sample may be in several batches."""

    x: Tensor  # (n, *shape) the centres
    target: Tensor  # (n,)
    free: Tensor  # (n, *shape) bool: the entries that may change


def nested(case: Case, variables: Variables, steps: int, seed: int) -> Iterator[Balls]:
    """Yield `steps` balls for each sample, in which its first floor(i G / steps) variables may change, i = 1 .. steps.

    The balls come in batches of the model. seed: breaks ties of attributions.
    """
    x, index, ties = case.x, torch.arange(1, steps + 1, device=case.x.device), Stream(seed, "ties")
    for piece in pieces(len(x), steps, case.rows):
        present = variables.cut(piece)
        near = x[piece].repeat_interleave(steps, dim=0)  # (n K, *shape)
        classes = case.target[piece].repeat_interleave(steps)
        free = present.first(case.ranks(present, piece, ties), index, steps).view(near.shape)
        for some in pieces(len(near), 1, case.rows):
            yield Balls(near[some], classes[some], free[some])
