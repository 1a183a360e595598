"""What a certificate is about, as its file states it: an input, its ball, its groups and the classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, isinf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.ball import Ball, resolve_end

__all__ = ["Array", "Asked"]

Array = NDArray[Any]

_FAR = 2.0**1000  # stands for no end: further than float32 goes


@dataclass(frozen=True, eq=False)
class Asked:
    """One sample with its ball: the parts of the claim that name them, and the arrays that these refer to."""

    x: Array  # (*shape) float32
    ball: Mapping[str, Any]
    mask: Array | None  # (*shape), 0..G-1
    groups: int
    target: int
    rivals: tuple[int, ...]
    arrays: Mapping[str, Array] = field(default_factory=dict)  # by the names of their files

    @classmethod
    def of(cls, x: Tensor, ball: Ball, mask: Tensor | None, groups: int, target: int, rivals: tuple[int, ...]) -> Asked:
        """x (1, *shape), mask (1, *shape)."""
        if x.dtype != torch.float32:
            raise InputError(f"got inputs in {x.dtype}, expected float32: certificates are about what float32 runs")
        ball.at(x)  # refuses a ball that is more than what is stated here: one-hot blocks that may change
        arrays: dict[str, Array] = {}
        stated = {
            "norm": "inf" if ball.norm == inf else f"{ball.norm:g}",
            "eps": _radius(ball, x, arrays),
            "domain": None if ball.domain is None else _domain(ball, x, arrays),
            "relative": ball.relative,
            "half": ball.half,
        }
        ids = None
        if mask is not None:
            ids = mask.expand_as(x)[0].cpu().numpy().astype(np.uint8 if groups <= 256 else np.int32)
            arrays["mask.npy"] = ids
        values: Array = np.ascontiguousarray(x[0].cpu().numpy())
        return cls(values, stated, ids, groups if mask is not None else 0, target, rivals, arrays)

    @property
    def claim(self) -> dict[str, Any]:
        """The parts of the claim that say it."""
        return {
            "input": {"sha256": sha256(self.x.astype("<f4").tobytes()).hexdigest(), "shape": list(self.x.shape)},
            "ball": dict(self.ball),
            "groups": None if self.mask is None else {"count": self.groups, "mask": "mask.npy"},
            "target": self.target,
            "rivals": list(self.rivals),
        }

    @property
    def given(self) -> dict[str, Any]:
        """The ball with its arrays in place of their names, as the checker takes it."""
        ends = self.ball["domain"]
        domain = None if ends is None else [self.arrays.get(end, end) for end in ends]
        return {**self.ball, "eps": self.arrays.get(self.ball["eps"], self.ball["eps"]), "domain": domain}


def _number(value: float) -> str:
    """A number as its user wrote it: "0.01" is exactly 1/100."""
    return repr(float(value))


def _radius(ball: Ball, x: Tensor, arrays: dict[str, Array]) -> str:
    if isinstance(ball.eps, str):
        raise InputError("got a ball with eps='auto', expected the radius that was explained")
    if not isinstance(ball.eps, Tensor):
        return _number(ball.eps)
    if ball.eps.numel() == 1:
        return float(ball.eps).hex()
    arrays["eps.npy"] = ball.eps.double().broadcast_to(x.shape)[0].cpu().numpy().copy()
    return "eps.npy"


def _domain(ball: Ball, x: Tensor, arrays: dict[str, Array]) -> list[str]:
    assert ball.domain is not None
    ends = []
    for name, end in zip(("low.npy", "high.npy"), ball.domain, strict=True):
        if (isinstance(end, Tensor) and end.numel() > 1) or isinf(end):
            values: Array = resolve_end(end, x.double())[0].cpu().numpy()
            arrays[name] = np.clip(values, -_FAR, _FAR)
            ends.append(name)
        else:
            ends.append(_number(float(end)))
    return ends
