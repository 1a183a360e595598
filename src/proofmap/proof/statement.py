"""`Asked`: the subject of a certificate, with its input, ball, groups and statement, in the form of its file."""

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

Array = NDArray[Any]

_UNBOUNDED = 2.0**1000  # stands for an infinite end of the domain; beyond the range of float32


@dataclass(frozen=True, eq=False)
class Asked:
    """A sample with its ball: the entries of the claim, and the arrays that they name."""

    x: Array  # (*shape) float32
    ball: Mapping[str, Any]
    mask: Array | None  # (*shape), 0..G-1
    groups: int
    stated: Mapping[str, Any]  # the entries of the claim that state the forms: "target" and "rivals", or "statement"
    arrays: Mapping[str, Array] = field(default_factory=dict)  # file name -> array

    @classmethod
    def of(cls, x: Tensor, ball: Ball, mask: Tensor | None, groups: int, stated: Mapping[str, Any]) -> Asked:
        """Create the entries for x (1, *shape) and mask (1, *shape)."""
        if x.dtype != torch.float32:
            raise InputError(f"got inputs in {x.dtype}, expected float32: certificates are about what float32 runs")
        ball.at(x)  # refuses balls that the claim cannot express, such as one-hot blocks
        arrays: dict[str, Array] = {}
        around = {
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
        return cls(values, around, ids, groups if mask is not None else 0, stated, arrays)

    @property
    def claim(self) -> dict[str, Any]:
        """The entries of the claim."""
        return {
            "input": {"sha256": sha256(self.x.astype("<f4").tobytes()).hexdigest(), "shape": list(self.x.shape)},
            "ball": dict(self.ball),
            "groups": None if self.mask is None else {"count": self.groups, "mask": "mask.npy"},
            **self.stated,
        }

    @property
    def given(self) -> dict[str, Any]:
        """The ball with arrays instead of their file names, as the checker needs it."""
        ends = self.ball["domain"]
        domain = None if ends is None else [self.arrays.get(end, end) for end in ends]
        return {**self.ball, "eps": self.arrays.get(self.ball["eps"], self.ball["eps"]), "domain": domain}


def _number(value: float) -> str:
    """Return the shortest decimal text of a number: "0.01" means exactly 1/100."""
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
            arrays[name] = np.clip(values, -_UNBOUNDED, _UNBOUNDED)
            ends.append(name)
        else:
            ends.append(_number(float(end)))
    return ends
